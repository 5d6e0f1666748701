"""Trials of a tuned study by the contract, without a model: the record in plan.json, and a folder for each trial."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.seeded import Arm, make_seeded

INITIAL = 4.0  # nats per token before training
SEEDS = (101, 102)
Curves = Mapping[str, Mapping[float, float | None]]  # arm -> value -> loss on the first seed; None: it diverged


def bowl(center: float = 0.01, floor: float = 3.0, values: tuple[float, ...] = ()) -> dict[float, float | None]:
    """A parabola in the logarithm of the value, lowest at `center`."""
    from math import log

    values = values or tuple(0.01 * 2.0**power for power in range(-2, 3))
    return {value: floor + 0.1 * log(value / center) ** 2 for value in values}


def record(curves: Curves, chosen: Mapping[str, float | None], seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """What plan.json has under `tune`."""
    arms = {
        arm: {"values": sorted(curve), "trials": len(curve), "chosen": chosen.get(arm)} for arm, curve in curves.items()
    }
    trials = [_trial(arm, value, seed) for arm, curve in curves.items() for value in sorted(curve) for seed in seeds]
    return {
        "key": "train.learning_rate", "factor": 2.0, "points": 5, "max_trials": 9, "seeds": list(seeds),
        "metric": "final_loss", "lower": True, "stage": "verdict", "runs": [0, 0], "arms": arms, "trials": trials,
        "controls": [],
    }  # fmt: skip


def _trial(arm: str, value: float, seed: int) -> dict[str, Any]:
    own = hashlib.sha256(repr((arm, value, seed)).encode()).hexdigest()
    run = {"id": own, "label": f"{arm}+learning_rate={value:g}", "seed": seed, "folder": f"{arm}-s{seed}-{own[:8]}"}
    return {**run, "overrides": [], "baseline_id": None, "delta": {}, "arm": arm, "value": value}


def write_trials(folder: Path, tune: Mapping[str, Any], curves: Curves) -> None:
    """The folders of the trials, each with its result.json: the second seed is 0.02 worse than the first."""
    for run in tune["trials"]:
        loss = curves[run["arm"]][run["value"]]
        state = "finished" if loss is not None else "diverged"
        final = 99.0 if loss is None else loss + 0.02 * tune["seeds"].index(run["seed"])
        result = {key: run[key] for key in ("id", "label", "seed")}
        result |= {"schema": 1, "state": state, "outcome": "diverged" if loss is None else "ok", "seconds": 1.0}
        result |= {"error": None, "metrics": {"initial_loss": INITIAL, "final_loss": final}}
        (folder / run["folder"]).mkdir()
        (folder / run["folder"] / "result.json").write_text(json.dumps(result))


def tuned_study(
    root: Path, arms: tuple[Arm, ...], curves: Curves, chosen: Mapping[str, float | None], **plan: Any
) -> Path:
    """A study of these arms, tuned with these curves."""
    seeds = plan.pop("tuning_seeds", SEEDS)
    tune = record(curves, chosen, seeds)
    folder = make_seeded(root, arms, **{**plan, "tune": tune})
    write_trials(folder, tune, curves)
    return folder
