"""Study `greedy_steps`: softmax changes no greedy choice; which untrained models run in circles, over many seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gptlab.analyses import Findings
from gptlab.book.figures import canvas
from gptlab.book.figures.greedy_steps import decoded, figure
from gptlab.config import Config
from gptlab.errors import ConfigError
from gptlab.model import build
from gptlab.probes.generation import greedy
from gptlab.registry import register
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TAIL, LONGEST = 24, 12  # a cycle: the last 24 tokens repeat with a period of 12 or less
PROMPT = [0, 1, 2, 3]


@register("analysis", "greedy_steps")
def greedy_steps(variants: Sequence[Config], seeds: int = 60, tokens: int = 60) -> Findings:
    """argmax(softmax(logits)) against argmax(logits) at each step; the share of seeds whose greedy text cycles."""
    if seeds < 1 or tokens < TAIL:
        raise ConfigError(
            f"experiment.options: seeds must be 1 or more, and tokens {TAIL} or more.",
            code="greedy-steps-options",
            key="experiment.options",
            tail=TAIL,
        )
    found = Findings(figures={"greedy_steps": figure})
    agree = total = 0
    designs = {c.label: c for c in reversed(variants)}  # one of each variant, whatever its seed
    for label, config in reversed(designs.items()):
        steps, _ = decoded(config, 10)
        agree, total = agree + sum(s.from_logits == s.from_softmax for s in steps), total + len(steps)
        periods = Counter(period(text(replace(config, seed=seed), tokens)) for seed in range(seeds))
        found.tables.setdefault("periods", []).extend(
            {"variant": label, "period": length, "seeds": number} for length, number in sorted(periods.items())
        )
        found.summary.append((f"{label}/cycles", seeds - periods[0], f"of {seeds} seeds end in a cycle (period <= 12)"))
        found.summary.append((f"{label}/period_1", periods[1], "of them repeat one token"))
    found.figures["cycles"] = partial(cycles_figure, found.tables["periods"], seeds)
    found.summary.insert(0, ("same_choice", agree, f"of {total} steps: argmax(softmax) equals argmax(logits)"))
    return found


def text(config: Config, tokens: int) -> list[int]:
    """What the model says after a fixed prompt, greedily."""
    return greedy(build(config), PROMPT, tokens, config.model.context_length).ids


def period(ids: Sequence[int]) -> int:
    """The shortest period of the last tokens; 0 where there is none."""
    tail = list(ids[-TAIL:])
    return next((p for p in range(1, LONGEST + 1) if tail[p:] == tail[:-p]), 0)


def cycles_figure(periods: Sequence[dict[str, Any]], seeds: int) -> Figure:
    """For each variant the share of seeds by period: one token, two or three, longer, none."""
    groups = (
        ("the same token", 1, 1, style.BLUE, ""), ("2 or 3 tokens", 2, 3, style.SKY, "///"),
        ("4 to 12 tokens", 4, LONGEST, style.YELLOW, ""), ("no cycle", 0, 0, "#dddddd", ""),
    )  # fmt: skip
    labels = list(dict.fromkeys(row["variant"] for row in periods))
    picture = canvas.blank(
        9.2, 1.75 + 0.36 * len(labels), "Which untrained models repeat themselves",
        f"Two blocks, random weights, greedy; the period of the last {TAIL} tokens, percent of {seeds} seeds",
    )  # fmt: skip
    axes = canvas.panel(picture, 2.3, 1.1, 6.6, 0.36 * len(labels))
    starts = [0.0] * len(labels)
    for words, low, high, color, hatch in groups:
        sizes = [
            100 / seeds * sum(r["seeds"] for r in periods if r["variant"] == label and low <= r["period"] <= high)
            for label in labels
        ]
        axes.barh(range(len(labels)), sizes, left=starts, height=0.72, color=color, hatch=hatch, edgecolor="white",
                  linewidth=0.6, label=words)  # fmt: skip
        for place, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            if size >= 5:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.9}
                axes.text(start + size / 2, place, f"{size:.0f}%", ha="center", va="center", fontsize=8, bbox=box)
        starts = [start + size for start, size in zip(starts, sizes, strict=True)]
    axes.set_yticks(range(len(labels)), [style.plain(label, 30) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, fontsize=8.5, borderaxespad=0.3)
    return picture
