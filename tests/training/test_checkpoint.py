"""Checkpoints refuse what is not theirs, and what is not whole."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gptlab.identity import identity
from gptlab.probes import Subject
from gptlab.store.states import digest
from gptlab.training import checkpoint
from gptlab.training.checkpoint import CheckpointError
from tests.support.refusals import refused
from tests.support.training import toy, trained, weights_hash

CONFIG_ID = "a" * 64


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return checkpoint.save(tmp_path, CONFIG_ID, 7, model, [optimizer.state_dict()], {"loss": 0.1})


@pytest.fixture(autouse=True)
def _random_state() -> object:
    with torch.random.fork_rng():
        yield


def test_what_is_saved_comes_back(saved: Path) -> None:
    found = checkpoint.load(saved, CONFIG_ID)
    assert found.step == 7 and found.progress == {"loss": 0.1}
    assert found.weights.keys() == {"weight", "bias"}
    assert found.optimizers[0]["state"][0]["step"] == 1


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "meta.json"])
def test_every_flipped_byte_is_noticed(saved: Path, name: str) -> None:
    content = (saved / name).read_bytes()
    for place in range(0, len(content), max(1, len(content) // 40)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        (saved / name).write_bytes(damaged)
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(saved, CONFIG_ID)
        noticed = {"checkpoint-file-damaged"}
        if name == "meta.json":  # no JSON any more, or other JSON
            noticed = {"checkpoint-damaged", "checkpoint-meta-damaged"}
        assert caught.value.code in noticed and caught.value.facts["name"] == "step_00000007"


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "meta.json"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "missing"])
def test_a_file_that_is_not_whole_is_refused(saved: Path, name: str, damage: str) -> None:
    content = (saved / name).read_bytes()
    (saved / name).unlink()
    if damage != "missing":
        (saved / name).write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    code = "checkpoint-file-missing" if damage == "missing" else "checkpoint-file-damaged"
    file = None if name == "meta.json" else name
    with refused(code if file else "checkpoint-damaged", name="step_00000007", file=file):
        checkpoint.load(saved, CONFIG_ID)


def test_another_variants_checkpoint_is_refused(saved: Path) -> None:
    with refused("checkpoint-of-another", name="step_00000007"):
        checkpoint.load(saved, "b" * 64)


def test_the_id_tells_seeds_and_variants_apart_but_not_checkpoint_habits() -> None:
    base = identity(toy())
    assert identity(toy("seed=1")) != base != identity(toy("ablation=relu"))
    assert identity(toy("train.checkpoint_every=2", "train.keep_checkpoints=5")) == base
    assert identity(toy("train.learning_rate=2e-3")) != base


def test_weights_of_another_shape_are_refused() -> None:
    with refused("checkpoint-weights-of-another", names=["bias", "weight"]):
        checkpoint.put_weights(torch.nn.Linear(3, 2), {"weight": torch.zeros(2, 4)})


def test_loading_runs_no_code(saved: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (saved / "executed",)  # type: ignore[return-value]

    (saved / "state.pt").write_bytes(pickle.dumps(Evil(), protocol=2))
    meta = json.loads((saved / "meta.json").read_text())
    meta.pop("sha256_meta")
    meta["sha256"]["state.pt"] = digest(saved / "state.pt")
    (saved / "meta.json").write_text(json.dumps({**meta, "sha256_meta": checkpoint._of_text(meta)}))
    with refused("checkpoint-unreadable", name="step_00000007"):
        checkpoint.load(saved, CONFIG_ID)
    assert not (saved / "executed").exists()


def test_the_newest_that_verifies_is_used(tmp_path: Path) -> None:
    for step in (2, 10, 9):
        checkpoint.save(tmp_path, CONFIG_ID, step, torch.nn.Linear(1, 1), [], {})
    (tmp_path / "checkpoints" / "step_00000010" / "state.pt").write_bytes(b"")
    (tmp_path / "checkpoints" / "step_unfinished").mkdir()
    found, refused = checkpoint.newest(tmp_path, CONFIG_ID)
    assert found and found.step == 9
    assert len(refused) == 1 and "step_00000010: state.pt" in refused[0]


def test_tidy_keeps_the_newest(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, CONFIG_ID, step, torch.nn.Linear(1, 1), [], {})
    (tmp_path / "checkpoints" / ".step_00000004.1.0123abcd.tmp").mkdir()
    checkpoint.tidy(tmp_path, 2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_00000002", "step_00000003"]
    checkpoint.tidy(tmp_path, 0)
    assert not (tmp_path / "checkpoints").exists()
    checkpoint.tidy(tmp_path, 0)  # nothing there: nothing to do


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, [8]), (3, [4, 6, 8])])
def test_a_finished_run_keeps_as_many_as_it_was_told(tmp_path: Path, keep: int, left: list[int]) -> None:
    trained(toy("train.checkpoint_every=2", f"train.keep_checkpoints={keep}", steps=8), tmp_path)
    assert sorted(int(path.name[5:]) for path in (tmp_path / "checkpoints").glob("*")) == left


def test_a_tied_head_is_saved_once_and_comes_back_tied(tmp_path: Path) -> None:
    _, model = trained(toy(steps=2), tmp_path)
    (file,) = tmp_path.glob("checkpoints/*/model.safetensors")
    weights = load_file(file)
    assert "tok_emb.weight" in weights and "out_head.weight" not in weights
    again = Subject(toy(steps=2)).model
    checkpoint.put_weights(again, weights)
    assert weights_hash(again) == weights_hash(model)
    assert again.out_head.weight is again.tok_emb.weight
