"""The command: what it prints, what it refuses, how it ends. And the page of errata."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gptlab.book.reproduce import reproduce, run_claims
from gptlab.book.reproduce.claims import load_claims
from gptlab.book.reproduce.errata import page
from gptlab.book.reproduce.verdicts import Result
from gptlab.cli import main
from tests.support.refusals import refused_command

ROOT = Path(__file__).parents[2]
QUICK = "GE-gap,GE-hist,LN-fig45,SHP-four"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["reproduce", *arguments]) == 0
    return capsys.readouterr().out


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--only", QUICK)
    assert "within" not in text and "0.0231 (n-1)" in text and "(1, 4, 50257)" in text
    assert text.endswith("4 claims: 2 reproduced, 1 differs, 1 not computable here; all as expected.\n")


def test_csv_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "--only", QUICK, "--format=csv"))))
    objects = json.loads(printed(capsys, "--only", QUICK, "--format", "json"))
    assert [row["id"] for row in rows] == [item["id"] for item in objects]
    assert {row["id"]: row["verdict"] for row in rows}["LN-fig45"] == "differs"
    assert all(item["as_expected"] for item in objects)


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--only", QUICK, "--format", "md")
    assert "### gelu" in text and "| differs: the variance is 0.0231 (n-1)" in text
    assert len({line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_help_lists_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--help")
    assert all(claim.group in text for claim in load_claims())


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (["--only", "countin"], "unknown-name", {"key": "--only", "value": "countin", "suggestion": "counting"}),
        (["--only", "gelu,"], "claims-group-missing", {}),
        (["--only="], "option-value", {"key": "--only"}),
        (["--only"], "option-value", {"key": "--only"}),
        (["--only=gelu", "--only=tying"], "option-value", {"key": "--only"}),
        (["counting"], "reproduce-group-as-option", {"value": "counting", "suggestion": "--only counting"}),
        (["--fromat", "md"], "unknown-name", {"key": "option", "value": "--fromat", "suggestion": "--format"}),
        (["--format", "tabel"], "unknown-name", {"key": "--format", "value": "tabel", "suggestion": "table"}),
        (["--format", "errata", "--only", "gelu"], "errata-is-of-all-claims", {}),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, facts: dict[str, Any]) -> None:
    refused_command(capsys, "reproduce", *arguments, code=code, **facts)


def test_a_wrong_group_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from gptlab.cli import main; main(['reproduce', '--only', 'x']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT).returncode == 0


def test_a_verdict_that_is_not_expected_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [replace(claim, expected="0.1") if claim.id == "GE-gap" else claim for claim in load_claims()]
    monkeypatch.setattr(run_claims, "load_claims", lambda: claims)
    assert main(["reproduce", "--only", "GE-gap"]) == 1
    assert "NOT as expected: GE-gap" in capsys.readouterr().out


def test_what_needs_training_says_so_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_claims, "find_spec", lambda name: None)
    (result,) = reproduce(["MK-masked"])
    assert (result.verdict, result.shows) == ("not computable here", "needs training, which is not there")
    assert result.as_expected


@pytest.fixture(scope="module")
def everything() -> list[Result]:
    return reproduce()


@pytest.mark.slow
def test_every_verdict_is_as_expected(everything: list[Result]) -> None:
    assert len(everything) == 217
    assert [(r.claim.id, r.verdict, r.got) for r in everything if not r.as_expected] == []


@pytest.mark.slow
def test_the_page_of_errata_is_what_is_computed(everything: list[Result]) -> None:
    assert (ROOT / "docs" / "errata.md").read_text(encoding="utf-8") == page(everything)
