"""A study of ten thousand runs, as small on disk as a run can be: what the report's budgets are measured on."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

COUNTS = ("parameters", "parameters_untied", "parameters_tied", "flops_forward_per_token", "flops_training_per_token")
MEASURED = ("loss", "initial_loss", "final_loss", "final_excess", "grad_norm", "grad_mean_abs", "train_seconds")
MORE = ("steps", "tokens", "mib", "ln_vocab_size", "parameters/attention", "parameters/feed_forward", "parameters/norm")


def make_large(folder: Path, variants: int, seeds: int) -> Path:
    """Write `variants` times `seeds` runs with twenty metrics each; return the study's folder."""
    folder.mkdir(parents=True)
    noise = random.Random(0)
    runs: list[dict[str, Any]] = []
    for variant in range(variants):
        label = f"width={64 + variant % 40},depth={2 + variant // 40}" if variant else "baseline"
        counts = dict.fromkeys((*COUNTS, *MORE), 10**6 + 64 * variant)
        for seed in range(seeds):
            id_ = _id(variant, seed)
            name = f"v{variant}-s{seed}-{id_[:8]}"
            runs.append(
                {
                    "id": id_, "label": label, "seed": seed, "folder": name, "baseline_id": _id(0, seed),
                    "overrides": [f"model.emb_dim={64 + variant % 40}", f"model.n_layers={2 + variant // 40}"],
                    "delta": {"model.emb_dim": [64, 65 + variant]} if variant else {},
                }
            )  # fmt: skip
            measured = {name: 3 + noise.gauss(0, 0.1) for name in MEASURED}
            result = {"schema": 1, "id": id_, "label": label, "seed": seed, "state": "finished", "error": None}
            result |= {"seconds": 1.25, "notes": [], "warnings": [], "metrics": counts | measured}
            (folder / name).mkdir()
            (folder / name / "result.json").write_text(json.dumps(result), encoding="utf-8")
    plan = {"schema": 1, "study": "large", "question": "Which of many?", "command": ["gptlab", "experiment=large"]}
    plan |= {"baseline": "baseline", "primary_metric": "final_loss", "runs": runs}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    return folder


def _id(variant: int, seed: int) -> str:
    return hashlib.sha256(f"{variant}/{seed}".encode()).hexdigest()
