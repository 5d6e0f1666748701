"""What a data config may say, before anything is read. Free of torch, and quick."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from gptlab.config import DataConfig
from gptlab.data.kinds import KEYS, Kind, kind, kinds
from gptlab.errors import ConfigError, wrong_value
from gptlab.registry import TEXT_TOKENIZERS

_PRESETS = {"path": "text", "text": "string"}  # what to choose for a key that is given alone


def settle_data(data: DataConfig, vocab_size: int) -> DataConfig:
    """A copy in its one spelling: the tokenizer and the defaults of the kind written out, its options in their types.

    Options at their defaults are left out, so that equal data have equal identities.
    """
    chosen = kind(data.source)
    filled = {key: value for key, value in chosen.defaults.items() if getattr(data, key) is None}
    options = chosen.component.settled_options(data.options)
    return replace(data, tokenizer=settle_tokenizer(data, vocab_size), options=options, **filled)


def settle_tokenizer(data: DataConfig, vocab_size: int) -> str:
    """The name behind `auto`: the largest of gpt2, byte and char that the model's vocabulary can hold.

    Data that are no text have one tokenizer, and get it; `vectors` has no tokens, and `auto` stays.
    """
    allowed = kind(data.source).tokenizers
    if data.tokenizer != "auto" or not allowed:
        return data.tokenizer
    if not set(TEXT_TOKENIZERS) <= set(allowed):
        return allowed[0]
    if vocab_size >= 50257:
        return "gpt2"
    return "byte" if vocab_size >= 256 else "char"


def check_data(data: DataConfig, vocab_size: int) -> None:
    """ConfigError for a key that the source needs and lacks, for one that it would ignore, and for uneven vectors."""
    chosen = kind(data.source)
    for key in KEYS:
        _check_key(chosen, key, getattr(data, key))
    chosen.component.checked_options(data.options)
    tokenizer, allowed = settle_tokenizer(data, vocab_size), chosen.tokenizers
    if allowed and tokenizer not in allowed:
        raise wrong_value(
            "data.tokenizer",
            tokenizer,
            f"cannot read data.source={data.source}. Allowed: {', '.join(sorted({'auto', *allowed}))}.",
            code="tokenizer-for-source",
            allowed=sorted({"auto", *allowed}),
            source=data.source,
        )
    if not allowed:
        for key, value in (("tokenizer", data.tokenizer), ("prompt", data.prompt)):
            if value not in ("auto", ""):
                raise wrong_value(
                    f"data.{key}",
                    value,
                    f"would be ignored, because data.source={data.source} has no tokens.",
                    code="data-has-no-tokens",
                    source=data.source,
                )
    if data.source == "vectors":
        _check_vectors(data)


def _check_key(chosen: Kind, key: str, value: Any) -> None:
    source = chosen.component.name
    if key in chosen.reads and value is None and key not in chosen.defaults:
        raise ConfigError(
            f"data.{key}: data.source={source} needs it.", code="data-key-needed", name=key, source=source
        )
    if key not in chosen.reads and value is not None:
        readers = ", ".join(name for name, other in kinds().items() if key in other.reads)
        said = (
            f"data.{key}: would be ignored, because data.source={source} does not read it. "
            f"It belongs to data.source={readers}."
        )
        preset = _PRESETS.get(key)
        line = f"data={preset} 'data.{key}={value}'" if " " in str(value) else f"data={preset} data.{key}={value}"
        said += f" Type {line}" if preset else ""
        raise ConfigError(said, code="key-ignored", key=f"data.{key}", command=line if preset else None)


def _check_vectors(data: DataConfig) -> None:
    for key in ("inputs", "targets"):
        rows: list[list[float]] = getattr(data, key)
        widths = sorted({len(row) for row in rows})
        if len(widths) != 1 or widths[0] == 0:
            found = f"rows of {' and '.join(map(str, widths))} numbers" if widths else "no rows"
            raise ConfigError(
                f"data.{key}: {found}. Every row must have the same number of values, at least one.",
                code="ragged-rows",
                key=f"data.{key}",
                widths=widths,
            )
        if not all(math.isfinite(value) for row in rows for value in row):
            raise ConfigError(f"data.{key}: must be finite numbers.", code="rows-not-finite", key=f"data.{key}")
    if len(data.inputs or ()) != len(data.targets or ()):
        raise ConfigError(
            f"data.targets: {len(data.targets or ())} rows for {len(data.inputs or ())} rows of data.inputs. "
            "There must be one target for each input.",
            code="targets-per-input",
            key="data.targets",
        )
