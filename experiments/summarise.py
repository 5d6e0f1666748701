"""From a study of trainings to the table and the figure of its README.

    python experiments/summarise.py outputs/toy_ablations/<time> experiments/toy_ablations 50,100,400,800

Writes curves.csv (variant, step, metric, n; mean, s.d. and median over seeds; difference to the baseline of the same
seed: mean and s.d.), summary.md (the loss at the given steps) and curves.svg.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

METRICS = ("excess", "validation_loss", "causal_loss")


def read(study: Path) -> pd.DataFrame:
    """One row per run and evaluation: label, seed, base (label of the baseline), outcome, step, and the metrics."""
    plan = json.loads((study / "plan.json").read_text())
    labels = {run["id"]: run["label"] for run in plan["runs"]}
    rows: list[dict[str, Any]] = []
    for run in plan["runs"]:
        folder = study / run["folder"]
        outcome = json.loads((folder / "result.json").read_text()).get("outcome")
        base = labels.get(run["baseline_id"])
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            point = json.loads(line)
            if "validation_loss" in point["metrics"]:
                about = {"label": run["label"], "seed": run["seed"], "base": base, "outcome": outcome}
                rows.append({**about, "step": point["step"], **{name: point["metrics"].get(name) for name in METRICS}})
    return pd.DataFrame(rows)


def curves(points: pd.DataFrame) -> pd.DataFrame:
    """Mean and s.d. over seeds of each metric, and of its difference to the baseline of the same seed."""
    tidy = points.melt(["label", "seed", "base", "outcome", "step"], METRICS, "metric").dropna(subset=["value"])
    baseline = tidy[["label", "seed", "step", "metric", "value"]]
    baseline = baseline.rename(columns={"label": "base", "value": "base_value"})
    tidy = tidy.merge(baseline, how="left", on=["base", "seed", "step", "metric"])
    tidy["difference"] = tidy["value"] - tidy["base_value"]
    groups = tidy.groupby(["label", "base", "metric", "step"], sort=False, dropna=False)
    table = groups.agg(
        n=("value", "count"),
        mean=("value", "mean"),
        sd=("value", "std"),
        median=("value", "median"),
        difference=("difference", "mean"),
        difference_sd=("difference", "std"),
    )
    return table.reset_index()


def markdown(points: pd.DataFrame, table: pd.DataFrame, steps: list[int]) -> str:
    """Baseline in nats, others as mean difference (s.d. over seeds). With several baselines: medians, all in nats."""
    metric = "excess" if points["excess"].notna().any() else "validation_loss"
    heads = ["variant", "n", *(f"step {step}" for step in steps), "outcomes"]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    several = table["base"].nunique() > 1
    for label, rows in table[table["metric"] == metric].groupby("label", sort=False):
        own = points[points["label"] == label]
        outcomes = own.drop_duplicates("seed")["outcome"].value_counts()
        cells = [str(label), str(own["seed"].nunique())]
        for step in steps:
            row = rows[rows["step"] == step]
            cells.append("" if row.empty else f"{row.iloc[0]['median']:.4f}" if several else _cell(row.iloc[0]))
        cells.append(", ".join(f"{count} {word}" for word, count in outcomes.items()))
        lines.append(" | ".join(cells))
    return "".join(f"| {line} |\n" for line in lines)


def _cell(row: pd.Series) -> str:
    if row["label"] == row["base"] or pd.isna(row["difference"]):
        return f"{row['mean']:.4f} ({row['sd']:.4f})"
    return f"{row['difference']:+.4f} ({row['difference_sd']:.4f})"


def figure(table: pd.DataFrame, path: Path) -> None:
    """Mean over seeds of each variant against steps."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "gptlab"
    from matplotlib import pyplot

    metric = "excess" if "excess" in set(table["metric"]) else "validation_loss"
    chosen = table[table["metric"] == metric]
    axes = pyplot.figure(figsize=(7, 4), layout="constrained").subplots()
    for label, rows in chosen.groupby("label", sort=False):
        base = rows["base"].iloc[0] in (label, None)
        axes.plot(rows["step"], rows["mean"], label=label, color="black" if base else None, lw=2 if base else 1.2)
    if (chosen["mean"] > 0).all():
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel(f"{metric.replace('_', ' ')}, nats per token")
    axes.legend(fontsize=7, ncols=1 + len(set(chosen["label"])) // 12)
    axes.figure.savefig(path, metadata={"Date": None})


def main(study: Path, target: Path, steps: list[int]) -> None:
    """Read the study, write the three files."""
    points = read(study)
    table = curves(points)
    table.to_csv(target / "curves.csv", index=False, float_format="%.6g", lineterminator="\n")
    (target / "summary.md").write_text(markdown(points, table, steps), encoding="utf-8")
    figure(table, target / "curves.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [int(step) for step in sys.argv[3].split(",")])
