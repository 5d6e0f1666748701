"""A run is its config, its data and its code: what has changed since it began is noticed, and decided by the user."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.config import Config
from gptlab.data.batches import load
from gptlab.planning.plan import Plan, PlannedRun, expand
from gptlab.running.decisions import decide, survey
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study, perform
from gptlab.show.listing import list_runs
from gptlab.store import data_files, dependencies, files
from gptlab.store.manifest import read_manifest
from gptlab.store.states import state_of
from gptlab.store.study_sources import load_sources
from gptlab.training import loop
from tests.support.refusals import refused_command

TEXT = "some words, and some more of them. " * 40
OTHER = "other word, and some more of them. " * 40  # of the same length
WORDS = ["model=tiny", "probes=counting", "data=text", "data.path=text.txt", "train=small", "train.budget=6",
         "train.context=8", "train.batch_size=2", "train.checkpoint_every=2", "train.warmup=0",
         "evaluation.every=2", "train.log_every=1"]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def broken_off(monkeypatch: pytest.MonkeyPatch, words: list[str], at: int = 4) -> tuple[Path, Plan]:
    """A study whose one run was interrupted at a step."""
    study, plan = open_study(expand(words))
    step = loop.Training._step

    def until(self: Any, number: int) -> Any:
        if number == at:
            raise KeyboardInterrupt
        return step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "_step", until)
        with pytest.raises(KeyboardInterrupt):
            perform(plan.runs[0], study)
    assert state_of(study / plan.runs[0].folder).name == "interrupted"
    return study, plan


def write_over(path: Path, text: str) -> None:
    """Another content, with the size and the time of before."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def with_answer(run: PlannedRun, answer: str) -> PlannedRun:
    return replace(run, config=replace(run.config, on_changed=answer))


def test_a_run_whose_text_changed_is_not_gone_on_with(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study, plan = broken_off(monkeypatch, WORDS)
    run, folder = plan.runs[0], study / plan.runs[0].folder
    assert decide(run, folder).action == "resume"
    write_over(here / "text.txt", OTHER)
    decision = decide(run, folder)
    assert (decision.action, decision.stale) == ("refuse", "the text of text.txt")
    plans = len(list((study / "plans").iterdir()))
    error = refused_command(capsys, *WORDS, code="changed-runs", seed=run.seed)
    assert all(line in f"{error}" for line in ("on_changed=restart", "on_changed=resume"))  # what to type
    assert len(list((study / "plans").iterdir())) == plans, "nothing was begun"
    assert perform(run, study)["state"] == "interrupted"
    assert decide(with_answer(run, "restart"), folder).action == "run"
    assert decide(with_answer(run, "resume"), folder).action == "resume"


def test_restart_begins_again_and_the_record_is_of_one_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = broken_off(monkeypatch, WORDS)
    write_over(here / "text.txt", OTHER)
    assert main([*WORDS, "on_changed=restart"]) == 0
    manifest = read_manifest(study / plan.runs[0].folder)
    assert len(manifest.stretches) == 1 and manifest.mixed == ()
    assert state_of(study / plan.runs[0].folder).result.warnings == ()


def test_resume_goes_on_and_says_so_everywhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = broken_off(monkeypatch, WORDS)
    folder = study / plan.runs[0].folder
    write_over(here / "text.txt", OTHER)
    assert main([*WORDS, "on_changed=resume"]) == 0
    manifest, result = read_manifest(folder), state_of(folder).result
    assert manifest.mixed == ("data",)
    assert len({stretch["data"]["sha256"] for stretch in manifest.stretches}) == 2
    assert any("text of text.txt changed" in text and "on_changed=resume" in text for text in result.warnings)
    (source,) = load_sources([study])
    assert "other data in its first part" in source.records[0].provenance.data
    assert main(["rerun", str(folder)]) == 1


def test_code_and_torch_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = broken_off(monkeypatch, WORDS)
    run, folder = plan.runs[0], study / plan.runs[0].folder
    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "_own", lambda: "0" * 64)
        assert (decide(run, folder).action, decide(run, folder).stale) == ("refuse", "the code of gptlab")
    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "_version", lambda package: "99.0")
        assert decide(run, folder).action == "refuse" and "torch" in decide(run, folder).stale
    assert run_jobs(plan, study) == ["finished"]


