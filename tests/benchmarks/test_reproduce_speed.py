"""`gptlab reproduce` against its bounds: all claims in 150 s and 6 GB, the counts in 5 s. Wants an idle machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark
ROOT = Path(__file__).parents[2]
MEASURED = """
import json, resource, sys, time
from gptlab.cli import main
start = time.perf_counter()
code = main(["reproduce", "--format", "csv", *sys.argv[1:]])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([code, time.perf_counter() - start, time.process_time(), peak]), file=sys.stderr)
"""


@pytest.mark.parametrize(("only", "seconds", "gib"), [((), 150, 6), (("--only", "counting"), 5, 1)])
def test_reproduce(only: tuple[str, ...], seconds: float, gib: float) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED, *only], cwd=ROOT, capture_output=True, text=True, check=True)
    code, wall, cpu, peak = json.loads(done.stderr.splitlines()[-1])
    print(f"reproduce {' '.join(only) or 'everything'}: {wall:.1f} s, {cpu:.1f} s of CPU, {peak:.2f} GiB")
    assert code == 0
    assert wall < seconds
    assert peak < gib
