"""GGUF, llama.cpp's format: metadata and tensors in one file, of many types, quantised ones too.

Read with the package `gguf` (`pip install 'gptlab[gguf]'`), which turns each type into float32. Of its architectures,
llama is known here: its rotation pairs neighbours, so the rows of queries and keys change places (`Interleaved`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.errors import GptlabError
from gptlab.weights.found import Found, Held
from gptlab.weights.pieces import Interleaved, Piece

if TYPE_CHECKING:
    from torch import Tensor

MAGIC = b"GGUF"
FORMAT = "gguf"
_NAMES = {
    "attn_q": "att.W_query", "attn_k": "att.W_key", "attn_v": "att.W_value", "attn_output": "att.out_proj",
    "ffn_gate": "ff.gate", "ffn_up": "ff.value", "ffn_down": "ff.out",
}  # fmt: skip
_DIGITS = {"gpt-2": False, "smollm": True}  # how text is cut before it is merged: whether each digit stands alone


def open_file(path: Path) -> Found:
    """What the file holds. GptlabError for a damaged file, another architecture, or a key without words here."""
    reader = _reader(path)
    said = _said(path, reader)
    architecture = said.get("general.architecture")
    if architecture != "llama":
        raise GptlabError(
            f"{path}: general.architecture={architecture}: has no counterpart here; what has: llama.",
            code="gguf-architecture",
            file=path,
            value=architecture,
        )
    held = {t.name: Held(tuple(map(int, reversed(t.shape))), t.tensor_type.name) for t in reader.tensors}
    model = _model(path, said, held)
    return Found(
        path=path,
        format=FORMAT,
        family="llama",
        files=(path,),
        model=model,
        held=held,
        pieces=tuple(_pieces(model)),
        read=partial(_read, path),
        notes=tuple(f"{key}={value} is not read" for key, value in said.items() if _is_unread(key)),
        tokenizer=path if said.get("tokenizer.ggml.model") == "gpt2" else None,
    )


# Keys of the model that are read, or that say again what the shapes of the tensors do.
_READ = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size", "expert_count",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count", "rope.scaling.type",
}  # fmt: skip


def _model(path: Path, said: Mapping[str, Any], held: Mapping[str, Held]) -> dict[str, Any]:
    def number(key: str, kind: type, default: Any = None) -> Any:
        value = said.get(f"llama.{key}", default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise GptlabError(
                f"{path}: llama.{key}={value}: must be a number above 0.", code="gguf-value", file=path, key=key
            )
        return kind(value)

    heads, width = number("attention.head_count", int), number("embedding_length", int)
    head_dim = number("attention.key_length", int, width // heads)
    for key, allowed in (("rope.scaling.type", "none"), ("rope.dimension_count", head_dim), ("expert_count", 0)):
        if (value := said.get(f"llama.{key}", allowed)) != allowed:
            raise GptlabError(
                f"{path}: llama.{key}={value}: has no counterpart here; what has: {allowed}.",
                code="gguf-key",
                file=path,
                key=key,
                value=value,
            )
    table = held.get("token_embd.weight", Held((0, 0), ""))
    return {
        "vocab_size": table.shape[0], "context_length": number("context_length", int), "emb_dim": width,
        "n_layers": number("block_count", int), "n_heads": heads,
        "n_kv_heads": number("attention.head_count_kv", int, heads), "head_dim": head_dim,
        "hidden_dim": number("feed_forward_length", int), "drop_rate": 0.0, "norm": "rmsnorm",
        "feed_forward": "swiglu", "position": "rope", "attention_bias": False, "feed_forward_bias": False,
        "tie_weights": "output.weight" not in held, "init": "gpt2",
        "options": {
            "norm": {"eps": _short(number("attention.layer_norm_rms_epsilon", float))},
            "position": {"base": number("rope.freq_base", float, 10_000.0)},
        },
    }  # fmt: skip


def _is_unread(key: str) -> bool:
    return key.startswith("llama.") and key.removeprefix("llama.") not in _READ


def _short(value: float) -> float:
    """A float32 of the file as the number that was meant: 1e-05, not 9.999999747378752e-06."""
    return float(f"{value:.7g}")


def _pieces(model: Mapping[str, Any]) -> list[Piece]:
    found = [
        Piece("token_embd.weight", ("tok_emb.weight",)),
        Piece("output.weight", ("out_head.weight",)),
        Piece("output_norm.weight", ("final_norm.scale",)),
    ]
    turned = {"attn_q": model["n_heads"], "attn_k": model["n_kv_heads"]}
    for i in range(model["n_layers"]):
        there, here = f"blk.{i}", f"trf_blocks.{i}"
        for theirs, ours in _NAMES.items():
            names = f"{there}.{theirs}.weight", (f"{here}.{ours}.weight",)
            found.append(Interleaved(*names, turned[theirs]) if theirs in turned else Piece(*names))
        norms = (("attn_norm", "norm1"), ("ffn_norm", "norm2"))
        found += [Piece(f"{there}.{theirs}.weight", (f"{here}.{ours}.scale",)) for theirs, ours in norms]
    return found


def _read(path: Path, names: Collection[str]) -> dict[str, Tensor]:
    import torch
    from gguf.quants import dequantize

    found: dict[str, Tensor] = {}
    for tensor in _reader(path).tensors:
        if tensor.name in names:
            try:
                values = dequantize(tensor.data, tensor.tensor_type)
            except NotImplementedError as error:
                raise GptlabError(
                    f"{path}: {tensor.name} is of type {tensor.tensor_type.name}, which the package gguf cannot read.",
                    code="gguf-type",
                    file=path,
                    name=tensor.name,
                    value=tensor.tensor_type.name,
                ) from error
            found[tensor.name] = torch.from_numpy(values.copy()).reshape(tuple(map(int, reversed(tensor.shape))))
    return found


def _reader(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise GptlabError(
            f"{path}: is GGUF, which the package gguf reads: pip install 'gptlab[gguf]'.",
            code="gguf-missing",
            file=path,
        ) from error
    try:
        return GGUFReader(path)
    except Exception as error:  # the library raises whatever the bytes lead to
        raise GptlabError(f"{path}: is damaged, or cut short.", code="gguf-damaged", file=path) from error


def _said(path: Path, reader: Any) -> dict[str, Any]:
    """The single values of the metadata, without the lists of a vocabulary."""
    try:
        return {name: field.contents() for name, field in reader.fields.items() if len(field.data) == 1}
    except Exception as error:
        raise GptlabError(f"{path}: its metadata cannot be read.", code="gguf-metadata", file=path) from error


def tokenizer(path: Path) -> Any:
    """The tokenizer in the metadata, as the package `tokenizers` has it. GptlabError for a kind that is not known."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    reader = _reader(path)
    kind = _said(path, reader).get("tokenizer.ggml.pre", "gpt-2")
    if kind not in _DIGITS:
        raise GptlabError(
            f"{path}: tokenizer.ggml.pre={kind}: has no counterpart here; what has: {', '.join(_DIGITS)}.",
            code="gguf-tokenizer",
            file=path,
            value=kind,
        )
    tokens, merges = (reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    found = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, pairs))
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole]) if _DIGITS[kind] else whole
    )
    found.decoder = decoders.ByteLevel()
    types = (
        reader.fields["tokenizer.ggml.token_type"].contents() if "tokenizer.ggml.token_type" in reader.fields else []
    )
    control = [AddedToken(tokens[at], special=True) for at, value in enumerate(types) if value == 3]
    found.add_special_tokens(control)
    return found
