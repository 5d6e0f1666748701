"""The kernels of a study: chosen once, replayed everywhere, recorded, and flagged where a pair differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gptlab import compose
from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.comparing.audit import audit
from gptlab.config import Config
from gptlab.errors import ConfigError, GptlabError
from gptlab.identity import identity
from gptlab.kernels import PLAIN, chunk_rows, resolved, with_kernels
from gptlab.planning.plan import Plan, expand
from gptlab.running import kernels as module
from gptlab.running.decisions import survey
from gptlab.running.kernels import Choice, measured, read_choice, settled
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study, perform
from gptlab.store import files
from gptlab.store.config_file import read_config
from gptlab.store.damage import DamagedError
from gptlab.training import loop

WORDS = ["model=toy_lesson", "train=toy", "train.budget=12", "probes=counting", "evaluation.every=6",
         "train.log_every=3", "train.checkpoint_every=3"]  # fmt: skip
FLAT = {**PLAIN, "optimizer": "flat"}
SAID: list[str] = []


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTLAB_CACHE", str(tmp_path / "cache"))
    SAID.clear()
    return tmp_path


@pytest.fixture
def chooses_flat(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Every study is worth a measurement, which finds `flat`; the configs that were measured."""
    asked: list[Config] = []

    def timed(config: Config, machine: Any) -> Choice:
        asked.append(config)
        return Choice({"optimizer": "flat"}, "measured", (("optimizer", "fused", 2.0), ("optimizer", "flat", 1.0)))

    monkeypatch.setattr(module, "WORTH", 0.0)
    monkeypatch.setattr(module, "_timed", timed)
    return asked


def opened(*words: str) -> tuple[Path, Plan]:
    study, plan = open_study(expand([*WORDS, *words]))
    return study, settled(plan, study, survey(plan, study), SAID.append)


def losses(study: Path) -> dict[str, float]:
    return {p.parent.name: files.read_json(p)["metrics"]["final_loss"] for p in sorted(study.glob("*/result.json"))}


def recorded(folder: Path) -> Any:
    return read_config(folder)["train"]["kernels"]


