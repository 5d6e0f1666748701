"""A training step of gptlab beside its peers: one table, and the same as JSON, so that machines can be compared.

    python -m tests.benchmarks.race --json race.json
    python -m tests.benchmarks.race --shape small --precision fp32 --threads 1 --eager

Each cell (shape, precision, threads) has a process of its own, in which the contestants take turns and the best time of
each counts: a busy machine hurts all alike. A contestant that fails is named in its cell, and the race goes on. `share`
is the FLOP/s of gptlab's matrix products over those of a large square product, measured in the same process.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("transformers", "plain", "plain compiled")
YARDSTICK = "transformers fp32"  # beside another precision: what that precision wins, too
ROUNDS, SECONDS = (3, 30), 15.0  # at least and at most, and how long beyond the least
PATIENCE = 1800  # seconds for one cell


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Exit code 0 when every cell has a time of gptlab's, whatever it is."""
    from tests.benchmarks.steps import SHAPES

    parser = argparse.ArgumentParser(prog="race", description="gptlab's training step beside its peers")
    parser.add_argument("--shape", choices=list(SHAPES), action="append")
    parser.add_argument("--precision", choices=("fp32", "bf16"), action="append")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--eager", action="store_true", help="leave out what takes a compiler")
    parser.add_argument("--json", type=Path, help="write the table to this file as well")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.cell:
        print(json.dumps(run_cell(**json.loads(given.cell))))
        return 0
    cells = [
        in_process({"shape": shape, "precision": precision, "threads": threads, "eager": given.eager})
        for shape in given.shape or SHAPES
        for precision in given.precision or ("fp32", "bf16")
        for threads in given.threads or (1, 2)
    ]
    document = {"schema": 1, **machine(), "cells": cells}
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(cells)))
    return 0 if all(cell["microseconds"].get("gptlab") for cell in cells) else 1


def in_process(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell, run in a process of its own; where that dies, the cell says so."""
    command = [sys.executable, "-m", "tests.benchmarks.race", "--cell", json.dumps(cell)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        last = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
        found = {**cell, "microseconds": {}, "errors": {"cell": " ".join(last)}}
    print(".", end="", file=sys.stderr, flush=True)
    return found


def run_cell(shape: str, precision: str, threads: int, eager: bool) -> dict[str, Any]:
    """Best microseconds of a step by contestant, what failed; `fp32_transformers`: those of transformers in fp32."""
    import torch

    from tests.benchmarks import steps

    torch.set_num_threads(threads)
    size = steps.SHAPES[shape]
    ids, config = steps.tokens(size), steps.config(size, precision)
    makers: dict[str, Callable[[], steps.Step]] = {
        "gptlab": lambda: steps.ours(config, ids),
        "transformers": lambda: steps.transformers(size, precision, ids),
        "plain": lambda: steps.plain(size, precision, ids),
    }
    if precision != "fp32":
        makers[YARDSTICK] = lambda: steps.transformers(size, "fp32", ids)
    if not eager and steps.can_compile():
        makers["plain compiled"] = lambda: steps.plain(size, precision, ids, compiled=True)
    best, errors = race(makers)
    peak, used = square_rate(precision), steps.flops(size)
    own, yardstick = best.get("gptlab"), best.pop(YARDSTICK, best.get("transformers"))
    others = [best[name] for name in PEERS if name in best]
    return {
        "shape": shape, "sizes": list(size), "precision": precision, "threads": threads,
        "microseconds": {name: round(1e6 * seconds, 1) for name, seconds in best.items()}, "errors": errors,
        "ratio": min(others) / own if own and others else None,  # of the fastest peer's time: above 1, gptlab is faster
        "fp32_transformers": round(1e6 * yardstick, 1) if yardstick else None,
        "peak_flops": peak, "share_of_peak": used / own / peak if own else None,
    }  # fmt: skip


def race(makers: Mapping[str, Callable[[], Callable[[], Any]]]) -> tuple[dict[str, float], dict[str, str]]:
    """(name -> best seconds, name -> what went wrong)."""
    steps: dict[str, Callable[[], Any]] = {}
    errors: dict[str, str] = {}
    for name, make in makers.items():
        try:
            steps[name] = make()
            steps[name]()  # the first one warms up, or compiles
        except Exception as error:
            steps.pop(name, None)
            errors[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    best = dict.fromkeys(steps, math.inf)
    start, (fewest, most) = time.perf_counter(), ROUNDS
    for number in range(most):
        if number >= fewest and time.perf_counter() - start > SECONDS:
            break
        for name, step in steps.items():
            before = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - before)
    return best, errors


def square_rate(precision: str, side: int = 2048) -> float:
    """FLOP/s of a square product in this precision: the best of several."""
    import torch

    generator = torch.Generator().manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(side, side, generator=generator).to(dtype) for _ in range(2))
    best = math.inf
    for _ in range(8):
        start = time.perf_counter()
        a @ b.T
        best = min(best, time.perf_counter() - start)
    return 2 * side**3 / best


def machine() -> dict[str, Any]:
    import os

    import torch

    from gptlab.running.provenance import processor

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"processor": processor(), "cores": os.cpu_count(), "load": load, "torch": torch.__version__}


def table(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The cells as lines: microseconds of a step, the fastest peer's over gptlab's, and the share of the peak."""
    lines = [f"{'shape':<11} {'':4} {'threads':>7} " + "".join(f"{name:>15}" for name in ("gptlab", *PEERS))
             + f"{'ratio':>8}{'of peak':>9}"]  # fmt: skip
    for cell in cells:
        times = cell["microseconds"]
        shown = [f"{times[name]:>15,.0f}" if name in times else f"{'-':>15}" for name in ("gptlab", *PEERS)]
        ratio, share = cell.get("ratio"), cell.get("share_of_peak")
        lines.append(
            f"{cell['shape']:<11} {cell['precision']:4} {cell['threads']:>7} {''.join(shown)}"
            + (f"{ratio:>7.2f}x" if ratio else f"{'-':>8}") + (f"{share:>9.0%}" if share else f"{'-':>9}")
        )  # fmt: skip
        lines += [f"    {name}: {said}" for name, said in cell["errors"].items()]
    ratios = sorted(cell["ratio"] for cell in cells if cell.get("ratio"))
    if ratios:
        lines.append(f"ratio: lowest {ratios[0]:.2f}x, median {ratios[len(ratios) // 2]:.2f}x of {len(ratios)} cells")
    return lines


if __name__ == "__main__":
    sys.exit(main())
