"""A training step against Hugging Face's GPT2LMHeadModel: same process and shapes, its own loss, torch's default AdamW.

Both are GPT-2 as released (tied, biases everywhere) without dropout. The two take turns, and the best of each counts:
a busy machine hurts both alike.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from gptlab import compose
from gptlab.config import Config
from gptlab.kernels import resolved
from gptlab.probes import Subject
from gptlab.training import train
from gptlab.training.conditions import precision
from gptlab.training.history import read
from gptlab.training.kernels.loss import cross_entropy
from gptlab.training.kernels.measure import choose, measure
from gptlab.training.optimizer import Updates

pytestmark = pytest.mark.benchmark
ROOT = Path(__file__).resolve().parents[2]
HAS_BF16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()

Shape = tuple[int, int, int, int, int, int]  # batch, context, vocabulary, width, layers, heads
GPT2_124M: Shape = (2, 256, 50257, 768, 12, 12)
CHARACTERS: Shape = (16, 256, 65, 384, 6, 6)
LONG: Shape = (8, 1024, 50257, 256, 2, 4)


def config(shape: Shape, precision: str = "fp32") -> Config:
    batch, context, vocabulary, width, layers, heads = shape
    return compose(
        [
            "model=gpt2_124m", "ablation=as_released", "data=random_tokens", "probes=counting", "model.drop_rate=0.0",
            f"model.vocab_size={vocabulary}", f"model.context_length={context}", f"model.emb_dim={width}",
            f"model.n_layers={layers}", f"model.n_heads={heads}", f"train.batch_size={batch}", "train.budget=10",
            f"train.precision={precision}",
        ]
    )  # fmt: skip


def tokens(shape: Shape) -> torch.Tensor:
    return torch.randint(shape[2], (shape[0], shape[1] + 1), generator=torch.Generator().manual_seed(0))


def ours(settled: Config, ids: torch.Tensor) -> Callable[[], float]:
    """A step as gptlab.training.loop makes it, with the kernels that a study would choose here."""
    kernels = resolved(settled, choose(measure(settled)))
    model = Subject(settled).model.train()
    updates = Updates(model, settled.train, flat=kernels["optimizer"] == "flat")
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step() -> float:
        with precision(settled.train, torch.device("cpu"), kernels):
            loss = cross_entropy(
                model.features(inputs), model.out_head, targets,
                chunked=kernels["loss"] == "chunked", onednn=kernels["linear"] == "onednn",
            )  # fmt: skip
        loss.backward()
        updates.clip()
        updates.step()
        return loss.item()

    return step


def theirs(shape: Shape, ids: torch.Tensor) -> Callable[[], float]:
    from transformers import GPT2Config, GPT2LMHeadModel

    _, context, vocabulary, width, layers, heads = shape
    with torch.random.fork_rng():
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
            )
        ).train()  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = ids[:, :-1].contiguous()

    def step() -> float:
        loss = model(input_ids=inputs, labels=inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def race(shape: Shape, name: str, rounds: int = 5) -> tuple[float, float]:
    """Best seconds of a step: (theirs in fp32, ours)."""
    ids = tokens(shape)
    steps = theirs(shape, ids), ours(config(shape, name), ids)
    best = [float("inf"), float("inf")]
    for _ in range(rounds + 1):  # the first round warms up
        for side, step in enumerate(steps):
            start = time.perf_counter()
            step()
            best[side] = min(best[side], time.perf_counter() - start)
    speeds = [shape[0] * shape[1] / seconds for seconds in best]
    print(
        f"\n{shape} {name}: transformers fp32 {speeds[0]:,.0f} tokens/s, gptlab {speeds[1]:,.0f}: "
        f"{speeds[1] / speeds[0]:.2f}x ({torch.get_num_threads()} threads)"
    )
    return best[0], best[1]


def bf16_rate() -> float:
    """FLOP/s of a square bf16 product."""
    a, b = (torch.randn(2048, 2048).bfloat16() for _ in range(2))
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        a @ b.T
        best = min(best, time.perf_counter() - start)
    return 2 * 2048**3 / best


def test_gpt2_124m_in_fp32() -> None:
    hf, own = race(GPT2_124M, "fp32")
    assert hf / own >= 1.2


@pytest.mark.skipif(not HAS_BF16, reason="this processor has no bf16")
def test_gpt2_124m_in_bf16() -> None:
    hf, own = race(GPT2_124M, "bf16")
    assert hf / own >= 2.5


@pytest.mark.skipif(not HAS_BF16, reason="this processor has no bf16")
def test_ten_million_weights_over_characters_in_bf16() -> None:
    with torch.random.fork_rng():
        rate = bf16_rate()
    hf, own = race(CHARACTERS, "bf16")
    batch, context, _, width, layers, _ = CHARACTERS
    weights = 12 * layers * width**2 + CHARACTERS[2] * width
    used = 6 * weights * batch * context + 12 * layers * width * context * batch * context
    print(f"{used / own / 1e9:,.0f} GFLOP/s, {used / own / rate:.0%} of a bf16 product's {rate / 1e9:,.0f}")
    assert hf / own >= 2.6
    assert used / own / rate >= 0.55


def test_memory_with_long_contexts_and_a_large_vocabulary() -> None:
    """Peak growth of the process over two steps, weights and optimizer included; each side in a process of its own."""
    # VmHWM, not ru_maxrss: that begins with the peak of the process that started this one.
    script = (
        "import pathlib, re, sys; sys.path.insert(0, {root!r}); from tests.benchmarks import test_training_speed as t; "
        "import transformers.models.gpt2.modeling_gpt2; ids = t.tokens(t.LONG); "
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+) kB', pathlib.Path('/proc/self/status').read_text())[1]); "
        "before = peak(); step = {step}; step(); step(); print(peak() - before)"
    )
    growth = []
    for step in ("t.theirs(t.LONG, ids)", "t.ours(t.config(t.LONG), ids)"):
        command = [sys.executable, "-c", script.format(root=str(ROOT), step=step)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        growth.append(int(done.stdout.split()[-1]) / 2**10)
    print(f"\npeak growth: transformers {growth[0]:,.0f} MiB, gptlab {growth[1]:,.0f}: {growth[1] / growth[0]:.0%}")
    assert growth[1] <= 0.3 * growth[0]
    hf, own = race(LONG, "fp32", rounds=2)
    assert own <= hf


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
