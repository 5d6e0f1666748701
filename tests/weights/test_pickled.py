"""Files of torch.save: the book's .pth and nanoGPT's checkpoints; code in them is never run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import gptlab
from gptlab.check.inspection import inspect
from gptlab.config import Config
from gptlab.model import build
from gptlab.model.build import implied_model
from gptlab.weights.opening import open_weights
from tests.support.book import BookGPT
from tests.support.refusals import refused
from tests.support.weights import IDS

SIZES = {"vocab": 256, "context": 32, "dim": 128, "heads": 2, "layers": 2}


def book(**changes: Any) -> BookGPT:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return BookGPT(**{**SIZES, **changes}).eval()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_the_book_s_own_file(bias: bool, beside: bool, tmp_path: Path) -> None:
    model, path = book(bias=bias), tmp_path / "model.pth"
    state = model.state_dict()
    torch.save({"model_state_dict": state, "optimizer_state_dict": {"state": {}}} if beside else state, path)
    found = inspect(path)
    assert (found.format, found.whole, found.dropped, found.unsaid) == ("book", True, {"a mask": 2}, ())
    assert found.parameters == sum(p.numel() for p in model.parameters())
    again = gptlab.build(gptlab.compose([f"model.weights={path}", "data.tokenizer=byte"]))
    with torch.no_grad():
        torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=2e-5)


def test_heads_that_the_file_does_not_tell(tmp_path: Path) -> None:
    model, path = book(dim=24, heads=3), tmp_path / "model.pth"
    torch.save(model.state_dict(), path)
    assert inspect(path).unsaid == ("model.n_heads",)
    overrides = [f"model.weights={path}", "data.tokenizer=byte"]
    with refused("weights-leave-open", key="model.n_heads"):
        gptlab.compose(overrides)
    again = gptlab.build(gptlab.compose([*overrides, "model.n_heads=3"]))
    with torch.no_grad():
        torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=2e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_nanogpt(bias: bool, tmp_path: Path) -> None:
    """Its Block is GPT-2's with plain linear layers, so GPT-2 of transformers with the exact GELU is the reference."""
    from tests.support.weights import tiny_gpt2

    other = tiny_gpt2(activation_function="gelu", vocab_size=61)
    with torch.no_grad():
        if not bias:
            for name, parameter in other.named_parameters():
                parameter.mul_(0 if name.endswith("bias") else 1)
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    state = {f"_orig_mod.{n}": t.t().contiguous() if n.endswith(turned) else t for n, t in other.state_dict().items()}
    if not bias:
        state = {name: tensor for name, tensor in state.items() if not name.endswith("bias")}
    arguments = {"n_layer": 2, "n_head": 3, "n_embd": 24, "block_size": 32, "bias": bias, "vocab_size": 61}
    arguments["dropout"] = 0.2
    path = tmp_path / "ckpt.pt"
    torch.save({"model": state, "model_args": arguments, "iter_num": 5, "best_val_loss": torch.tensor(1.0)}, path)
    found = inspect(path)
    assert (found.format, found.whole, found.notes) == ("nanogpt", True, ())
    assert (found.model["drop_rate"], found.model["activation"]) == (0.2, "gelu")
    again = build(Config(model=replaced(path)))
    with torch.no_grad():
        torch.testing.assert_close(again(IDS), other(IDS).logits, rtol=0, atol=2e-6)


def replaced(path: Path) -> Any:
    from dataclasses import replace

    return replace(implied_model(open_weights(path).model), weights=str(path))


class Bomb:
    """What a pickle can do: the function is called when it is loaded."""

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('ran')",))


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_with_code_is_refused_and_not_run(legacy: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    torch.save({"tok_emb.weight": torch.ones(2, 2), "x": Bomb()}, path, _use_new_zipfile_serialization=not legacy)
    with refused("weights-hold-code", file=path):
        inspect(path)
    torch.save(book(), path)  # a whole module, with its class
    with refused("weights-hold-code", file=path):
        inspect(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(gptlab.GptlabError):
        inspect(path)


def test_files_that_are_damaged_or_of_another_project(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    state = book().state_dict()
    torch.save(state, path)
    path.write_bytes(path.read_bytes()[:-500])
    with refused("weights-pickle-damaged", file=path):
        inspect(path)
    path.write_bytes(b"")
    with refused("weights-pickle-damaged", file=path):
        inspect(path)
    torch.save({"layer.weight": torch.ones(2)}, path)
    with refused("weights-of-nobody-known", names=["layer.weight"]):
        inspect(path)
    torch.save([1, 2], path)
    with refused("weights-of-nobody-known", names=[]):
        inspect(path)
    torch.save({name: tensor for name, tensor in state.items() if name != "pos_emb.weight"}, path)
    with refused("weights-book-incomplete", names=["pos_emb.weight"]):
        inspect(path)
    torch.save({name: tensor for name, tensor in state.items() if name != "trf_blocks.1.norm1.scale"}, path)
    assert inspect(path).missing == ("trf_blocks.1.norm1.scale",)
    with refused("weights-not-there", path=tmp_path / "no"):
        inspect(tmp_path / "no")
    (tmp_path / "empty").mkdir()
    with refused("weights-folder-unknown", folder=tmp_path / "empty", runs=0):
        inspect(tmp_path / "empty")
