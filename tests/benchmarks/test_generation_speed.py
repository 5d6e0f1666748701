"""One token after the other, GPT-2 124M, beside transformers with its cache: ms a token, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from gptlab.config import Config, GenerationProbe, ModelConfig
from gptlab.generating.continuing import continued, in_precision
from gptlab.model import build
from tests.benchmarks.test_speed import in_turn, show

pytestmark = pytest.mark.benchmark
PROMPT, TOKENS, TRIES = list(range(100, 116)), 48, 4
# At most so much of transformers' time, or so near to reading every weight once at the speed of a copy.
BOUND, NEAR = 0.6, 0.8


def copy_rate() -> float:
    """Bytes a second that a copy reads."""
    source = torch.ones(64 * 2**20)
    target = torch.empty_like(source)
    best = min(in_turn(5, copy=lambda: target.copy_(source))["copy"])
    return source.nbytes / best


def theirs(precision: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        model = GPT2LMHeadModel(GPT2Config()).eval()
    return model.to(torch.bfloat16) if precision == "bf16" else model


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("batch", [1, 16])
def test_a_token_beside_transformers(precision: str, batch: int) -> None:
    if precision == "bf16" and not torch.cpu._is_avx512_bf16_supported():
        pytest.skip("this processor does not multiply bf16")
    own = in_precision(build(Config(model=ModelConfig(tie_weights=True, qkv_bias=True))), precision)
    other = theirs(precision)
    ids = torch.tensor([PROMPT] * batch)
    prompts = [[*PROMPT[:-1], 200 + row] for row in range(batch)]

    def ours(tokens: int) -> Callable[[], object]:
        how = GenerationProbe("", tokens)
        return lambda: continued(own, prompts, how, context_length=1024, seed=0)

    def hugging(tokens: int) -> Callable[[], object]:
        options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}
        return lambda: other.generate(ids, attention_mask=torch.ones_like(ids), **options)

    began = time.perf_counter()
    times = in_turn(TRIES, ours=ours(TOKENS), ours_1=ours(1), theirs=hugging(TOKENS), theirs_1=hugging(1))
    each = {name: (min(times[name]) - min(times[f"{name}_1"])) / (TOKENS - 1) for name in ("ours", "theirs")}
    read = sum(p.nbytes for p in own.parameters()) - own.pos_emb.weight.nbytes  # type: ignore[union-attr]
    floor = read / copy_rate()
    show(
        f"a token, {precision}, batch {batch} ({time.perf_counter() - began:.0f} s)",
        ("gptlab", f"{1e3 * each['ours']:.1f} ms", f"first {1e3 * min(times['ours_1']):.0f} ms"),
        ("transformers", f"{1e3 * each['theirs']:.1f} ms", f"first {1e3 * min(times['theirs_1']):.0f} ms"),
        ("ratio", f"{each['ours'] / each['theirs']:.2f}"),
        ("reading the weights once", f"{1e3 * floor:.1f} ms", f"{floor / each['ours']:.0%} of ours"),
    )
    assert each["ours"] <= BOUND * each["theirs"] or floor >= NEAR * each["ours"]
