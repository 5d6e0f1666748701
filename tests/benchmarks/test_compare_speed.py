from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from gptlab.comparing import power
from gptlab.comparing.assemble import compare
from gptlab.show.exports import export
from tests.support.seeded import Arm, make_seeded


@pytest.mark.benchmark
def test_ten_thousand_runs_compare_in_two_seconds(tmp_path: Path) -> None:
    layers = [
        f"0,{layer},{part},{metric},0.0123456789012345\n"
        for layer in range(12)
        for part in ("all", "attention", "feed_forward", "norm")
        for metric in ("grad_mean_abs", "grad_norm")
    ]
    files = {"layers.csv": "step,layer,part,metric,value\n" + "".join(layers)}
    files["generation.json"] = json.dumps({"prompt_ids": list(range(50)), "margins": [0.123456789] * 50})
    random = np.random.default_rng(0)
    arms = [
        Arm(
            f"v{number}",
            {seed: float(value) for seed, value in enumerate(random.normal(3, 0.1, size=10))},
            {"n_layers": number},
            {f"parameters/{part}": 1000 for part in range(7)},
            curve=range(0, 200, 2),
            history_bytes=True,
            files=files,
        )
        for number in range(1000)
    ]
    folder = make_seeded(tmp_path, arms, baseline="v0")
    power.detectable(3)  # scipy and its table are loaded
    times = []
    for _ in range(3):
        start = time.perf_counter()
        comparison = compare([folder])
        times.append(time.perf_counter() - start)
    print(f"\ncompare 10,000 runs: {min(times):.2f} s")
    assert len(comparison.rows) == 1000
    assert min(times) < 2
    start = time.perf_counter()
    rows = json.loads(export(comparison, "json"))["rows"]
    print(f"export to JSON: {time.perf_counter() - start:.2f} s")
    assert len(rows) == 1000
