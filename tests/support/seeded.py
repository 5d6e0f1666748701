"""Studies with chosen numbers for each variant and seed: what comparisons are tested on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODEL = {"n_layers": 2, "activation": "gelu_tanh", "norm": "layernorm", "expansion": 4.0}
MANIFEST: dict[str, Any] = {
    "python": "3.11.7",
    "packages": {"gptlab": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6"},
    "host": "one",
    "threads": 2,
    "git": {"commit": "a" * 40, "dirty": False, "diff_sha256": None},
    "data_sha256": "d" * 64,
}


@dataclass
class Arm:
    """One variant: seed -> value of the primary metric (None: not finite), and whatever else shall be different."""

    label: str
    values: Mapping[int, float | None]
    model: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[int, str] = field(default_factory=dict)
    outcome: str = "ok"
    train: Mapping[str, Any] = field(default_factory=dict)
    curve: Sequence[int] = ()  # steps at which there is a validation loss
    curve_ends_in_value: bool = False  # the last validation loss is the run's own number
    history_bytes: bool = False  # whether the result says how long the history is; older ones do not
    scored: Mapping[str, Any] = field(default_factory=dict)  # on which validation rows
    files: Mapping[str, str] = field(default_factory=dict)  # more that each run writes


def make_seeded(
    root: Path,
    arms: Sequence[Arm],
    *,
    metric: str = "final_loss",
    name: str = "seeded",
    baseline: str = "none",
    stamp: str = "2026-01-02_03-04-05-000006",
    **more: Any,
) -> Path:
    """Write the study and return its folder."""
    folder = root / name / stamp
    folder.mkdir(parents=True)
    ids = {
        (arm.label, seed): _id(sorted(arm.model.items()), sorted(arm.train.items()), seed)
        for arm in arms
        for seed in arm.values
    }
    base = next((arm for arm in arms if arm.label == baseline), None)
    rows = []
    for arm in arms:
        changed = {f"model.{k}": [(base.model if base else {}).get(k, MODEL.get(k)), v] for k, v in arm.model.items()}
        changed |= {f"train.{k}": [(base.train if base else {}).get(k), v] for k, v in arm.train.items()}
        for seed, value in arm.values.items():
            run_folder = f"{hashlib.sha256(arm.label.encode()).hexdigest()[:6]}-s{seed}"
            rows.append(
                {
                    "id": ids[arm.label, seed],
                    "label": arm.label,
                    "seed": seed,
                    "folder": run_folder,
                    "overrides": [],
                    "baseline_id": ids.get((baseline, seed)),
                    "delta": {} if arm is base else changed,
                }
            )
            if arm.states.get(seed) != "planned":
                _write(folder / run_folder, arm, seed, value, metric, ids[arm.label, seed])
    plan = {"schema": 1, "study": name, "question": "Which one?", "command": ["gptlab"], "baseline": baseline}
    plan |= {"primary_metric": metric, "runs": rows, **more}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    return folder


def _id(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _loss_at(arm: Arm, step: int, value: float) -> float:
    return value if arm.curve_ends_in_value and step == max(arm.curve) else value + 100 / (step + 1)


def _write(folder: Path, arm: Arm, seed: int, value: float | None, metric: str, id_: str) -> None:
    folder.mkdir()
    model = "".join(f"  {key}: {value}\n" for key, value in {**MODEL, **arm.model}.items())
    train = "".join(f"  {key}: {value}\n" for key, value in arm.train.items())
    text = f"model:\n{model}" + (f"train:\n{train}" if train else "")
    text += f"experiment:\n  name: x\n  primary_metric: {metric}\nseed: {seed}\nplugins: []\nlabel: '{seed}'\n"
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "start": str(seed), **arm.manifest}))
    if arm.curve:
        lines = [
            {"step": step, "tokens": step * 64, "flops": step * 1e6, "seconds": step / 10}
            | {"metrics": {"validation_loss": _loss_at(arm, step, value or 0), "train_loss": value}}
            for step in arm.curve
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, content in arm.files.items():
        (folder / name).write_text(content)
    state = arm.states.get(seed, "finished")
    numbers = {"parameters": 1000, "flops_forward_per_token": 2000, "flops_training_per_token": 6000}
    result: dict[str, Any] = {"schema": 1, "id": id_, "label": arm.label, "seed": seed, "state": state}
    result |= {"error": None if state in ("finished", "diverged") else "ValueError: no", "seconds": 1.0}
    result |= {
        "scored": dict(arm.scored),
        "outcome": arm.outcome,
        "metrics": {**numbers, metric: value, **arm.metrics} if state in ("finished", "diverged") else {},
    }
    if state == "crashed":
        return
    if arm.history_bytes:
        result["history_bytes"] = (folder / "metrics.jsonl").stat().st_size
    result["artifacts"] = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