def test_a_plugin_that_was_edited_is_noticed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    plugin = here / "plugin_of_on_changed.py"
    text = (
        "from gptlab.registry import register\nfrom torch import nn\n\n"
        "@register('activation', 'twice_relu')\nclass TwiceRelu(nn.Module):\n"
        "    'Two times relu.'\n    def forward(self, x):\n        return 2 * x.relu()\n"
    )
    plugin.write_text(text)
    words = [*WORDS, "plugins=[plugin_of_on_changed]", "model.activation=twice_relu"]
    study, plan = broken_off(monkeypatch, words)
    folder = study / plan.runs[0].folder
    assert decide(plan.runs[0], folder).action == "resume"
    assert read_manifest(folder).stretches[0]["code"]["plugin_of_on_changed"]
    plugin.write_text(text.replace("return 2", "return 3"))
    dependencies._module.cache_clear()
    assert decide(plan.runs[0], folder).stale == "the code of plugin_of_on_changed"
    assert decide(plan.runs[0], folder).action == "refuse"
    dependencies._module.cache_clear()


def test_without_a_checkpoint_nothing_can_be_mixed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = broken_off(monkeypatch, WORDS, at=0)
    shutil.rmtree(study / plan.runs[0].folder / "checkpoints", ignore_errors=True)
    write_over(here / "text.txt", OTHER)
    assert decide(plan.runs[0], study / plan.runs[0].folder).action == "resume"


def test_the_key_is_no_part_of_an_id() -> None:
    assert expand([*WORDS, "on_changed=resume"]).runs[0].id == expand(WORDS).runs[0].id


def test_ls_shows_stale_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 0
    assert [row.stale for row in list_runs("outputs")] == [""]
    os.utime(here / "text.txt", (1, 1))  # touched, and the same
    assert [row.stale for row in list_runs("outputs")] == [""]
    write_over(here / "text.txt", OTHER)
    (row,) = list_runs("outputs")
    assert row.stale == f"the text of {here / 'text.txt'}"
    capsys.readouterr()
    assert main(["ls", "--where", "stale"]) == 0
    assert "1 stale" in capsys.readouterr().out
    (here / "text.txt").unlink()
    assert list_runs("outputs")[0].stale.endswith("text.txt is gone")


def test_a_new_file_of_a_glob_is_other_data(here: Path) -> None:
    found = data_files.record("", ["*.txt"])
    assert data_files.Look().changes(found) == []
    (here / "more.txt").write_text("x")
    assert data_files.Look().changes(found) == [f"the text of {here / '*.txt'}"]


def test_the_record_comes_back() -> None:
    found = data_files.record("ab", ["text.txt"])
    assert data_files.parse_data(files.parse_json(files.json_text(found.to_json()))) == found


def test_local_files_of_hf_are_hashed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gptlab.data import huggingface

    monkeypatch.setenv("GPTLAB_CACHE", str(here / "cache"))
    (here / "set").mkdir()
    (here / "set" / "a.txt").write_text(TEXT)

    def rows(where: str, request: dict[str, Any]) -> Any:
        yield {"text": (here / "set" / "a.txt").read_text()}
        yield {"text": "more words. " * 30}

    monkeypatch.setattr(huggingface, "_rows", rows)
    config: Config = expand(["model=tiny", "probes=counting", "data=hf", "data.path=set"]).runs[0].config
    first = load(config.data, vocab_size=config.model.vocab_size, seed=1)
    assert data_files.record("", first.files).files[str(here / "set")][0].path == str(here / "set" / "a.txt")
    write_over(here / "set" / "a.txt", OTHER)
    assert load(config.data, vocab_size=config.model.vocab_size, seed=1).hash != first.hash


