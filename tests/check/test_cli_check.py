"""`gptlab check` as a command: which variants, against what, and the exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.declare import sources
from tests.support.refusals import refused_command

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.ENVIRONMENT, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def reports(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    assert main(["check", *words, "--format", "json"]) == code
    found = json.loads(capsys.readouterr().out)
    return {report["label"]: {line["check"]: line for line in report["lines"]} for report in found}


def test_a_sound_variant(capsys: pytest.CaptureFixture[str]) -> None:
    found = reports(capsys, "model=tiny", "ablation=relu")
    assert list(found) == ["relu"]  # the baseline that a run would add is not asked about
    line = found["relu"]["differs from baseline"]
    assert line["status"] == "pass" and "model.activation" in line["reason"] and line["value"] > 0


def test_a_sweep_gives_a_report_for_each_variant_and_not_for_each_seed(capsys: pytest.CaptureFixture[str]) -> None:
    found = reports(capsys, "model=tiny", "ablation=none,rmsnorm", "seed=1,2")
    assert list(found) == ["baseline", "rmsnorm"]
    assert found["baseline"]["differs from baseline"]["status"] == "not applicable"


def test_values_are_compared_with_the_bare_preset(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = reports(capsys, "model=tiny", "model.n_layers=3").values()
    assert "model.n_layers" in found["differs from baseline"]["reason"]


def test_a_failure_is_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = reports(capsys, "model=tiny", "ablation=tied_unscaled", code=1)
    assert [name for name, line in found["tied_unscaled"].items() if line["status"] == "fail"] == ["initial loss"]


def test_the_table_names_check_verdict_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "model=tiny"]) == 0
    out = capsys.readouterr().out
    assert "causality" in out and "pass" in out and "no weights are shared" in out
    assert out.strip().splitlines()[-1].startswith("baseline: ") and "not applicable" in out
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    ("words", "code", "facts"),
    [
        (["ablation=rleu"], "unknown-name", {"value": "rleu", "suggestion": "relu"}),
        (["--format", "yaml"], "unknown-name", {"key": "--format", "value": "yaml"}),
        (["model=gpt3_175b"], "check-memory", {"suggestion": "model=tiny"}),
    ],
)
def test_mistakes(words: list[str], code: str, facts: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    refused_command(capsys, "check", *words, code=code, **facts)


@pytest.mark.benchmark
def test_checking_the_tiny_model_takes_less_than_ten_seconds(here: Path) -> None:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gptlab", "check", "model=tiny"],
        cwd=here, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.perf_counter() - start < 10


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "conf" / "ablation").glob("*.yaml")))
def test_every_ablation_that_ships_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {"initial loss"} if name == "tied_unscaled" else set()  # which is what that one shows
    # Two take back what the toy declares, and change nothing elsewhere.
    model = "model=toy_lesson" if name in ("untied", "learned_positions") else "model=tiny"
    (found,) = reports(capsys, model, f"ablation={name}", code=len(expected)).values()
    assert {check for check, line in found.items() if line["status"] == "fail"} == expected
