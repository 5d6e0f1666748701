"""Study `expansion_parity`: at which expansion factor a block's feed-forward layer is as large as its attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gptlab.analyses import Findings
from gptlab.book.figures.expansion_parity import figure, parity, sizes
from gptlab.config import Config
from gptlab.registry import register


@register("analysis", "expansion_parity")
def expansion_parity(variants: Sequence[Config]) -> Findings:
    """Counts of attention and feed-forward for every variant, and the expansion at which they would be equal."""
    model = variants[0].model
    plain, biased = replace(model, qkv_bias=False), replace(model, qkv_bias=True)
    table = []
    for config in variants:
        attention, feed_forward = sizes(config.model)
        table.append(
            {"expansion": config.model.expansion, "qkv_bias": config.model.qkv_bias, "attention": attention,
             "feed_forward": feed_forward, "difference": feed_forward - attention}
        )  # fmt: skip
    attention, at_two = sizes(plain, 2 * model.emb_dim)
    bias = 2 * model.emb_dim + model.emb_dim
    return Findings(
        [
            ("parity", parity(plain), "expansion with equal counts: 4d/(2d+1)"),
            ("parity_qkv_bias", parity(biased), "the same with biases on queries, keys and values: (4d+3)/(2d+1)"),
            ("difference_at_2", at_two - attention, "feed-forward minus attention at expansion 2"),
            ("bias_at_2", bias, "of which: the feed-forward layer's two bias vectors"),
            ("weights_at_2", at_two - attention - bias, "the rest: attention's own output bias, negative"),
            ("ratio_at_4", sizes(plain, 4 * model.emb_dim)[1] / attention, "feed-forward over attention at 4"),
        ],
        {"counts": table},
        {"expansion_parity": figure},
    )
