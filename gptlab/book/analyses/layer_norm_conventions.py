"""Study `layer_norm_conventions`: does it matter whether a LayerNorm divides by n or by n - 1?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gptlab.analyses import Findings
from gptlab.book.figures.layer_norm import UnbiasedLayerNorm, demo_rows, figure, normalised, ratio
from gptlab.config import Config
from gptlab.model import build
from gptlab.model.norms import LayerNorm
from gptlab.registry import register


@register("analysis", "layer_norm_conventions")
def layer_norm_conventions(variants: Sequence[Config]) -> Findings:
    """The book's row under both conventions, and whole models of growing width with one swapped for the other."""
    row = demo_rows()[:1]
    (biased, unbiased), (with_eps, _) = normalised(row, eps=0.0), normalised(row)
    table = [_swapped(config) for config in variants]
    return Findings(
        [
            ("mean", row.mean().item(), "the book's row: mean"),
            ("variance_n", row.var(unbiased=False).item(), "variance over n"),
            ("variance_n_minus_1", row.var().item(), "variance over n - 1 (figure 4.5 says 0.39, which is neither)"),
            ("first_n", biased[0, 0].item(), "first feature, normalised over n, eps 0"),
            ("first_n_minus_1", unbiased[0, 0].item(), "first feature, normalised over n - 1, as the book prints it"),
            ("first_module", with_eps[0, 0].item(), "the module's output, eps 1e-5"),
            ("variance_module", with_eps.var(unbiased=False).item(), "variance of the module's output: var/(var+eps)"),
            ("ratio_6", ratio(6), "output over n relative to output over n - 1: sqrt(n/(n-1)) at 6 features"),
            ("ratio_768", ratio(768), "the same at 768 features"),
            *((f"logit_change_{line['emb_dim']}", line["logit_change"],
               f"model with {line['emb_dim']} features: RMS change of the logits over their RMS when swapped")
              for line in table),
        ],
        {"models": table},
        {"layer_norm": figure},
    )  # fmt: skip


@torch.no_grad()
def _swapped(config: Config) -> dict[str, Any]:
    model = build(config).double()
    ids = torch.arange(16)[None] % config.model.vocab_size
    before = model(ids)
    for path, module in list(model.named_modules()):
        if isinstance(module, LayerNorm):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, UnbiasedLayerNorm(module))
    after = model(ids)
    change = (after - before).square().mean().sqrt() / before.square().mean().sqrt()
    return {
        "emb_dim": config.model.emb_dim, "logit_change": change.item(), "ratio": ratio(config.model.emb_dim),
        "same_argmax": (after.argmax(-1) == before.argmax(-1)).double().mean().item(),
    }  # fmt: skip
