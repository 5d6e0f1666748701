"""Loaded weights in runs: measured, ablated, healed, told apart by what they hold and not by where they lie."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import gptlab
from gptlab.config import Config
from gptlab.declare.to_config import from_stored
from gptlab.identity import delta, identity
from gptlab.model.build import weights_fit
from gptlab.running.execute import execute
from gptlab.store.config_file import read_config
from tests.support.refusals import refused
from tests.support.weights import IDS, saved, tiny_gpt2, tiny_llama

SHORT = ["data.tokenizer=byte", "probes.shapes=null", "probes.activations=null", "probes.generation=null"]
BRIEF = ["train.batch_size=2", "train.context=8", "evaluation.tokens=64", "evaluation.final=false"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tiny_gpt2(), tmp_path_factory.mktemp("gpt2"))


def composed(folder: Path, *more: str) -> Config:
    return gptlab.compose([f"model.weights={folder}", *SHORT, *more])


def test_the_identity_has_the_hash_and_not_the_path(folder: Path, tmp_path: Path) -> None:
    here, there = composed(folder), composed(Path(shutil.copytree(folder, tmp_path / "there")))
    assert identity(here) == identity(there) and here.model.weights != there.model.weights
    other = composed(saved(tiny_gpt2(n_layer=2, initializer_range=0.03), tmp_path / "other"))
    assert {key for key, (a, b) in delta(here, other).items()} == {"model.weights_sha256"}
    with refused("weights-not-the-pinned", key="model.weights_sha256", value="12"):
        composed(folder, "model.weights_sha256='12'")
    assert composed(folder, f"model.weights_sha256={here.model.weights_sha256}") == here


def test_a_hash_without_a_file_is_refused() -> None:
    with refused("weights-hash-alone", key="model.weights_sha256"):
        gptlab.compose(["model=tiny", "model.weights_sha256=12"])


def test_what_is_set_beside_the_file_wins_and_a_preset_is_refused(folder: Path) -> None:
    config = composed(folder, "ablation=relu", "model.drop_rate=0.25")
    assert (config.model.activation, config.model.drop_rate, config.model.qkv_bias) == ("relu", 0.25, True)
    with refused("weights-beside-model", key="model", value="tiny"):
        composed(folder, "model=tiny")


def test_a_file_that_has_changed_since(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    config = composed(copied)
    saved(tiny_gpt2(initializer_range=0.03), copied)
    with refused("weights-changed", key="model.weights", expected=config.model.weights_sha256):
        gptlab.build(config)


def test_a_run_measures_the_loaded_model_and_an_ablation_names_what_does_not_fit(folder: Path, tmp_path: Path) -> None:
    plain = gptlab.run(composed(folder), tmp_path / "plain")
    assert (plain.result["state"], plain.result["warnings"]) == ("finished", [])
    assert any(note.startswith("weights: ") for note in plain.result["notes"])  # one seed says it all
    loose = gptlab.run(composed(folder, "ablation=[no_bias,untied]"), tmp_path / "loose")
    warned = " ".join(loose.result["warnings"])
    assert all(said in warned for said in ("place here: ", "trf_blocks.0-1.att.out_proj.bias", "out_head.weight"))
    again = from_stored(read_config(tmp_path / "plain"))
    assert identity(again) == plain.result["id"]
    with torch.no_grad():
        one, same = gptlab.build(again), gptlab.build(composed(folder, "ablation=untied"))
        assert torch.equal(one(IDS), same(IDS))  # a copied head computes what the shared table does


def test_missing_weights_are_drawn_by_seed_and_named(folder: Path) -> None:
    gated = [composed(folder, "ablation=attention_gate_headwise", f"seed={seed}") for seed in (1, 2)]
    first, second = (gptlab.build(config).state_dict() for config in gated)
    one, same = (gptlab.build(composed(folder, f"seed={seed}")).state_dict() for seed in (1, 2))
    assert all(torch.equal(tensor, same[name]) for name, tensor in one.items())
    differ = {name for name in first if not torch.equal(first[name], second[name])}
    assert differ == {f"trf_blocks.{i}.att.W_gate.weight" for i in range(2)}
    fit = weights_fit(gated[0].model)
    assert fit is not None and set(fit.missing) == differ and not fit.left_over


def test_what_holds_after_each_step_holds_of_loaded_weights_too(folder: Path) -> None:
    model = gptlab.build(composed(folder, "model.after_step=unit_norm"))
    rows = model.trf_blocks[0].att.W_query.weight
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows)))


def test_what_was_not_read_is_told_in_the_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    strange = Path(shutil.copytree(folder, tmp_path / "strange"))
    (strange / "config.json").write_text(json.dumps({**config, "of_its_own": 7}))
    result = execute(composed(strange), tmp_path / "run")
    assert any("of_its_own" in note for note in result["notes"])


def test_heads_that_are_cut_otherwise_are_told(folder: Path, tmp_path: Path) -> None:
    heads = composed(folder).model.n_heads
    for number, told in ((heads, 0), (1, 1)):
        result = execute(composed(folder, f"model.n_heads={number}"), tmp_path / str(number))
        assert sum("n_heads" in warning for warning in result["warnings"]) == told


def test_a_file_beside_that_of_the_folder_is_refused(folder: Path) -> None:
    (weights,) = folder.glob("*.safetensors")
    other = Path(shutil.copy(weights, folder / "other.safetensors"))
    assert gptlab.compose([f"model.weights={weights}", *SHORT]).model.weights_sha256
    with refused("weights-file-beside", path=other):
        gptlab.compose([f"model.weights={other}", *SHORT])


def test_a_shorter_context_keeps_the_first_positions(folder: Path) -> None:
    whole, short = gptlab.build(composed(folder)), gptlab.build(composed(folder, "model.context_length=16"))
    with torch.no_grad():
        torch.testing.assert_close(short(IDS[:, :16]), whole(IDS[:, :16]))


def test_healed_and_then_loaded_from_the_run(folder: Path, tmp_path: Path) -> None:
    """Training goes on from the file; its run needs the file no more, and is weights itself."""
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    budget = [
        "train.budget=2",
        "train.batch_size=2",
        "train.context=8",
        "evaluation.tokens=64",
        "evaluation.final=false",
    ]
    run = gptlab.run(composed(copied, *budget, "probes=counting"), tmp_path / "run")
    assert run.result["state"] == "finished", run.result["error"]
    shutil.rmtree(copied)
    found = gptlab.trained(tmp_path / "run")
    again = gptlab.build(composed(tmp_path / "run"))
    with torch.no_grad():
        assert torch.equal(found.model(IDS), again(IDS))
    assert composed(tmp_path / "run").model.weights == str(tmp_path / "run")
    from gptlab.check.inspection import inspect

    assert inspect(tmp_path / "run").whole and inspect(tmp_path / "run").format == "gptlab run"
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with refused("weights-run-without-checkpoint"):
        inspect(tmp_path / "run")


def test_a_checkpoint_that_is_damaged(folder: Path, tmp_path: Path) -> None:
    budget = [
        "train.budget=1",
        "train.batch_size=2",
        "train.context=8",
        "evaluation.tokens=64",
        "evaluation.final=false",
    ]
    gptlab.run(composed(folder, *budget, "probes=counting"), tmp_path / "run")
    (file,) = (tmp_path / "run").glob("checkpoints/*/model.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with refused("weights-checkpoint-damaged"):
        composed(tmp_path / "run")


def test_llama_is_ablated_like_any_other(tmp_path: Path) -> None:
    config = composed(saved(tiny_llama(), tmp_path), "ablation=no_shortcut_attention")
    fit = weights_fit(config.model)
    assert fit is not None and fit.whole and not fit.sentences()
