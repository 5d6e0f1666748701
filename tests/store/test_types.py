"""What a file says arrives under its own name, in its own type, and nothing else does: each entry, each limit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gptlab.metrics import METRICS, Metric
from gptlab.store.damage import DamagedError
from gptlab.store.data_files import DataFile, DataRecord, Look, parse_data, record
from gptlab.store.manifest import Manifest, parse_manifest
from gptlab.store.records import Provenance
from gptlab.store.result import Result, Scored, is_finite, parse_result, whole
from gptlab.store.study_sources import load_sources
from tests.support.seeded import MANIFEST, Arm, make_seeded

RESULT: dict[str, Any] = {
    "id": "a" * 64, "label": "relu", "seed": 7, "state": "failed", "outcome": "leaked", "error": "ValueError: x",
    "seconds": 2, "threads": 3, "metrics": {"loss": 2.5, "parameters": 12, "grad": "nan", "flag": True, "gone": None},
    "notes": ["n"], "warnings": ["w", 1, None], "artifacts": {"layers.csv": "b" * 64, "odd": 3}, "history_bytes": 99,
    "scored": {"rows": "r", "tokens": 11, "share": 0.25, "heldout": {"rows": "h", "tokens": 12, "share": 1}},
    "code": {"gptlab": "c", "odd": None}, "data": {"sha256": "d", "files": {}},
}  # fmt: skip
EXPECTED = Result(
    id="a" * 64, label="relu", seed=7, state="failed", outcome="leaked", error="ValueError: x", seconds=2.0, threads=3,
    metrics={"loss": 2.5, "parameters": 12}, not_finite=("grad", "flag", "gone"), notes=("n",), warnings=("w", "1", ""),
    hashes={"layers.csv": "b" * 64}, history_bytes=99,
    scored={"validation": Scored("r", 11, 0.25), "heldout": Scored("h", 12, 1.0)}, code={"gptlab": "c"},
    data=DataRecord("d"),
)  # fmt: skip


def test_each_entry_of_a_result_arrives() -> None:
    assert parse_result(RESULT) == EXPECTED


@pytest.mark.parametrize("name", sorted(RESULT))
def test_what_a_result_does_not_say_is_empty_and_changes_nothing_else(name: str) -> None:
    rest = {key: value for key, value in RESULT.items() if key != name}
    if name == "state":
        with pytest.raises(DamagedError):
            parse_result(rest)
        return
    fields = {"artifacts": ("hashes",), "metrics": ("metrics", "not_finite")}.get(name, (name,))
    assert parse_result(rest) == EXPECTED._replace(**{field: getattr(Result(), field) for field in fields})


@pytest.mark.parametrize("state", ["finished", "failed", "diverged", "interrupted"])
def test_each_state_is_known(state: str) -> None:
    assert parse_result({"state": state}).state == state


@pytest.mark.parametrize(
    "content",
    [{}, {"state": "crashed"}, {"state": "finished", "metrics": [1]}, {"state": "finished", "data": {"files": 3}}],
)
def test_what_nobody_understands_is_damage(content: dict[str, Any]) -> None:
    with pytest.raises(DamagedError):
        parse_result(content)


@pytest.mark.parametrize(
    ("value", "finite"),
    [
        (1e100, True), (-1e100, True), (1.0000001e100, False), (-1.0000001e100, False), (math.inf, False),
        (math.nan, False), (0, True), (-0.0, True), (2**63 - 1, True), (2**63, False), (-(2**63), True),
        (-(2**63) - 1, False), (True, False), ("1", False), (None, False),
    ],
)  # fmt: skip
def test_a_number_is_one_to_compute_with(value: Any, finite: bool) -> None:
    assert is_finite(value) == finite
    found = parse_result({"state": "finished", "metrics": {"x": value}})
    assert (("x" in found.metrics), found.not_finite) == (finite, () if finite else ("x",))
    assert whole(value) == (value if finite and type(value) is int else None)


def test_each_entry_of_a_manifest_arrives() -> None:
    document = {
        "id": "a", "config": {"seed": 1}, "data_sha256": "d", "packages": {"torch": "2", "gone": None},
        "git": {"commit": "c"}, "files": ["x.csv"], "stretches": [{"code": 1}, "odd"], "start": "now", "threads": 2,
    }  # fmt: skip
    found = parse_manifest(json.dumps(document).encode())
    assert found == Manifest(
        "a", {"seed": 1}, "d", {"torch": "2"}, {"commit": "c"}, ("x.csv",), ({"code": 1},), document
    )
    assert (found.started, found.text("threads"), found.text("host")) == ("now", "2", "")
    assert Manifest(document={"start": "b", "earlier_starts": ["a", "x"]}).started == "a"
    for odd in ("config", "packages", "git", "files", "stretches"):
        with pytest.raises(DamagedError):
            parse_manifest(json.dumps({odd: "text"}).encode())


@pytest.mark.parametrize(
    ("stretches", "mixed"),
    [
        ([], ()),
        ([{"code": {"a": "1"}, "data": {"sha256": "x"}}], ()),
        ([{"code": {"a": "1"}}, {"code": {"a": "1"}}], ()),
        ([{"code": {"a": "1"}}, {"code": {"a": "2"}}], ("code",)),
        ([{"data": {"sha256": "x"}}, {"data": {"sha256": "y"}}], ("data",)),
        ([{"data": {"sha256": "x", "files": 1}}, {"data": {"sha256": "x", "files": 2}}], ()),  # touched
        ([{"code": 1, "data": {"sha256": "x"}}, {"code": 2, "data": {"sha256": "y"}}], ("code", "data")),
    ],
)
def test_what_was_not_the_same_in_all_stretches(stretches: list[dict[str, Any]], mixed: tuple[str, ...]) -> None:
    assert Manifest(stretches=tuple(stretches)).mixed == mixed


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        ({"data_sha256": "e"}, "data"),
        ({"packages": {**MANIFEST["packages"], "gptlab": "9"}}, "code"),
        ({"git": {**MANIFEST["git"], "commit": "b" * 40}}, "code"),
        ({"git": {**MANIFEST["git"], "diff_sha256": "b" * 64}}, "code"),
        ({"packages": {**MANIFEST["packages"], "torch": "9"}}, "environment"),
        ({"python": "3.13.0"}, "environment"),
        ({"host": "two"}, "host"),
        ({"threads": 9}, "threads"),
        ({"config": {"train": {"budget_unit": "seconds", "budget": 5}}}, "seconds"),
    ],
)
def test_each_fact_is_told_by_its_own_entry(tmp_path: Path, manifest: dict[str, Any], field: str) -> None:
    assert list(changed_facts(tmp_path, Arm("x", {1: 3.0}, manifest={**MANIFEST, **manifest}))) == [field]


@pytest.mark.parametrize(("scored", "field"), [({"rows": "r"}, "validation"), ({"heldout": {"rows": "h"}}, "heldout")])
def test_the_rows_that_scored_it_are_facts(tmp_path: Path, scored: dict[str, Any], field: str) -> None:
    assert changed_facts(tmp_path, Arm("x", {1: 3.0}, scored=scored)) == {field: ("", next(iter(scored.values())) if
        field == "validation" else "h")}  # fmt: skip


def changed_facts(root: Path, other: Arm) -> dict[str, tuple[str, str]]:
    (source,) = load_sources([make_seeded(root, [Arm("none", {1: 3.0}), other])])
    one, two = (found.provenance for found in source.records)
    pairs = {name: (getattr(one, name), getattr(two, name)) for name in Provenance._fields}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def test_a_record_of_data_comes_back_from_json(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    found = record("s", [str(tmp_path)])
    assert parse_data(json.loads(json.dumps(found.to_json()))) == found
    ((name, (file,)),) = found.files.items()
    assert (name, file.path, len(file.sha256)) == (str(tmp_path), str(tmp_path / "a.txt"), 64)
    assert parse_data(None) == parse_data({}) == DataRecord()


def test_data_has_changed_when_a_byte_a_name_or_a_file_has(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(name)
    whole_folder = record("s", [str(folder)])
    glob = record("s", [str(folder / "*.txt")])

    def changed(found: DataRecord) -> bool:
        return bool(Look().changes(found))

    assert not changed(whole_folder) and not changed(glob)
    (folder / "a.txt").write_text("a.txt")  # anew, the same content
    assert not changed(whole_folder)
    (folder / "c.md").write_text("more")
    assert changed(whole_folder) and not changed(glob)
    (folder / "c.md").unlink()
    (folder / "b.txt").write_text("B.txt")
    assert changed(whole_folder) and changed(glob)
    (folder / "b.txt").write_text("b.txt")
    assert not changed(whole_folder)
    (folder / "b.txt").rename(folder / "d.txt")
    assert changed(whole_folder) and changed(glob)
    assert isinstance(whole_folder.files[str(folder)][0], DataFile)


@pytest.mark.usefixtures("scratch_registry")
def test_a_metric_that_a_run_declares_is_known_without_its_plugin() -> None:
    declared = {"name": "of_a_test", "unit": "u", "direction": "higher", "kind": "stochastic", "meaning": "m"}
    loss = METRICS["final_loss"]
    other = {**declared, "name": "final_loss"}
    entries = [declared, other, {"name": "half"}, "odd"]
    parse_result({"state": "finished", "declared": entries})
    assert METRICS["of_a_test"] == Metric("of_a_test", "u", "higher", "stochastic", "m")
    parse_result({"state": "finished", "declared": [{**declared, "direction": "lower"}]})  # of another version
    assert METRICS["of_a_test"].direction == "higher" and METRICS["final_loss"] == loss  # a name that is known stays
    assert "half" not in METRICS
    parse_result({"state": "finished", "declared": "odd"})