def test_a_plugins_kind_of_data_is_hashed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content follows from something that no config and no code of its own shows."""
    monkeypatch.syspath_prepend(here)
    (here / "plugin_with_data.py").write_text(
        "import dataclasses\nfrom pathlib import Path\nfrom gptlab.data.text import text_of\n"
        "from gptlab.data.texts import TextSource\nfrom gptlab.registry import register\n\n"
        "@register('data', 'noted')\ndef noted(tokenizer: str, vocab_size: int):\n"
        "    'A text that lies about.'\n"
        "    return TextSource('noted', text_of([Path('text.txt').read_text()]), tokenizer, vocab_size,\n"
        "                      ('position', 0.1), files='text.txt')\n"
    )
    words = [word for word in WORDS if not word.startswith("data")]
    words += ["plugins=[plugin_with_data]", "data.source=noted", "data.tokenizer=char"]
    study, plan = open_study(expand(words))
    assert run_jobs(plan, study) == ["finished"]
    assert [d.stale for d in survey(plan, study)] == [""]
    write_over(here / "text.txt", OTHER)
    assert [d.stale for d in survey(plan, study)] == ["the data (data.source=noted)"]
    assert list_runs("outputs")[0].stale == f"the text of {here / 'text.txt'}"


def code_of(name: str) -> str:
    """Its hash, as a new process would compute it."""
    dependencies._module.cache_clear()
    return dependencies._module(name)


@pytest.mark.parametrize(
    ("statement", "file"),
    [
        ("import helper_of_mine", "helper_of_mine.py"),
        ("def later():\n    from helper_of_mine import factor", "helper_of_mine.py"),
        ("import parts_of_mine.scale as scale", "parts_of_mine/scale.py"),
        ("import parts_of_mine.scale", "parts_of_mine/__init__.py"),
        ("from parts_of_mine import scale", "parts_of_mine/scale.py"),
        ("import helper_of_mine", "below_helper.py"),  # which that one imports
        ("import parts_of_mine.scale", "parts_of_mine/unit.py"),  # from . import unit
        ("import parts_of_mine.scale", "parts_of_mine/inner/deep.py"),  # from .inner.deep import x
    ],
)
def test_what_a_plugin_imports_of_its_folder_belongs_to_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, statement: str, file: str
) -> None:
    monkeypatch.syspath_prepend(here)
    parts = here / "parts_of_mine"
    (parts / "inner").mkdir(parents=True)
    (here / "helper_of_mine.py").write_text("import math, torch, gptlab, below_helper\nfactor = 2\n")
    (here / "below_helper.py").write_text("import helper_of_mine\n")
    (parts / "__init__.py").write_text("")
    (parts / "scale.py").write_text("from . import unit\nfrom .inner.deep import x\n")
    (parts / "unit.py").write_text("one = 1\n")
    (parts / "inner" / "deep.py").write_text("x = 1\n")
    (here / "not_imported.py").write_text("x = 1\n")
    (here / "plugin_with_helper.py").write_text(f"{statement}\n")
    before = code_of("plugin_with_helper")
    assert before and code_of("plugin_with_helper") == before
    (here / "not_imported.py").write_text("x = 2\n")
    assert code_of("plugin_with_helper") == before
    (here / file).write_text((here / file).read_text() + "other = 3\n")
    assert code_of("plugin_with_helper") != before


def test_a_plugin_by_itself_has_the_hash_of_its_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that were recorded before the imports belonged to it are not taken for changed."""
    monkeypatch.syspath_prepend(here)
    text = b"import math\nimport torch\nfrom gptlab.registry import register\n"
    (here / "plugin_alone.py").write_bytes(text)
    assert code_of("plugin_alone") == sha256(b"plugin_alone.py\0" + sha256(text).digest()).hexdigest()
    (here / "plugin_alone.py").write_bytes(b"def broken(:\n")
    assert code_of("plugin_alone")


def test_installed_packages_are_not_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = here / "site-packages"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    (place / "plugin_installed.py").write_text("import other_installed\n")
    (place / "other_installed.py").write_text("x = 1\n")
    before = code_of("plugin_installed")
    (place / "other_installed.py").write_text("x = 2\n")
    assert code_of("plugin_installed") == before
