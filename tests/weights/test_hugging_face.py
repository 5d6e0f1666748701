"""Folders of transformers: the model that each implies is the one that transformers builds, and so are its logits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import gptlab
from gptlab.check.inspection import inspect
from gptlab.config import Config, DataConfig, ModelConfig, ProbesConfig
from gptlab.declare.to_config import settled_and_checked
from gptlab.model import GPT, build
from gptlab.model.build import implied_model
from gptlab.model.feed_forward import hidden_width
from gptlab.weights.hugging_face import FAMILIES
from gptlab.weights.opening import open_weights
from gptlab.weights.settings import Settings
from tests.model.test_against_transformers import away_from_ones
from tests.model.test_presets_against_transformers import family, small
from tests.support.refusals import refused
from tests.support.weights import IDS, saved, slow_ones, tiny_gpt2, tiny_llama

PRESETS = {
    "gpt2_large": "gpt2", "gpt_j_tiny": "gptj", "smollm2_135m": "llama", "mistral_7b": "mistral",
    "qwen3_0_6b": "qwen3", "olmo2_tiny": "olmo2", "smollm3_3b": "smollm3", "gemma2_2b": "gemma2",
    "gemma3_1b": "gemma3_text", "pythia_160m": "gpt_neox", "phi_2": "phi",
}  # fmt: skip
UNPROBED = ProbesConfig(gradients=None, activations=None, generation=None)
BYTES = DataConfig(source="string", tokenizer="ids", text="1 2 3 " * 99, prompt="1")
# A class that cannot leave them out: zeros there, nothing in the preset.
FILLED = {"gpt2": {"qkv_bias": True}, "gptj": {"options": {"head": {"bias": True}}}}


@pytest.mark.parametrize(("preset", "model_type"), slow_ones(PRESETS))
def test_a_saved_model_comes_back_as_the_preset_that_it_is(preset: str, model_type: str, tmp_path: Path) -> None:
    declared = small(preset)
    ours = build(Config(model=declared))
    assert isinstance(ours, GPT)
    away_from_ones(ours)
    other = family(preset)(declared, ours).float()
    other.save_pretrained(tmp_path)
    found = inspect(tmp_path)
    assert (found.family, found.whole, found.notes) == (model_type, True, ())
    implied = implied_model(open_weights(tmp_path).model)
    again = build(Config(model=replace(implied, weights=str(tmp_path))))
    with torch.no_grad():
        expected = other(IDS).logits
        torch.testing.assert_close(again(IDS), expected, rtol=0, atol=2e-5 * expected.std().item())
    filled = FILLED.get(model_type, {})
    options = {**declared.options, **filled.get("options", {})}
    declared = replace(declared, **{**filled, "options": options}, drop_rate=implied.drop_rate, init=implied.init)
    if declared.hidden_dim is None:  # a file says the width, a preset perhaps the ratio
        width = hidden_width(declared.emb_dim, declared.expansion)
        declared = replace(declared, expansion=4.0, hidden_dim=width)
    assert settled(implied) == settled(declared)


def settled(model: ModelConfig) -> ModelConfig:
    return settled_and_checked(Config(model=model, data=BYTES, probes=UNPROBED)).model


KINDS = {
    "gpt2": "GPT2Config", "gptj": "GPTJConfig", "llama": "LlamaConfig", "mistral": "MistralConfig",
    "qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "olmo2": "Olmo2Config", "gemma2": "Gemma2Config",
    "gemma3_text": "Gemma3TextConfig", "gpt_neox": "GPTNeoXConfig", "phi": "PhiConfig", "smollm3": "SmolLM3Config",
    "granite": "GraniteConfig",
}  # fmt: skip


@pytest.mark.parametrize("model_type", FAMILIES)
def test_what_a_config_leaves_out_is_what_transformers_takes(model_type: str) -> None:
    """A config.json may hold only what differs from its class."""
    whole = getattr(transformers, KINDS[model_type])().to_dict()
    family = FAMILIES[model_type]
    settings = Settings(whole, "whole")
    assert family.model_of(Settings({}, "bare")) == family.model_of(settings)
    assert settings.unread() == []


def test_shards_are_one_model_and_another_file(tmp_path: Path) -> None:
    model = tiny_llama()
    whole, parts = saved(model, tmp_path / "whole"), saved(model, tmp_path / "parts", max_shard_size="20KB")
    one, several = inspect(whole), inspect(parts)
    assert (len(one.files), one.whole, several.whole, len(several.files) > 2) == (1, True, True, True)
    assert one.parameters == several.parameters == sum(p.numel() for p in model.parameters())
    assert one.sha256 != several.sha256 == inspect(parts).sha256
    (parts / several.files[1].name).unlink()
    with refused("weights-shard-missing", names=[several.files[1].name]):
        inspect(parts)


def test_a_bare_model_and_masks_of_old_files(tmp_path: Path) -> None:
    """The Hub's own gpt2 has no prefix, and a mask in each layer."""
    from safetensors.torch import load_file, save_file

    model = tiny_gpt2()
    folder = saved(model, tmp_path)
    state = {name.removeprefix("transformer."): t for name, t in load_file(folder / "model.safetensors").items()}
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 32, 32).tril() for i in range(2)}
    save_file(state | masks, folder / "model.safetensors")
    found = inspect(folder)
    assert found.whole and found.dropped == {"a mask": 2}
    again = gptlab.build(gptlab.compose([f"model.weights={folder}", "data.tokenizer=byte"]))
    with torch.no_grad():
        torch.testing.assert_close(again(IDS), model(IDS).logits, rtol=0, atol=1e-6)


