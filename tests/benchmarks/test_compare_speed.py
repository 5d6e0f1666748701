from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from gptlab.results import compare, export, statistics
from tests.results.seeded import Arm, make_seeded


@pytest.mark.benchmark
def test_ten_thousand_runs_compare_in_two_seconds(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arms = [
        Arm(
            f"v{number}",
            {seed: float(value) for seed, value in enumerate(random.normal(3, 0.1, size=10))},
            {"n_layers": number},
            {f"parameters/{part}": 1000 for part in range(7)},
        )
        for number in range(1000)
    ]
    folder = make_seeded(tmp_path, arms, baseline="v0")
    statistics.detectable(3)  # scipy and its table are loaded
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
    assert len(rows) == 2000
