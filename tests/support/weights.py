"""Tiny models of transformers, saved: what `model.weights` reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

IDS = torch.randint(61, (2, 29), generator=torch.Generator().manual_seed(0))
_TOKENS = {"bos_token_id": 0, "eos_token_id": 0}


def _made(kind: str, config: Any) -> Any:
    """With weights large enough to tell models apart, and norms away from ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, kind)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def tiny_gpt2(**changes: Any) -> Any:
    sizes = {"vocab_size": 256, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 3}
    return _made("GPT2LMHeadModel", transformers.GPT2Config(**{**sizes, **_TOKENS, **changes}))


def tiny_llama(**changes: Any) -> Any:
    sizes = {
        "vocab_size": 256, "hidden_size": 24, "intermediate_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 32,
    }  # fmt: skip
    return _made("LlamaForCausalLM", transformers.LlamaConfig(**{**sizes, **_TOKENS, **changes}))


def slow_ones(presets: Mapping[str, str]) -> list[Any]:
    """(preset, value) of each, those of many layers or many spans for the slow tests."""
    slow = ("gemma", "smollm3")
    return [
        pytest.param(*pair, marks=[pytest.mark.slow] if pair[0].startswith(slow) else []) for pair in presets.items()
    ]


def saved(model: Any, folder: Path, **how: Any) -> Path:
    """The folder that transformers makes of the model."""
    model.save_pretrained(folder, **how)
    return folder