@pytest.mark.parametrize(
    ("words", "code", "key"),
    [
        (["train.kernels=fast"], "unknown-name", "train.kernels"),
        (["train.kernels=null"], "unknown-name", "train.kernels"),
        (["train.kernels={linaer: torch}"], "unknown-name", "train.kernels"),
        (["train.kernels.linear=mkl"], "unknown-name", "train.kernels.linear"),
        (["train.kernels={attention: kept}"], "kernel-ignored", "train.kernels.attention"),
        (["train.kernels.loss=chunked"], "kernel-ignored", "train.kernels.loss"),
        (["train.kernels.optimizer=flat", "train.optimizer=muon"], "kernel-ignored", "train.kernels.optimizer"),
        (["train.kernels.linear=onednn", "train.compile=true"], "kernel-ignored", "train.kernels.linear"),
        (["train.kernels.linear=onednn", "train.precision=bf16"], "kernel-ignored", "train.kernels.linear"),
        (["train.kernels.qkv=joined", "model.attention=identity"], "kernel-ignored", "train.kernels.qkv"),
        (["train.kernels.qkv=joined", "train.compile=true"], "kernel-ignored", "train.kernels.qkv"),
    ],
)
@pytest.mark.usefixtures("bf16_here")
def test_what_cannot_be_taken_is_refused(words: list[str], code: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compose([*WORDS, *words])
    assert (refused.value.code, refused.value.key) == (code, key)
    assert refused.value.facts["allowed"]


def test_names_are_no_part_of_the_id_and_one_declaration_has_one_spelling() -> None:
    plain = compose(WORDS)
    assert plain.train.kernels == "auto"
    for given in ("train.kernels=reference", "train.kernels.optimizer=flat", "train.kernels={optimizer: flat}"):
        assert identity(compose([*WORDS, given])) == identity(plain)
    assert compose([*WORDS, "train.kernels={optimizer: flat, linear: torch}"]).train.kernels == {
        "linear": "torch", "optimizer": "flat",
    }  # fmt: skip


def test_a_place_has_what_is_named_else_what_was_measured_else_the_reference() -> None:
    config = compose(WORDS)
    assert resolved(config) == PLAIN
    assert resolved(config, {"optimizer": "flat"}) == FLAT
    assert resolved(compose([*WORDS, "train.kernels=reference"]), {"optimizer": "flat"}) == PLAIN
    assert resolved(compose([*WORDS, "train.kernels.optimizer=fused"]), {"optimizer": "flat"}) == PLAIN
    other = compose([*WORDS, "train.optimizer=muon"])
    assert resolved(other, {"optimizer": "flat"}) == PLAIN, "a variant that cannot take it has the reference"


def test_of_the_loss_memory_decides() -> None:
    words = ["model=gpt2_124m", "train.budget=5", "train.context=128"]
    rows = chunk_rows(50257) // 128
    assert resolved(compose([*words, f"train.batch_size={rows}"]))["loss"] == "plain"
    large = compose([*words, f"train.batch_size={rows + 1}"])
    assert resolved(large)["loss"] == "chunked"
    assert resolved(replace(large, train=replace(large.train, kernels="reference")))["loss"] == "plain"


def test_a_short_study_is_not_measured_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measured", lambda *_: pytest.fail("measured"))
    study, plan = opened("ablation=relu")
    assert [run.config.train.kernels for run in plan.runs] == [PLAIN, PLAIN]
    (path,) = (study / "kernels").iterdir()
    assert read_choice(path).chosen == {} and not SAID
    assert module.estimate(compose(["model=toy_lesson", "train=toy", "train.budget=100000"])) > module.WORTH


def test_one_measurement_of_the_baseline_serves_all_variants(chooses_flat: list[Config]) -> None:
    plain = expand([*WORDS, "ablation=relu,post_ln", "seed=1,2"])
    study, plan = opened("ablation=relu,post_ln", "seed=1,2")
    assert [config.label for config in chooses_flat] == ["baseline"] and len(SAID) == 1
    assert [run.config.train.kernels for run in plan.runs] == [FLAT] * 6
    assert [run.id for run in plan.runs] == [run.id for run in plain.runs]
    assert run_jobs(plan, study) == ["finished"] * 6
    assert all(recorded(study / run.folder) == FLAT for run in plan.runs)
    _, more = opened("ablation=silu")  # a variant more: the choice is replayed
    assert [run.config.train.kernels for run in more.runs] == [FLAT] * 2 and len(chooses_flat) == 1


def test_what_is_named_is_not_measured(chooses_flat: list[Config]) -> None:
    _, plan = opened("train.kernels=reference")
    assert plan.runs[0].config.train.kernels == PLAIN
    _, plan = opened("train.kernels={linear: torch, qkv: separate, optimizer: fused}")
    assert plan.runs[0].config.train.kernels == PLAIN
    assert not chooses_flat
    study, plan = open_study(expand(["model=tiny", "probes=counting"]))
    assert settled(plan, study, survey(plan, study), SAID.append) == plan and not SAID


def test_the_first_of_two_commands_chooses(chooses_flat: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
    create = files.create

    def late(path: Path, content: bytes) -> bool:
        create(path, json.dumps({"schema": 1, "chosen": {"linear": "torch"}, "reason": "another command"}).encode())
        return create(path, content)

    monkeypatch.setattr(files, "create", late)
    _, plan = opened()
    assert chooses_flat and plan.runs[0].config.train.kernels == PLAIN


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"chosen": {"linear": "mkl"}}', '{"chosen": 3}', '{"schema": 1}',
     '{"chosen": {}, "times": [{"place": "linear"}]}', '{"chosen": {}, "times": 3}', '{"chosen": {"x": []}}'],
)  # fmt: skip
def test_what_cannot_be_read_is_damaged(here: Path, content: str) -> None:
    (here / "choice.json").write_text(content)
    with pytest.raises(DamagedError):
        read_choice(here / "choice.json")


def test_a_damaged_choice_is_made_again_only_before_the_first_run(chooses_flat: list[Config]) -> None:
    content = '{"chosen": {"linear": "mkl"}}'
    study, plan = opened("seed=1,2")
    (path,) = (study / "kernels").iterdir()
    path.write_text(content)
    _, plan = opened("seed=1,2")
    assert read_choice(path).chosen == {"optimizer": "flat"} and any(str(path) in line for line in SAID)
    perform(plan.runs[0], study)
    path.write_text(content)
    with pytest.raises(GptlabError) as refused:
        opened("seed=1,2")
    assert (refused.value.code, refused.value.facts["begun"]) == ("kernels-damaged", 1)
    plans = {file: file.read_bytes() for file in study.rglob("*.json")}
    assert main([*WORDS, "seed=1,2,3"]) == 2  # before the plan has seed 3
    assert {file: file.read_bytes() for file in study.rglob("*.json")} == plans
    path.unlink()
    assert opened("seed=1,2")[1].runs[1].config.train.kernels == FLAT


