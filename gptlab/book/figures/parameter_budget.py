"""Figure `parameter_budget`: where the parameters of the four GPT-2 sizes live, tied and untied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptlab.book.figures import canvas
from gptlab.config import Config
from gptlab.declare.composer import compose
from gptlab.probes.parameters import count
from gptlab.show.figures import style
from gptlab.show.figures.parameters import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

MODELS = {"gpt2_124m": "small", "gpt2_medium": "medium", "gpt2_large": "large", "gpt2_xl": "XL"}
# Light and dark alternate, so that greyscale separates neighbours.
LOOKS = {
    "token_embedding": (style.BLUE, ""),
    "position": (style.YELLOW, ""),
    "attention": (style.SKY, "///"),
    "feed_forward": (style.ORANGE, ""),
    "norm": (style.INK, ""),
    "head": (style.GREEN, "\\\\\\"),
}


def shares(config: Config) -> tuple[int, dict[str, int]]:
    """(all parameters, parameters by part) of a variant; the final norm counts with the norms."""
    counted = {key: int(value) for key, value in count(config).items()}
    parts = {part: counted.get(PREFIX + part, 0) for part in LOOKS}
    parts["norm"] += counted.get(PREFIX + "final_norm", 0)
    assert sum(parts.values()) == counted["parameters"], "every parameter belongs to a part"
    return counted["parameters"], parts


def figure() -> Figure:
    """The figure for the four sizes of GPT-2, each untied and tied."""
    rows = []
    for model, name in MODELS.items():
        for words, how in (([], "untied"), (["ablation=tied"], "tied")):
            rows.append((f"{name}, {how}", *shares(compose([f"model={model}", "probes=counting", *words]))))
    return draw(rows)


def draw(rows: Sequence[tuple[str, int, dict[str, int]]]) -> Figure:
    """One bar of shares per row (label, total, parameters by part)."""
    high = 0.36
    picture = canvas.blank(
        9.6, 1.2 + high * len(rows) + 0.65, "Where the parameters of GPT-2 live",
        "A head grows with the width, a block with its square: the two vocabulary-sized tables matter less and less",
    )  # fmt: skip
    axes = canvas.panel(picture, 1.25, 1.1, 6.9, high * len(rows))
    starts = [0.0] * len(rows)
    for part in LOOKS:
        color, hatch = LOOKS[part]
        sizes = [100 * parts[part] / total for _, total, parts in rows]
        axes.barh(
            range(len(rows)), sizes, left=starts, height=0.74, color=color, hatch=hatch, edgecolor="white",
            linewidth=0.6, label=part.replace("_", " "),
        )  # fmt: skip
        for place, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            if size > 4:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.9}
                axes.text(start + size / 2, place, f"{size:.1f}%", ha="center", va="center", fontsize=8, bbox=box)
        starts = [start + size for start, size in zip(starts, sizes, strict=True)]
    for place, (_, total, _) in enumerate(rows):
        axes.text(101, place, f"{total:,}", va="center", fontsize=9)
    axes.text(101, -0.85, "parameters", va="center", fontsize=8.5, color="#444444")
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.set_xlabel("percent of all parameters (norms are under 0.1%)")
    handles = axes.get_legend_handles_labels()
    axes.legend(*handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=6, fontsize=8.5, columnspacing=1.1,
                handlelength=1.5, borderaxespad=0.3)  # fmt: skip
    return picture