def changed(folder: Path, **keys: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    return folder


@pytest.mark.parametrize(
    ("keys", "code", "key"),
    [
        ({"model_type": "bert"}, "unknown-name", "model_type"),
        ({"hidden_act": "mish"}, "weights-config-value", "hidden_act"),
        ({"hidden_size": "wide"}, "weights-config-value", "hidden_size"),
        ({"hidden_size": 0}, "weights-config-value", "hidden_size"),
        ({"tie_word_embeddings": 1}, "weights-config-value", "tie_word_embeddings"),
        ({"quantization_config": {"bits": 4}}, "weights-config-value", "quantization_config"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "weights-rope", None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mscale": 2.0}}, "weights-rope", None),
    ],
)
def test_a_config_without_words_here(keys: dict[str, Any], code: str, key: str | None, tmp_path: Path) -> None:
    folder = changed(saved(tiny_llama(), tmp_path), **keys)
    with refused(code, key=key):
        inspect(folder)


def test_a_key_that_is_not_read_is_told(tmp_path: Path) -> None:
    assert inspect(changed(saved(tiny_llama(), tmp_path), secret_scale=3)).notes == (
        "config.json says secret_scale=3, which is not read",
    )


def test_another_family_or_size_names_both_sides(tmp_path: Path) -> None:
    folder = changed(saved(tiny_llama(), tmp_path), intermediate_size=60)
    found = inspect(folder)
    assert "trf_blocks.0.ff.gate.weight [60, 24] against [64, 24]" in found.missing
    assert "trf_blocks.0.ff.gate.weight [64, 24] against [60, 24]" in found.left_over
    config = gptlab.compose([f"model.weights={folder}", "data.tokenizer=byte"])
    with refused("weights-incomplete", missing=list(found.missing), left_over=list(found.left_over)):
        gptlab.build(config)


def test_a_file_that_is_cut_short_or_no_safetensors(tmp_path: Path) -> None:
    file = saved(tiny_llama(), tmp_path) / "model.safetensors"
    whole = file.read_bytes()
    for size in (len(whole) - 1, 200_000, 100, 4):
        file.write_bytes(whole[:size].ljust(size, b"\0"))
        with refused("weights-damaged" if size < 200_000 and size < len(whole) - 1 else "weights-cut-short"):
            inspect(tmp_path)
    file.write_bytes(b"\x10\0\0\0\0\0\0\0" + b"[" * 16)
    with refused("weights-damaged"):
        inspect(tmp_path)
    file.unlink()
    with refused("weights-no-safetensors", folder=tmp_path):
        inspect(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with refused("weights-config-no-object"):
        inspect(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with refused("weights-config-damaged"):
        inspect(tmp_path)


def test_a_head_that_is_said_to_be_the_table_and_is_not(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = saved(tiny_gpt2(), tmp_path) / "model.safetensors"
    state = load_file(file)
    save_file({**state, "lm_head.weight": state["transformer.wte.weight"].clone()}, file)
    overrides = [f"model.weights={tmp_path}", "data.tokenizer=byte"]
    assert inspect(tmp_path).dropped == {"the table of tokens again": 1}
    gptlab.build(gptlab.compose(overrides))
    save_file({**state, "lm_head.weight": state["transformer.wte.weight"] + 1}, file)
    config = gptlab.compose(overrides)
    with refused("weights-head-not-table", name="lm_head.weight"):
        gptlab.build(config)
