"""Tags, notes and the archive: kept beside a run, never a part of it."""

from __future__ import annotations

import json
from multiprocessing import get_context
from pathlib import Path

import pytest

from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.comparing.audit import audit
from gptlab.store.find_runs import recorded_id
from gptlab.store.study_plan import load_plan
from gptlab.store.upkeep import marks
from gptlab.store.upkeep.marks import Marks, read_marks
from gptlab.store.upkeep.verify import verify_run
from tests.support.refusals import refused, refused_command
from tests.support.seeded import Arm, make_seeded

ARMS = [
    Arm("baseline", {1: 0.5, 2: 0.6, 3: 0.55}),
    Arm("relu", {1: 0.4, 2: 0.45, 3: 0.43}, {"activation": "relu"}),
]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return make_seeded(tmp_path, ARMS, baseline="baseline")


@pytest.fixture
def run(study: Path) -> Path:
    return folder_of(study, "relu", 1)


def folder_of(study: Path, label: str, seed: int) -> Path:
    (entry,) = [run for run in load_plan(study).runs if (run.label, run.seed) == (label, seed)]
    return study / entry.folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "marks.json"}


def test_marks_come_and_go_and_the_run_stays_as_it_was(run: Path) -> None:
    before, verdict = contents(run), verify_run(run)
    marks.tagged(run, ("keep", "fig-3"))
    marks.tagged(run, ("paper", "keep"))
    marks.noted(run, "  one\ntwo ")
    found = marks.archived(run)
    assert (found.tags, found.notes[0].text) == (("keep", "fig-3", "paper"), "one\ntwo")
    assert found == read_marks(run) == marks.archived(run), "archived twice keeps the first time"
    assert contents(run) == before and verify_run(run) == verdict
    assert marks.untagged(run, ("keep", "never-there")).tags == ("fig-3", "paper")
    marks.untagged(run, ("fig-3", "paper"))
    marks.unnoted(run, 1)
    assert (run / "marks.json").exists()
    assert marks.archived(run, False) == Marks()
    assert not (run / "marks.json").exists(), "without marks there is no file"
    assert contents(run) == before


def test_one_note_is_taken_away_by_its_number(run: Path) -> None:
    for text in ("a", "b", "c"):
        marks.noted(run, text)
    assert [note.text for note in marks.unnoted(run, 2).notes] == ["a", "c"]
    for number in (0, 3):
        with refused("unknown-name", key="note", value=str(number), allowed=["1", "2"]):
            marks.unnoted(run, number)


@pytest.mark.parametrize("tag", ["", "a b", "a,b", "-x", "r0123abcd", "x" * 41, "a\nb"])
def test_a_tag_is_one_word_and_no_id(run: Path, tag: str) -> None:
    with refused("tag-not-a-word", value=tag):
        marks.tagged(run, ("fine", tag))
    assert read_marks(run) == Marks()


def _tag_many(run: Path, name: str) -> None:
    for number in range(20):
        marks.tagged(run, (f"{name}{number}",))


@pytest.mark.slow
def test_two_writers_lose_nothing(run: Path) -> None:
    context = get_context("spawn")
    writers = [context.Process(target=_tag_many, args=(run, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(read_marks(run).tags) == 40


def test_damaged_marks_cost_no_run_and_are_never_written_over(
    study: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = folder_of(study, "baseline", 1)
    (run / "marks.json").write_text("{")
    assert main(["ls", str(study)]) == 0
    out = capsys.readouterr().out
    assert "marks.json: not valid JSON" in out and "6 finished" in out
    assert compare([study]).rows[1].n_finished == 3
    refused_command(capsys, "archive", other, run, code="marks-damaged", folder=str(run))
    assert (run / "marks.json").read_text() == "{" and read_marks(other) == Marks(), "what is refused changes nothing"


def test_the_listing_shows_tags_and_notes_filters_by_them_and_hides_what_is_archived(
    study: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ls(*words: str) -> str:
        assert main(["ls", str(study), *words]) == 0
        return capsys.readouterr().out

    assert main(["tag", str(run), "keep", "fig-3"]) == 0
    assert main(["note", str(run), "first, \x1b[31mred"]) == 0
    capsys.readouterr()
    line = next(line for line in ls().splitlines() if "[keep, fig-3]" in line)
    assert "relu" in line and "seed 1" in line
    assert "    note: first, \\x1b[31mred" in ls()
    csv = ("--columns", "label,seed", "--format", "csv")
    assert ls("--tag", "keep,fig-3", *csv) == ls("--where", "notes ~ first", *csv) == "label,seed\nrelu,1\n"
    assert ls("--tag", "kee", *csv) == "label,seed\n"
    assert main(["archive", str(run)]) == 0
    capsys.readouterr()
    hidden = ls()
    assert hidden.splitlines()[-1].startswith("1 archived run is not shown") and "5 finished" in hidden
    assert main(["ls", str(study), *csv]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 6 and "1 archived run is not shown" in err
    assert "6 finished" in ls("--archived")
    assert ls("--where", "archived", *csv) == "label,seed\nrelu,1\n"
    found = json.loads(ls("--archived", "--tag", "keep", "--columns", "tags,notes,archived", "--format", "json"))
    assert found == [{"tags": ["keep", "fig-3"], "notes": "first, \x1b[31mred", "archived": True}]
    assert main(["archive", str(run), "--remove"]) == 0
    assert "6 finished" in ls()


def test_a_whole_study_is_archived_and_counted_all_the_same(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = compare([study])
    assert main(["archive", str(study)]) == 0
    capsys.readouterr()
    after = compare([study])
    assert after.rows == before.rows and before.notes == ()
    (note,) = after.notes
    assert "baseline seed 1" in note and "2 more" in note
    assert note in audit(study).notes
    assert main(["ls", str(study)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "6 archived runs are not shown; gptlab ls --archived shows everything."
    ]


def test_runs_are_named_by_folder_by_id_and_by_study(
    study: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study.parent)
    (study.parent / "outputs").symlink_to(study, target_is_directory=True)
    other = folder_of(study, "relu", 2)
    assert main(["tag", f"r{recorded_id(run)[:12]}", str(other), "both"]) == 0
    assert (read_marks(run).tags, read_marks(other).tags) == (("both",), ("both",))
    assert main(["tag", str(study), "both", "--remove"]) == 0
    assert read_marks(run) == Marks()
    assert main(["tag", str(run)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(": no tags")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["tag"], "marks-which-run"),
        (["note"], "marks-which-run"),
        (["archive"], "marks-which-run"),
        (["tag", "RUN", "--remove"], "tag-remove-what"),
        (["tag", "RUN", "fine", "not fine"], "tag-not-a-word"),
        (["tag", "nothing", "keep"], "run-not-found"),
        (["note", "RUN", "two", "words"], "note-takes-one-text"),
        (["note", "RUN", " "], "note-empty"),
        (["note", "RUN", "x", "--remove"], "note-remove-what"),
        (["note", "STUDY", "x"], "note-takes-one-run"),
        (["archive", "ABOVE"], "run-is-a-study"),
    ],
)
def test_mistakes(study: Path, run: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str) -> None:
    known = {"RUN": run, "STUDY": study, "ABOVE": study.parent}
    refused_command(capsys, *(known.get(word, word) for word in words), code=code)
    assert read_marks(run) == Marks()
