"""Every ablation and every preset: what is remembered gives the logits of one pass, at each step, and the same text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import gptlab
from gptlab.config import Config, GenerationProbe
from gptlab.generating.continuing import continued
from gptlab.model import GPT, build
from tests.support.refusals import refused

CONF = Path(__file__).parents[2] / "conf"
ABLATIONS = sorted(path.stem for path in (CONF / "ablation").glob("*.yaml"))
PRESETS = sorted({path.stem for path in (CONF / "model").glob("*.yaml")} - {"deep_mlp"})


def small(config: Config) -> GPT:
    """The same choices at a size for which a step is nothing."""
    layers = config.model.n_layers if config.model.layers else 2
    model = replace(
        config.model, vocab_size=61, context_length=16, emb_dim=32, n_heads=4, n_layers=layers,
        head_dim=40,  # of which any preset's turning part is whole pairs
        n_kv_heads=config.model.n_kv_heads and min(config.model.n_kv_heads, 2), hidden_dim=None,
    )  # fmt: skip
    made = build(replace(config, model=model))
    assert isinstance(made, GPT)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("words", [*(f"ablation={name}" for name in ABLATIONS), *(f"model={name}" for name in PRESETS)])
@torch.no_grad()
def test_cached_is_uncached(words: str) -> None:
    start = [] if words.startswith("model=") else ["model=tiny"]
    config = gptlab.compose([*start, words, "probes=counting"])
    if not start and config.model.layers:
        config = gptlab.compose([words, "model.n_layers=8", "probes=counting"])  # as few as fill a pattern
    model = small(config)
    ids = torch.randint(61, (2, 16), generator=torch.Generator().manual_seed(3))
    whole = model(ids)
    if words == "ablation=no_mask":
        with refused("decoding-without-mask"):
            model.start_decoding(2)
        return
    decoding = model.start_decoding(2)
    for step in range(16):
        output = model.run(ids[:, step : step + 1], decoding)
        assert output.decoding is not None
        decoding = output.decoding
        found = model.out_head(output.features)[:, 0]
        spread = whole[:, step].max() - whole[:, step].min()
        assert (found - whole[:, step]).abs().max() <= 1e-5 * spread
    how = GenerationProbe("", 16)
    texts = [
        [row.new for row in continued(model, [[1, 2], [5]], how, context_length=16, seed=0, cache=cache)[0]]
        for cache in (True, False)
    ]
    assert texts[0] == texts[1]
    assert torch.equal(model(ids), whole)