def test_a_resumed_run_goes_on_with_what_it_began_with(
    chooses_flat: list[Config], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    whole, plan = opened("output_dir=whole")
    perform(plan.runs[0], whole)
    study, plan = opened("output_dir=parts")
    step = loop.Training._step

    def until(self: Any, number: int) -> Any:
        if number == 7:
            raise KeyboardInterrupt
        return step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "_step", until)
        with pytest.raises(KeyboardInterrupt):
            perform(plan.runs[0], study)
    config = plan.runs[0].config
    other = replace(plan.runs[0], config=with_kernels(config, PLAIN))
    assert perform(other, study)["state"] == "finished"
    assert recorded(study / other.folder) == FLAT
    assert losses(study) == losses(whole)


def test_a_repetition_takes_the_kernels_of_its_record(chooses_flat: list[Config], here: Path) -> None:
    study, plan = opened()
    perform(plan.runs[0], study)
    assert main(["rerun", str(study / plan.runs[0].folder), "--keep", "again"]) == 0
    assert recorded(here / "again") == FLAT and len(chooses_flat) == 1


@pytest.mark.slow
def test_workers_take_the_choice_and_compute_the_same_bits(chooses_flat: list[Config]) -> None:
    words = ["ablation=relu", "seed=1,2"]
    alone, plan = opened(*words, "output_dir=alone")
    run_jobs(plan, alone)
    side, plan = opened(*words, "output_dir=side", "workers=2")
    assert run_jobs(plan, side) == ["finished"] * 4
    assert losses(alone) == losses(side)
    assert all(recorded(side / run.folder) == FLAT for run in plan.runs)


def test_pairs_under_other_kernels_are_flagged(here: Path) -> None:
    study, plan = open_study(expand([*WORDS, "ablation=relu"]))
    for run, names in zip(plan.runs, (PLAIN, FLAT), strict=True):
        perform(replace(run, config=with_kernels(run.config, names)), study)
    (row,) = [row for row in compare([study]).rows if row.baseline is not None]
    assert any("kernels" in flag and "optimizer=flat" in flag for flag in row.flags)
    notes = audit(study).notes
    assert len(notes) == 1 and "optimizer=flat" in notes[0]
    folder = study / plan.runs[0].folder  # one of before kernels were recorded
    manifest = files.read_json(folder / "manifest.json")
    del manifest["config"]["train"]["kernels"]
    result = files.read_json(folder / "result.json")
    del result["artifacts"]["manifest.json"]
    files.write_json(folder / "manifest.json", manifest)
    files.write_json(folder / "result.json", result)
    assert not audit(study).notes


def test_a_machine_that_lacks_one_says_so_and_takes_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptlab.training.conditions.available", lambda: False)
    study, plan = opened("train.kernels.linear=onednn")
    result = perform(plan.runs[0], study)
    assert len(result["warnings"]) == 1 and "linear=onednn" in result["warnings"][0]
    assert recorded(study / plan.runs[0].folder) == PLAIN


def test_times_are_kept_by_machine_threads_and_shapes(chooses_flat: list[Config]) -> None:
    config = compose(WORDS)
    assert [measured(config).chosen for _ in range(2)] == [{"optimizer": "flat"}] * 2 and len(chooses_flat) == 1
    measured(compose([*WORDS, "train.learning_rate=0.1", "seed=7"]))
    assert len(chooses_flat) == 1, "the same shapes"
    measured(replace(config, threads=2))
    measured(compose([*WORDS, "train.batch_size=64"]))
    measured(config, again=True)
    assert len(chooses_flat) == 4


def test_a_measurement_that_fails_leaves_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(config: Config) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setattr(module, "WORTH", 0.0)
    monkeypatch.setattr("gptlab.training.kernels.measure.measure", broken)
    _, plan = opened()
    assert plan.runs[0].config.train.kernels == PLAIN
    assert len(SAID) == 1 and "no memory" in SAID[0]


def test_the_command_shows_them_and_changes_nothing(
    chooses_flat: list[Config], capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    assert main(["kernels", *WORDS, "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["measurements"]
    assert found["taken"] == FLAT and found["study"] is None
    assert [entry["kernel"] for entry in found["times"]] == ["fused", "flat"]
    assert not (here / "outputs").exists()
    opened()
    assert main(["kernels", *WORDS]) == 0
    shown = capsys.readouterr().out
    assert "2.00" in shown and "taken" in shown and "optimizer=flat" in shown
    assert main(["kernels", "model=tiny"]) == 2
    assert "train.budget" in capsys.readouterr().err
