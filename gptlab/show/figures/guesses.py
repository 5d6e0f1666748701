"""What a loss is to be held against: guessing all tokens alike, guessing by their frequency, and the least there is.

Thin lines with their names in the panels of loss curves. Only what a study's runs agree on is drawn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from gptlab.show.figures import style
from gptlab.show.formats import significant
from gptlab.store.config_file import read_config
from gptlab.store.damage import DamagedError
from gptlab.store.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SOFT = "#666666"
MOST_CONFIGS = 20  # of variants, that are read where no run says what ln V is
ABOVE = 0.3  # of the height of a panel: a line farther away would press all curves together


class Guess(NamedTuple):
    """A loss in nats/token, and what reaches it."""

    value: float
    name: str

    @property
    def words(self) -> str:
        """`ln V 2.485 (all tokens alike)`."""
        return self.name.format(significant(self.value, 4))


def guesses(study: Study) -> list[Guess]:
    """The lines of a study, the highest first."""
    found = [
        (_ln_vocab(study), "ln V {} (all tokens alike)"),
        (_one(study, "unigram_entropy"), "unigram entropy {}"),
        (_one(study, "entropy_floor"), "entropy of the language {}"),
    ]
    known = [Guess(value, name) for value, name in found if value is not None and math.isfinite(value)]
    return sorted(known, key=lambda guess: -guess.value)


def draw_guesses(axes: Axes, found: list[Guess], *, named: bool = True) -> None:
    """The lines that are in the panel, or a little above it; call when its curves are drawn and its limits are set."""
    low, high = axes.get_ylim()
    top = high + ABOVE * (high - low)
    # Curves fall: above them there is room at the right, below them at the left.
    middle = (low + high) / 2
    for guess in found:
        if not low < guess.value < top:
            continue
        high = max(high, guess.value + 0.04 * (high - low))
        axes.axhline(guess.value, color=SOFT, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1.5)
        if named:
            x, side = (0.995, "right") if guess.value > middle else (0.01, "left")
            axes.annotate(
                style.plain(guess.words), (x, guess.value), xytext=(0, 2), xycoords=axes.get_yaxis_transform(),
                textcoords="offset points", fontsize=7, color=SOFT, ha=side, va="bottom", zorder=1.6,
            )  # fmt: skip
    axes.set_ylim(low, high)


def _one(study: Study, metric: str) -> float | None:
    """The value of a run's own number, where all runs that have it agree."""
    values = set(study.runs[metric].dropna().astype(float)) if metric in study.runs else set()
    return values.pop() if len(values) == 1 else None


def _ln_vocab(study: Study) -> float | None:
    """As a run measured it, else from the configs."""
    if "ln_vocab_size" in study.runs:
        return _one(study, "ln_vocab_size")
    folders = study.runs.drop_duplicates("label")["folder"][:MOST_CONFIGS]
    sizes = {size for folder in folders if (size := _vocab_size(study, str(folder)))}
    return math.log(sizes.pop()) if len(sizes) == 1 else None


def _vocab_size(study: Study, folder: str) -> int | None:
    try:
        model = read_config(study.folder / folder).get("model")
    except DamagedError:
        return None
    size = model.get("vocab_size") if isinstance(model, dict) else None
    return size if isinstance(size, int) and size > 1 else None
