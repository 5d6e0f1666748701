"""What a data config may say, before anything is read. Free of torch, and quick."""

from __future__ import annotations

import math

from gptlab.config import DataConfig
from gptlab.errors import ConfigError

# source -> the keys that it reads besides source, tokenizer and prompt.
_READS: dict[str, tuple[str, ...]] = {
    "python_docs": (),
    "file": ("path",),
    "string": ("text",),
    "random_tokens": (),
    "vectors": ("inputs", "targets"),
}
_KEYS = tuple(key for keys in _READS.values() for key in keys)


def settle_tokenizer(data: DataConfig, vocab_size: int) -> str:
    """The name behind `auto`: the largest of gpt2, byte and char that the model's vocabulary can hold.

    `random_tokens` has no text and gets `ids`; `vectors` has no tokens, and `auto` stays.
    """
    if data.tokenizer != "auto" or data.source == "vectors":
        return data.tokenizer
    if data.source == "random_tokens":
        return "ids"
    if vocab_size >= 50257:
        return "gpt2"
    return "byte" if vocab_size >= 256 else "char"


def check_data(data: DataConfig, vocab_size: int) -> None:
    """ConfigError for a key that the source needs and lacks, for one that it would ignore, and for uneven vectors."""
    reads = _READS[data.source]
    for key in _KEYS:
        value = getattr(data, key)
        if key in reads and value is None:
            raise ConfigError(f"data.{key}: data.source={data.source} needs it.")
        if key not in reads and value is not None:
            readers = ", ".join(source for source, keys in _READS.items() if key in keys)
            raise ConfigError(
                f"data.{key}: would be ignored, because data.source={data.source} does not read it. "
                f"It belongs to data.source={readers}."
            )
    tokenizer = settle_tokenizer(data, vocab_size)
    if data.source == "random_tokens" and tokenizer != "ids":
        raise ConfigError(f"data.tokenizer={tokenizer}: data.source=random_tokens has no text. Allowed: auto, ids.")
    if data.source == "python_docs" and tokenizer == "ids":
        raise ConfigError("data.tokenizer=ids: data.source=python_docs is text. Allowed: auto, byte, char, gpt2.")
    if data.source == "vectors":
        _check_vectors(data)


def _check_vectors(data: DataConfig) -> None:
    for key in ("tokenizer", "prompt"):
        value = getattr(data, key)
        if value not in ("auto", ""):
            raise ConfigError(f"data.{key}={value}: would be ignored, because data.source=vectors has no tokens.")
    for key in ("inputs", "targets"):
        rows: list[list[float]] = getattr(data, key)
        widths = sorted({len(row) for row in rows})
        if len(widths) != 1 or widths[0] == 0:
            found = f"rows of {' and '.join(map(str, widths))} numbers" if widths else "no rows"
            raise ConfigError(f"data.{key}: {found}. Every row must have the same number of values, at least one.")
        if not all(math.isfinite(value) for row in rows for value in row):
            raise ConfigError(f"data.{key}: must be finite numbers.")
    if len(data.inputs or ()) != len(data.targets or ()):
        raise ConfigError(
            f"data.targets: {len(data.targets or ())} rows for {len(data.inputs or ())} rows of data.inputs. "
            "There must be one target for each input."
        )
