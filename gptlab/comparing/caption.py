"""What stands with every table of a comparison: how to read its numbers, and the runs that it lost."""

from __future__ import annotations

from gptlab.comparing.comparison import Comparison
from gptlab.comparing.which_metrics import declared
from gptlab.texts import printable


def caption(comparison: Comparison) -> str:
    """How to read the numbers, in one paragraph of plain sentences."""
    several = len({row.baseline for row in comparison.rows if row.baseline}) > 1
    baseline = f'Baseline: "{comparison.baseline}".' if comparison.baseline else ""
    baseline = "Each variant has its own baseline." if several else baseline or "No baseline."
    seeds = comparison.seeds
    listed = f"Seeds: {', '.join(map(str, seeds[:12]))}{', ...' if len(seeds) > 12 else ''}."
    facts = [baseline, listed if seeds else "No run has finished."]
    if comparison.has_baseline and len(seeds) > 1:
        apart = ["values at training steps"] if comparison.steps else []
        apart += ["times"] if any(declared(name).kind == "timing" for name in comparison.metrics[1:]) else []
        families = f" ({' and '.join(apart)} by themselves)" if apart else ""
        correction = "by Dunnett" if comparison.pooled else "corrected by Holm"
        facts.append(
            "Differences are variant minus baseline (xN: ratios), paired by seed; low and high: 95 % Student-t "
            "interval (two seeds: their range). ±: half the 95 % t interval of the mean. "
            f"p: paired t test; {comparison.primary_metric} {correction} over the planned variants, all else by "
            f"Benjamini-Hochberg{families} and exploratory. Fewer than five seeds are exploratory too."
        )
        if comparison.pooled:
            facts.append(comparison.pooled)
        if comparison.margin:
            facts.append(f"Equivalent: within {comparison.margin} by two one-sided tests.")
    return " ".join(facts)


def lost_runs(comparison: Comparison) -> list[str]:
    """A line for each run that was started and is no evidence: `relu: seed 1 damaged: result.json: ...`."""
    return [printable(f"{row.label}: {text}") for row in comparison.rows for text in row.failures]
