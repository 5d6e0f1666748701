"""The state_dict of chapter 4's GPTModel: gptlab's own names, with a mask in each attention layer.

The sizes follow from the shapes, but for the number of heads, which leaves no trace in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gptlab.errors import GptlabError
from gptlab.weights.families.named import Read
from gptlab.weights.found import Held
from gptlab.weights.pieces import Piece

HEAD_DIM = 64  # of all four sizes of GPT-2
_MASK = re.compile(r"trf_blocks\.\d+\.att\.mask")
_BLOCK = re.compile(r"trf_blocks\.(\d+)\.")


def read_state(held: Mapping[str, Held], where: str) -> Read:
    """What these names and shapes say. GptlabError where one that is needed is missing."""
    lost = [
        name for name in ("pos_emb.weight", "out_head.weight", "trf_blocks.0.ff.layers.0.weight") if name not in held
    ]
    if lost or any(len(held[name].shape) != 2 for name in ("tok_emb.weight", "pos_emb.weight")):
        raise GptlabError(
            f"{where}: is no whole model of the book: {', '.join(lost) or 'a table of tokens'} is not there.",
            code="weights-book-incomplete",
            file=where,
            names=lost,
        )
    vocab_size, emb_dim = held["tok_emb.weight"].shape
    whole = emb_dim % HEAD_DIM == 0
    model: dict[str, Any] = {
        "vocab_size": vocab_size, "emb_dim": emb_dim, "context_length": held["pos_emb.weight"].shape[0],
        "n_layers": 1 + max(int(found[1]) for name in held if (found := _BLOCK.match(name))),
        "n_heads": emb_dim // HEAD_DIM if whole else None,
        "hidden_dim": held["trf_blocks.0.ff.layers.0.weight"].shape[0],
        "qkv_bias": "trf_blocks.0.att.W_query.bias" in held,
    }  # fmt: skip
    said = "the file does not say how many heads there are: "
    said += f"taken as {model['n_heads']}, of {HEAD_DIM} features each, as in GPT-2" if whole else "set model.n_heads"
    return Read(
        "book",
        model,
        [Piece(name, (name,)) for name in held if not _MASK.fullmatch(name)],
        {name: "a mask" for name in held if _MASK.fullmatch(name)},
        [said],
    )
