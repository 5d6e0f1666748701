"""The file of claims, the verdicts, and what happens when claims and checks do not fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gptlab.book.reproduce.recomputed  # noqa: F401 - registers them
from gptlab.book.reproduce import measured_by
from gptlab.book.reproduce.claims import FILE, Claim, chosen, groups_of, load_claims
from gptlab.book.reproduce.verdicts import Found, judge
from tests.support.refusals import refused

TEXT = FILE.read_text(encoding="utf-8")
HEAD, FIRST = TEXT.splitlines()[:2]


def claim(expected: str, tolerance: str = "exact", verdict: str = "reproduced") -> Claim:
    return Claim("X-1", "group", "article", "a claim", expected, tolerance, verdict)


def test_every_claim_has_its_check_and_every_check_its_claim() -> None:
    claims = load_claims()
    assert len(claims) == 217
    measured_by.match(claims)


def test_the_file_speaks_of_public_sources_only() -> None:
    sources = {name for claim in load_claims() for name in claim.source.split("; ")}
    assert sources == {"Raschka, Build an LLM, ch. 4", "article", "lesson", "post"}


def test_groups_keep_together() -> None:
    groups = [claim.group for claim in load_claims()]
    assert groups == sorted(groups, key=groups_of(load_claims()).index)


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        (
            TEXT.replace(FIRST, FIRST.replace("CFG-vocab_size", "")),
            "claims-id-missing",
            {"where": "claims.csv, line 2"},
        ),
        (TEXT + FIRST + "\n", "claims-id-twice", {"name": "claims.csv", "line": 219, "id": "CFG-vocab_size"}),
        (TEXT.replace("id,group", "name,group"), "claims-columns", {"name": "claims.csv"}),
        (
            TEXT.replace(",50257,exact,", ",,exact,", 1),
            "claims-cell-missing",
            {"where": "claims.csv, line 2 (CFG-vocab_size)"},
        ),
        (
            TEXT.replace(",exact,reproduced,", ",exact,reproducd,", 1),
            "unknown-name",
            {"key": "claims.csv, line 2 (CFG-vocab_size): verdict", "value": "reproducd", "suggestion": "reproduced"},
        ),
        (
            TEXT.replace(",exact,", ",abs much,", 1),
            "unknown-name",
            {"key": "claims.csv, line 2 (CFG-vocab_size): tolerance", "value": "abs much"},
        ),
        (
            TEXT.replace(",exact,", ",exakt,", 1),
            "unknown-name",
            {"key": "claims.csv, line 2 (CFG-vocab_size): tolerance", "value": "exakt", "suggestion": "exact"},
        ),
        (TEXT + "X-1,group,article\n", "claims-cells", {"where": "claims.csv, line 219"}),
        (
            TEXT + "X-1,group,article,a claim,1,exact,not computable here,\n",
            "claims-note-missing",
            {"where": "claims.csv, line 219 (X-1)"},
        ),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str, code: str, facts: dict[str, Any]) -> None:
    path = tmp_path / "claims.csv"
    path.write_text(text, encoding="utf-8")
    with refused(code, **facts):
        load_claims(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with refused("claims-unreadable", name="claims.csv"):
        load_claims(tmp_path / "claims.csv")


def test_claims_and_checks_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = load_claims()
    with refused("claims-not-measured", ids=["GE-gap"]):
        measured_by.match([claim for claim in claims if claim.id != "GE-gap"])
    with refused("claims-not-measured", ids=["X-1"]):
        measured_by.match([*claims, claim("1")])
    monkeypatch.setattr(measured_by, "CHECKS", measured_by.CHECKS | {"GE-hist": lambda lab: 0})
    with refused("claims-not-measured", ids=["GE-hist"]):
        measured_by.match(claims)


def test_what_is_chosen() -> None:
    claims = load_claims()
    assert chosen(claims, []) == claims
    assert {claim.group for claim in chosen(claims, ["gelu", "tying"])} == {"gelu", "tying"}
    assert [claim.id for claim in chosen(claims, ["GE-gap"])] == ["GE-gap"]
    with refused("unknown-name", key="--only", value="countin", suggestion="counting"):
        chosen(claims, ["countin"])
    with refused("claims-group-missing", key="--only"):
        chosen(claims, [""])


@pytest.mark.parametrize(
    ("expected", "tolerance", "got", "verdict"),
    [
        ("7", "exact", 7, "reproduced"),
        ("7", "exact", 7.0001, "differs"),
        ("0.1", "exact", 0.1, "reproduced"),
        ("0.0231", "abs 1e-4", 0.023066, "reproduced"),  # as printed
        ("0.0231", "abs 1e-4", 0.02318, "within tolerance"),
        ("0.0231", "abs 1e-4", 0.0233, "differs"),
        ("0", "abs 1e-6", 0.1, "differs"),  # though it rounds to 0
        ("1099", "abs 0.5", 1098.95, "reproduced"),
        ("0.22169792652130127", "rel 2e-6", 0.22169798612594604, "within tolerance"),
        ("(0.13, 0.39)", "abs 0.01", (0.132, 0.0231), "differs"),
        ("(2, 4)", "exact", (2, 4), "reproduced"),
        ("(2, 4)", "exact", (2, 4, 1), "differs"),
        ("2e-7", "at most", 1e-7, "reproduced"),
        ("2e-7", "at most", 3e-7, "differs"),
        ("0.1", "at least", 1.7, "reproduced"),
        ("0.1", "at least", float("nan"), "differs"),
        ("finite", "exact", "finite", "reproduced"),
        ("finite", "exact", "nan", "differs"),
        ("True", "exact", False, "differs"),
        ("none", "exact", [2], "differs"),
    ],
)
def test_verdicts(expected: str, tolerance: str, got: object, verdict: str) -> None:
    assert judge(claim(expected, tolerance), Found(got)).verdict == verdict


def test_a_verdict_is_as_expected_or_it_is_not() -> None:
    assert judge(claim("1", "abs 0.6"), Found(1.55)).as_expected
    assert not judge(claim("1"), Found(2)).as_expected
    assert judge(claim("1", verdict="differs"), Found(2)).as_expected
    assert not judge(claim("1", verdict="differs"), Found(1)).as_expected


def test_the_difference_is_the_one_that_is_furthest_off() -> None:
    assert judge(claim("(1, 2)", "abs 1"), Found((1.5, 1.25))).difference == -0.75
    assert judge(claim("2", "at most"), Found(1)).difference is None
    assert judge(claim("word"), Found("other")).difference is None
