"""The interval over documents against scipy, and where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gptlab.comparing.assemble import compare
from gptlab.comparing.comparison import Cell
from gptlab.show.exports import export
from tests.support.seeded import Arm, make_seeded

SEEDS = (1, 2, 3)
Losses = Mapping[tuple[str, int], Sequence[float]]  # (label, seed) -> loss of each document


def losses(documents: int, noise: int = 0) -> dict[tuple[str, int], Sequence[float]]:
    """Documents differ far more than the variants do: that is what pairing is for."""
    draw = np.random.default_rng(noise)
    hard = 3 + draw.normal(size=documents)
    return {
        (label, seed): hard + shift + 0.05 * draw.normal(size=documents)
        for label, shift in (("none", 0.0), ("x", -0.1))
        for seed in SEEDS
    }


def study(root: Path, found: Losses, shares: Mapping[str, Sequence[float]]) -> Path:
    arms = [
        Arm(
            label,
            {seed: math.fsum(np.multiply(shares[label], found[label, seed])) for seed in SEEDS},
            {"n_layers": layers},
        )
        for label, layers in (("none", 2), ("x", 3))
    ]
    folder = make_seeded(root, arms, metric="heldout_loss")
    for row in compare([folder]).rows:
        for seed, record in row.runs.items():
            rows = zip(range(10, 99), shares[row.label], found[row.label, seed], strict=False)
            lines = [f"{document},{float(share)!r},{float(loss)!r}\n" for document, share, loss in rows]
            (record.folder / "heldout.csv").write_text("document,share,loss\n" + "".join(lines))
    return folder


def cell(folder: Path) -> Cell:
    return compare([folder]).row("x").cell("heldout_loss")


def test_documents_of_one_size_are_a_paired_t_test(tmp_path: Path) -> None:
    found = losses(12)
    own, its = (np.mean([found[label, seed] for seed in SEEDS], axis=0) for label in ("x", "none"))
    expected = stats.ttest_rel(own, its).confidence_interval(0.95)
    got = cell(study(tmp_path, found, dict.fromkeys(("none", "x"), [1 / 12] * 12)))
    assert got.documents == 12
    assert (got.low_documents, got.high_documents) == pytest.approx(tuple(expected))
    assert got.low is not None and got.low != pytest.approx(got.low_documents), "seeds are another question"


def test_a_long_document_weighs_what_it_has_in_the_loss(tmp_path: Path) -> None:
    found = losses(5)
    shares = np.array([0.5, 0.2, 0.1, 0.1, 0.1])
    got = cell(study(tmp_path, found, dict.fromkeys(("none", "x"), shares)))
    assert got.low_documents is not None and got.high_documents is not None
    assert (got.low_documents + got.high_documents) / 2 == pytest.approx(got.difference)
    each = np.mean([np.subtract(found["x", seed], found["none", seed]) for seed in SEEDS], axis=0)
    # The sandwich variance of weighted least squares on a constant (HC1), computed as such.
    ones = np.ones((5, 1))
    bread = np.linalg.inv(ones.T @ (shares[:, None] * ones))
    middle = bread @ ones.T @ (shares * each)
    meat = ones.T @ np.diag((shares * (each - middle)) ** 2) @ ones
    error = math.sqrt((bread @ meat @ bread).item() * 5 / 4)
    assert got.high_documents - got.low_documents == pytest.approx(2 * stats.t.ppf(0.975, 4) * error)


@pytest.mark.parametrize("spoilt", ["other documents", "one document", "no file", "a torn file"])
def test_no_interval_where_the_documents_are_not_the_same(spoilt: str, tmp_path: Path) -> None:
    number = 1 if spoilt == "one document" else 4
    shares = {label: [1 / number] * number for label in ("none", "x")}
    if spoilt == "other documents":
        shares["x"] = [0.4, 0.2, 0.2, 0.2]
    folder = study(tmp_path, losses(number), shares)
    for record in compare([folder]).row("x").runs.values():
        if spoilt == "no file":
            (record.folder / "heldout.csv").unlink()
        if spoilt == "a torn file":
            (record.folder / "heldout.csv").write_text("document,share,loss\n10,0.25,3.0\n11,0.2")
    got = cell(folder)
    assert got.difference is not None
    assert (got.documents, got.low_documents, got.high_documents) == (None, None, None)


def test_the_table_and_the_data_show_it(tmp_path: Path) -> None:
    comparison = compare([study(tmp_path, losses(6), dict.fromkeys(("none", "x"), [1 / 6] * 6))])
    assert " (6)" in export(comparison, "md", ["difference", "interval", "interval_documents"])
    (line,) = [row for row in comparison.frame().to_dict("records") if row["variant"] == "x" and row["documents"] == 6]
    assert line["low_documents"] < line["high_documents"]


def test_coverage_is_what_it_says() -> None:
    """Of documents drawn anew, the interval holds the true difference in 95 % of 2,000 test sets."""
    from gptlab.comparing.documents import _interval

    draw = np.random.default_rng(1)
    held = 0
    for _ in range(2_000):
        sizes = draw.integers(50, 500, size=20)
        shares = dict(enumerate((sizes / sizes.sum()).tolist()))
        found = _interval(dict(enumerate((0.02 + 0.1 * draw.normal(size=20)).tolist())), shares)
        assert found
        held += found.low <= 0.02 <= found.high
    assert 0.935 <= held / 2_000 <= 0.965
