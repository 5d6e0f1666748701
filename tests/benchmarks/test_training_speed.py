"""A training step beside Hugging Face's GPT2LMHeadModel in the same precision, in one process, taking turns.

`tests/benchmarks/race.py` prints all contestants at all shapes; here stand the bounds, each a ratio of the same run.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from gptlab import compose
from gptlab.probes import Subject
from gptlab.training import train
from gptlab.training.history import read
from tests.benchmarks.race import run_cell
from tests.benchmarks.steps import SHAPES

pytestmark = pytest.mark.benchmark
ROOT = Path(__file__).resolve().parents[2]
HAS_BF16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
# At least so many times as fast as transformers in fp32, and at least such a share of what a large product reaches.
AHEAD = {("124M", "fp32"): 1.2, ("124M", "bf16"): 2.5, ("characters", "bf16"): 2.6}
OF_PEAK = {("characters", "bf16"): 0.55}


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_beside_that_of_transformers(shape: str, precision: str) -> None:
    """Never slower in the same precision, and as far ahead of fp32 as is promised."""
    if precision == "bf16" and not HAS_BF16:
        pytest.skip("this processor has no bf16")
    cell = run_cell(shape, precision, torch.get_num_threads(), eager=True)
    print(f"\n{cell}")
    own, same = cell["microseconds"]["gptlab"], cell["microseconds"]["transformers"]
    assert own <= same
    assert cell["fp32_transformers"] >= AHEAD.get((shape, precision), 0.0) * own
    assert cell["share_of_peak"] >= OF_PEAK.get((shape, precision), 0.0)


def test_memory_with_long_contexts_and_a_large_vocabulary() -> None:
    """Peak growth of the process over two steps, weights and optimizer included; each side in a process of its own."""
    # VmHWM, not ru_maxrss: that begins with the peak of the process that started this one.
    script = (
        "import pathlib, re, sys; sys.path.insert(0, {root!r}); from tests.benchmarks import steps as t; "
        "import transformers.models.gpt2.modeling_gpt2; long = t.SHAPES['long']; ids = t.tokens(long); "
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+) kB', pathlib.Path('/proc/self/status').read_text())[1]); "
        "before = peak(); step = {step}; step(); step(); print(peak() - before)"
    )
    growth = []
    for step in ("t.transformers(long, 'fp32', ids)", "t.ours(t.config(long), ids)"):
        command = [sys.executable, "-c", script.format(root=str(ROOT), step=step)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        growth.append(int(done.stdout.split()[-1]) / 2**10)
    print(f"\npeak growth: transformers {growth[0]:,.0f} MiB, gptlab {growth[1]:,.0f}: {growth[1] / growth[0]:.0%}")
    assert growth[1] <= 0.3 * growth[0]


def test_steps_of_the_toy_on_one_core(tmp_path: Path) -> None:
    """1,856 weights, 16 sentences a step: the best 200 steps of a run, evaluations aside."""
    settled = compose(
        ["model=toy_lesson", "train=toy", "train.batch_size=16", "train.budget=4000",
         "train.log_every=200", "evaluation.every=4000", "train.kernels.optimizer=flat"]
    )  # fmt: skip
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train(Subject(settled), tmp_path)
    torch.set_num_threads(threads)
    clock = [line["seconds"] for line in read(tmp_path)]
    speed = 200 / min(later - earlier for earlier, later in pairwise(clock))
    print(f"\ntoy: {speed:,.0f} steps/s")
    assert speed >= 900
