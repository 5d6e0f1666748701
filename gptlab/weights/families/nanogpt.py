"""nanoGPT's checkpoints: GPT-2 with plain linear layers, the exact GELU, and biases everywhere or nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptlab.weights.families.named import Read
from gptlab.weights.found import Held
from gptlab.weights.pieces import BOTH, NORM, Piece, Stacked, pairs
from gptlab.weights.settings import Settings


def read_checkpoint(arguments: Mapping[str, Any], held: Mapping[str, Held], where: str) -> Read:
    """What `model_args` says, and how the tensors beside it are called here."""
    given = Settings(arguments, f"{where}: model_args")
    bias = given.flag("bias", True)
    model: dict[str, Any] = {
        "vocab_size": given.whole("vocab_size", 50304), "context_length": given.whole("block_size", 1024),
        "emb_dim": given.whole("n_embd", 768), "n_layers": given.whole("n_layer", 12),
        "n_heads": given.whole("n_head", 12), "drop_rate": given.number("dropout", 0.0),
        "activation": "gelu", "qkv_bias": bias, "attention_bias": bias, "feed_forward_bias": bias,
        "tie_weights": True, "init": "gpt2", "options": {} if bias else {"norm": {"bias": False}},
    }  # fmt: skip
    dropped = {name: "a mask" for name in held if name.endswith(".attn.bias")}
    if "lm_head.weight" in held:
        dropped["lm_head.weight"] = "the table of tokens again"
    notes = [f"model_args says {text}, which is not read" for text in given.unread()]
    return Read("nanogpt", model, _pieces(model["n_layers"]), dropped, notes)


def _pieces(n_layers: int) -> list[Piece]:
    root = "transformer"
    found = [
        Piece(f"{root}.wte.weight", ("tok_emb.weight",)),
        Piece(f"{root}.wpe.weight", ("pos_emb.weight",)),
        *pairs(Piece, f"{root}.ln_f", "final_norm", NORM),
    ]
    for i in range(n_layers):
        there, here = f"{root}.h.{i}", f"trf_blocks.{i}"
        for kind in ("weight", "bias"):
            qkv = tuple(f"{here}.att.W_{name}.{kind}" for name in ("query", "key", "value"))
            found.append(Stacked(f"{there}.attn.c_attn.{kind}", qkv))
        found += pairs(Piece, f"{there}.attn.c_proj", f"{here}.att.out_proj", BOTH)
        found += pairs(Piece, f"{there}.mlp.c_fc", f"{here}.ff.layers.0", BOTH)
        found += pairs(Piece, f"{there}.mlp.c_proj", f"{here}.ff.layers.2", BOTH)
        found += pairs(Piece, f"{there}.ln_1", f"{here}.norm1", NORM)
        found += pairs(Piece, f"{there}.ln_2", f"{here}.norm2", NORM)
    return found
