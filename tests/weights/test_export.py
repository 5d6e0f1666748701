"""Out and in again, bit for bit; what transformers and the book's code make of it is what gptlab computes."""

from __future__ import annotations

import dataclasses
import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import gptlab
from gptlab.config import Config, ModelConfig
from gptlab.data.tokenizer import make_tokenizer
from gptlab.model import build
from gptlab.model.feed_forward import hidden_width
from gptlab.running.trained import Trained
from gptlab.store.atomic import StorageError
from gptlab.weights.loading import state_of
from tests.model.test_against_transformers import away_from_ones
from tests.model.test_presets_against_transformers import small
from tests.support.book import BookGPT
from tests.support.refusals import refused, refused_command
from tests.support.weights import IDS, saved, slow_ones, tiny_gpt2

TINY = ModelConfig(vocab_size=61, context_length=32, emb_dim=24, n_heads=3, n_layers=2, drop_rate=0.0)


def made(model: ModelConfig) -> Trained:
    """A model whose norms are away from ones, as if it had been trained."""
    config = Config(model=model)
    return Trained(away_from_ones(build(config)), make_tokenizer("ids", "", model.vocab_size), config, 0)


def same(one: Any, other: Any) -> bool:
    mine, its = state_of(one), state_of(other)
    return mine.keys() == its.keys() and all(torch.equal(tensor, its[name]) for name, tensor in mine.items())


EXPORTED = {
    "tiny": "GPT2LMHeadModel", "gpt_j_tiny": "GPTJForCausalLM", "smollm2_135m": "LlamaForCausalLM",
    "mistral_7b": "MistralForCausalLM", "qwen3_0_6b": "Qwen3ForCausalLM", "olmo2_tiny": "Olmo2ForCausalLM",
    "smollm3_3b": "SmolLM3ForCausalLM", "gemma2_2b": "Gemma2ForCausalLM", "gemma3_1b": "Gemma3ForCausalLM",
    "pythia_160m": "GPTNeoXForCausalLM", "phi_2": "PhiForCausalLM",
}  # fmt: skip


@pytest.mark.parametrize(("preset", "class_name"), slow_ones(EXPORTED))
def test_transformers_computes_the_same_and_it_comes_back_bit_for_bit(
    preset: str, class_name: str, tmp_path: Path
) -> None:
    found = made(small(preset))
    gptlab.export(found, "hf", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == [class_name]
    other, told = getattr(transformers, class_name).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        expected = found.model(IDS)
        torch.testing.assert_close(other.eval()(IDS).logits, expected, rtol=0, atol=1e-4 * expected.std().item())
    again = gptlab.load_weights(tmp_path / "out").model
    mine, its = state_of(found.model), state_of(again)
    assert all(torch.equal(tensor, its[name]) for name, tensor in mine.items())
    assert all(not its[name].any() for name in its.keys() - mine.keys())  # biases that a class cannot leave out


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"norm_placement": "post"}, "model.norm_placement"),
        ({"shortcut": "none"}, "model.shortcut"),
        ({"causal": False}, "model.causal"),
        ({"attention": "identity"}, "model.attention"),
        ({"options": {"attention": {"gate": "headwise"}}}, "model.options.attention.gate"),
        ({"layers": {"1": {"activation": "relu"}}}, "model.layers"),
    ],
)
def test_a_model_that_no_stock_class_is_names_what_stands_in_the_way(
    changes: dict[str, Any], key: str, tmp_path: Path
) -> None:
    found = made(replace(TINY, **changes))
    with refused("export-in-the-way", key=key, keys=[key]):
        gptlab.export(found, "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    gptlab.export(found, "safetensors", tmp_path / "own")  # gptlab's own form holds every model
    assert same(found.model, gptlab.load_weights(tmp_path / "own").model)


@pytest.mark.parametrize("changes", [{}, {"qkv_bias": True}, {"tie_weights": True}])
def test_the_book_s_code_loads_its_form_strictly(changes: dict[str, Any], tmp_path: Path) -> None:
    model = replace(TINY, emb_dim=128, n_heads=2, **changes)
    found = made(model)
    file = gptlab.export(found, "book", tmp_path / "out")
    with torch.random.fork_rng():
        other = BookGPT(vocab=61, context=32, dim=128, heads=2, layers=2, bias=model.qkv_bias).eval()
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(other(IDS), found.model(IDS), rtol=0, atol=2e-5)
        assert torch.equal(gptlab.load_weights(file).model(IDS), found.model(IDS))
    relu = made(replace(model, activation="relu"))
    with refused("export-in-the-way", key="model.activation", value="relu"):
        gptlab.export(relu, "book", tmp_path / "relu")


def test_widths_and_granites_multipliers_survive(tmp_path: Path) -> None:
    model = replace(
        TINY, norm="rmsnorm", feed_forward="swiglu", hidden_dim=52, position="rope", attention_bias=False,
        feed_forward_bias=False, tie_weights=True, embedding_multiplier=11.0, shortcut="scaled",
        options={"attention": {"multiplier": 0.37}, "shortcut": {"scale": 0.21}, "head": {"scale": 1 / 7}},
    )  # fmt: skip
    found = made(model)
    gptlab.export(found, "hf", tmp_path / "out")
    again = gptlab.load_weights(tmp_path / "out")
    assert hidden_width(24, again.config.model.expansion, again.config.model.hidden_dim) == 52
    other = transformers.GraniteForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(other(IDS).logits, found.model(IDS), rtol=0, atol=1e-4)


def test_a_folder_that_is_taken_and_a_form_that_is_not_there(tmp_path: Path) -> None:
    found = made(TINY)
    (tmp_path / "file").write_text("mine")
    with refused("export-place-taken", path=tmp_path):
        gptlab.export(found, "safetensors", tmp_path)
    with refused("unknown-name", key="--to", value="onnx"):
        gptlab.export(found, "onnx", tmp_path / "new")


@pytest.mark.parametrize("form", ["hf", "safetensors", "book"])
def test_an_export_that_breaks_off_leaves_nothing(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(StorageError):
        gptlab.export(made(TINY), form, tmp_path / "above" / "out")
    assert list((tmp_path / "above").iterdir()) == []


def test_the_folder_of_an_export_in_the_book_s_form_is_read(tmp_path: Path) -> None:
    found = made(dataclasses.replace(TINY, emb_dim=64, n_heads=1))
    gptlab.export(found, "book", tmp_path / "out")
    assert gptlab.inspect(tmp_path / "out").whole
    assert same(gptlab.load_weights(tmp_path / "out").model, found.model)


def test_from_the_command_line_weights_in_and_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gptlab import cli

    folder, out = saved(tiny_gpt2(), tmp_path / "in"), tmp_path / "out"
    assert cli.main(["export", str(folder), "--to", "hf", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out / 'model.safetensors'}\n"
    assert same(gptlab.load_weights(folder).model, gptlab.load_weights(out).model)
    assert cli.main(["generate", str(out), "--prompt", "ab", "--tokens", "4"]) == 0
    assert capsys.readouterr().out.startswith("ab")
    assert cli.main(["export", "--help"]) == 0
    refused_command(capsys, "export", folder, code="export-needs")
    refused_command(capsys, "export", folder, "--to", "gguf", "-o", "x", code="unknown-name", key="--to")
