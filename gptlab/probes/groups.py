"""Which part of the model a parameter belongs to: the rows of every table by part and layer."""

from __future__ import annotations

_GPT_GROUPS = {
    "tok_emb": "token_embedding",
    "pos_emb": "position",
    "final_norm": "final_norm",
    "out_head": "head",
}
_BLOCK_GROUPS = {"att": "attention", "ff": "feed_forward", "norm": "norm", "shortcut": "shortcut", "canon": "canon"}


def group_of(name: str) -> tuple[int | None, str]:
    """(layer, part) of a parameter by its name; layer is None outside the blocks.

    `trf_blocks.3.att.W_query.weight` -> (3, "attention"); `tok_emb.weight` -> (None, "token_embedding").
    """
    first, *rest = name.split(".")
    if first == "trf_blocks":
        groups = (group for start, group in _BLOCK_GROUPS.items() if rest[1].startswith(start))
        return int(rest[0]), next(groups, rest[1])  # what a block of a plugin has beside these goes by its own name
    if first == "shortcuts":
        return int(rest[0]), "shortcut"
    if first == "layers":  # deep_mlp: the book looks at the weights without the biases
        return int(rest[0]), rest[-1]
    return None, _GPT_GROUPS.get(first, first)
