"""A difference too small to matter: `0.01` in the metric's unit, or `1%` of the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptlab.errors import wrong_value
from gptlab.metrics import Metric


@dataclass(frozen=True)
class Margin:
    """A size, in the metric's unit or relative to the baseline."""

    text: str
    size: float
    relative: bool

    @classmethod
    def parse(cls, text: str, key: str = "margin") -> Margin:
        """ConfigError, about `key`, unless `text` is a positive number or percentage."""
        number = text.strip()
        try:
            size = float(number.removesuffix("%"))
        except ValueError:
            size = math.nan
        if not (math.isfinite(size) and size > 0):
            raise wrong_value(
                key,
                text,
                "must be a positive number (in the metric's unit) or a percentage: 0.01, 1%.",
                code="margin-not-positive",
            )
        relative = number.endswith("%")
        return cls(number, size / 100 if relative else size, relative)

    def bounds(self, metric: Metric, baseline: float) -> tuple[float, float]:
        """Lowest and highest difference that do not matter; in logarithms for a metric that is compared by ratios."""
        if metric.kind == "positive_scale":
            if not self.relative:
                raise wrong_value(
                    "margin",
                    self.text,
                    f"{metric.name} is compared by ratios. Give a percentage: 5%.",
                    code="margin-needs-percentage",
                    name=metric.name,
                )
            return -math.log1p(self.size), math.log1p(self.size)
        size = self.size * abs(baseline) if self.relative else self.size
        return -size, size
