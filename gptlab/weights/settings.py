"""The config.json of a Hugging Face folder, read key by key, so that what nobody read can be told at the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gptlab.errors import GptlabError

# They say how a model was trained, is sampled from or stored; none changes what it computes.
_OF_NO_ACCOUNT = """
    _name_or_path architectures model_type transformers_version torch_dtype dtype use_cache bos_token_id
    eos_token_id pad_token_id sep_token_id decoder_start_token_id initializer_range task_specific_params
    pretraining_tp _attn_implementation attn_implementation _experts_implementation gradient_checkpointing
    chunk_size_feed_forward output_attentions output_hidden_states return_dict is_decoder is_encoder_decoder
    add_cross_attention cross_attention_hidden_size finetuning_task id2label label2id problem_type prefix
    tie_encoder_decoder tokenizer_class summary_type summary_use_proj summary_activation summary_first_dropout
    summary_proj_to_labels cache_implementation max_window_layers no_rope_layer_interval sliding_window_pattern
    _sliding_window_pattern use_bidirectional_attention rotary_emb_base classifier_dropout embedding_dropout
    hidden_dropout resid_pdrop embd_pdrop attn_pdrop attention_dropout rope_theta rope_scaling rope_parameters
    rope_local_base_freq partial_rotary_factor rotary_pct original_max_position_embeddings hidden_act
    is_llama_config rope_interleaved transformers.js_config default_theta
"""


class Settings:
    """What a config.json says. GptlabError for a value of the wrong type, or one that gptlab has no word for."""

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self.given, self.where = given, where
        self._read: set[str] = set()

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number, 1 or more."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(key, value, "must be a whole number, 1 or more.")
        return value

    def maybe_whole(self, key: str, default: int | None = None) -> int | None:
        """As `whole`, or None where it says null."""
        return None if self._value(key, default) is None else self.whole(key, default)

    def number(self, key: str, default: float) -> float:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(key, value, "must be a number.")
        return float(value)

    def maybe_number(self, key: str, default: float | None = None) -> float | None:
        return None if self._value(key, default) is None else self.number(key, default or 0.0)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "must be true or false.")
        return value

    def texts(self, key: str, default: list[Any] | None) -> list[Any] | None:
        """A list, or None."""
        value = self._value(key, default)
        if value is not None and not isinstance(value, list):
            raise self._wrong(key, value, "must be a list.")
        return value

    def node(self, key: str) -> dict[str, Any]:
        """A node of its own; empty where it is null or not there."""
        value = self._value(key, None)
        return dict(value) if isinstance(value, dict) else {}

    def choice(self, key: str, names: Mapping[str, str], default: str) -> str:
        """The name here for one of the `names` there."""
        value = self._value(key, default)
        if value not in names:
            raise self._wrong(key, value, f"has no counterpart here; those that have: {', '.join(names)}.")
        return names[value]

    def only(self, key: str, *allowed: Any) -> None:
        """The key, where it is given, must have one of these values: the model is another one otherwise."""
        self._read.add(key)
        if key in self.given and self.given[key] not in allowed:
            raise self._wrong(key, self.given[key], f"has no counterpart here; what has: {_words(allowed)}.")

    def unread(self) -> list[str]:
        """`key=value` of all that nobody asked for, and that might mean something."""
        left = self.given.keys() - self._read - set(_OF_NO_ACCOUNT.split())
        return [f"{key}={self.given[key]}" for key in sorted(left)]

    def _value(self, key: str, default: Any) -> Any:
        self._read.add(key)
        return self.given.get(key, default)

    def _wrong(self, key: str, value: Any, why: str) -> GptlabError:
        return GptlabError(
            f"{self.where}: {key}={value}: {why}", code="weights-config-value", file=self.where, key=key, value=value
        )


def _words(values: Collection[Any]) -> str:
    return ", ".join("null" if value is None else str(value).lower() for value in values)
