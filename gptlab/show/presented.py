"""A comparison in Python: the data of `gptlab.comparing.comparison`, which also knows how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from gptlab.comparing.comparison import Comparison
from gptlab.show.exports import export


class PresentedComparison(Comparison):
    """What `gptlab.compare` gives: a table in a notebook, and text for a paper."""

    @classmethod
    def of(cls, comparison: Comparison) -> PresentedComparison:
        """The same comparison."""
        return cls(**{field.name: getattr(comparison, field.name) for field in fields(Comparison)})

    def latex(self, columns: Sequence[str] = (), caption: str = "") -> str:
        """LaTeX tables (booktabs, siunitx): one per metric, or a single one with these `columns`.

        `columns`: as in `gptlab compare --columns`, for example `["mean_sd", "verdict"]`. ConfigError for one that does
        not exist.
        """
        return export(self, "latex", columns, caption)

    def markdown(self, columns: Sequence[str] = (), caption: str = "") -> str:
        """The same as Markdown."""
        return export(self, "md", columns, caption)

    def _repr_html_(self) -> str:
        return export(self, "html")
