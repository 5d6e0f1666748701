"""A study grows by seeds and variants: its tables cover all its runs, and say what came after looking."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from gptlab.cli import main
from gptlab.cli.add import grown_command
from gptlab.comparing.assemble import compare
from gptlab.declare.composer import Composer
from gptlab.errors import ConfigError
from gptlab.planning.grow import grown
from gptlab.store.plan_history import additions, whole_plan
from gptlab.store.study import load_study
from tests.support.refusals import refused

FAST = ["model=tiny", "probes=counting"]
STUDY = Path("outputs/runs")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def runs() -> list[tuple[str, int]]:
    return sorted((run.label, run.seed) for run in whole_plan(STUDY)[0].runs)


@pytest.mark.parametrize(
    ("words", "added", "command"),
    [
        (["ablation=none,relu", "seed=1,2"], ["seed=4", "ablation=rope"], ["ablation=none,relu,rope", "seed=1,2,3,4"]),
        (["ablation=none,relu", "seed=range(1,4)"], ["seed=4"], ["ablation=none,relu", "seed=1,2,3,4"]),
        (["ablation=[post_ln,relu]"], ["ablation=[relu,rope]"], ["ablation=[post_ln,relu],[relu,rope]", "seed=1,2,3"]),
        (["model=tiny"], ["ablation=relu"], ["model=tiny", "seed=1,2,3", "ablation=none,relu"]),
        (["seed=3", "ablation=none,relu"], ["ablation=rope"], ["seed=1,2,3", "ablation=none,relu,rope"]),
        (["seed=1,2,3", "model=tiny"], ["model.n_heads=2"], ["seed=1,2,3", "model=tiny", "model.n_heads=4,2"]),
        (["seed=1,2,3", "model.n_layers=2,4"], ["model.n_layers=6"], ["seed=1,2,3", "model.n_layers=2,4,6"]),
    ],
)  # fmt: skip
def test_each_key_takes_the_values_it_had_and_the_new_ones(
    words: list[str], added: list[str], command: list[str]
) -> None:
    assert grown(Composer(), words, added, [1, 2, 3]) == command


def test_an_experiments_own_sweep_grows_too() -> None:
    found = grown(Composer(), ["experiment=chapter4"], ["ablation=rope"], [123])
    ablations = next(word for word in found if word.startswith("ablation="))
    assert ablations.endswith(",rope")
    assert ablations.count(",") > 5


@pytest.mark.parametrize(("added", "code"), [(["seed=2"], "nothing-to-add"), (["data=markov"], "no-earlier-value")])
def test_what_does_not_grow_is_refused(added: list[str], code: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        grown(Composer(), ["model=tiny", "seed=1,2,3"], added, [1, 2, 3])
    assert refusal.value.code == code


def test_old_and_new_variants_times_old_and_new_seeds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAST, "ablation=none,relu", "seed=1,2"]) == 0
    assert not additions(STUDY)
    before = {path: path.stat().st_mtime_ns for path in STUDY.rglob("result.json")}
    assert main(["add", str(STUDY), "seed=3", "ablation=silu"]) == 0
    assert runs() == [(label, seed) for label in ("baseline", "relu", "silu") for seed in (1, 2, 3)]
    assert len(list(STUDY.rglob("result.json"))) == 9
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was there is not run again
    plan = json.loads((STUDY / "plan.json").read_text())
    assert plan["command"] == ["gptlab", *FAST, "ablation=none,relu,silu", "seed=1,2,3"]
    (addition,) = additions(STUDY)
    assert (addition.seeds, addition.variants, addition.results) == ((3,), ("baseline", "relu"), 4)
    comparison = compare([STUDY])
    assert comparison.row("relu").flags == ("seed 3 added after looking",)
    assert comparison.row("silu").flags == ()
    assert any("relu: seed 3 added after looking" in text for text in comparison.warnings)
    capsys.readouterr()
    assert main(["add", str(STUDY), "seed=3"]) == 2
    assert main(["add", str(STUDY)]) == 2
    capsys.readouterr()
    assert main(["add", str(STUDY), "seed=4", "ablation=[relu,post_ln]", "--plan"]) == 0
    out, err = capsys.readouterr()
    assert "seeds 1, 2, 3, 4" in out
    said = next(line for line in err.splitlines() if "command is now: " in line).split("command is now: ")[1]
    assert shlex.split(said) == ["gptlab", *FAST, "ablation=none,relu,silu,[relu,post_ln]", "seed=1,2,3,4"]
    assert runs() == [(label, seed) for label in ("baseline", "relu", "silu") for seed in (1, 2, 3)]


def test_a_study_that_was_renamed_is_not_begun_anew_elsewhere(here: Path) -> None:
    assert main([*FAST, "seed=1"]) == 0
    renamed = STUDY.rename("outputs/renamed")
    with refused("study-renamed", file=str(renamed), value="runs"):
        grown_command(renamed, ["seed=2"])
    assert main(["add", str(renamed.rename(STUDY)), "seed=2", "--plan"]) == 0


def test_the_newest_plan_hides_no_run(here: Path) -> None:
    """Seeds 1 and 2, then seed 3 alone: tables have all three, each beside the baseline of its seed."""
    assert main([*FAST, "ablation=none,relu", "seed=1,2"]) == 0
    assert main([*FAST, "ablation=none,relu", "seed=3"]) == 0
    assert runs() == [("baseline", 1), ("baseline", 2), ("baseline", 3), ("relu", 1), ("relu", 2), ("relu", 3)]
    study = load_study(STUDY)
    assert sorted(study.runs["seed"]) == [1, 1, 2, 2, 3, 3]
    bases = study.runs[study.runs["is_baseline"]].set_index("run")["seed"].to_dict()
    assert all(bases[row.baseline] == row.seed for row in study.runs.itertuples())
    assert compare([STUDY]).row("relu").n_finished == 3
    assert additions(STUDY)[0].seeds == (3,)
    # The same command once more adds nothing.
    assert main([*FAST, "ablation=none,relu", "seed=1,2,3"]) == 0
    assert len(additions(STUDY)) == 1


def test_other_variants_are_left_out_by_name(here: Path) -> None:
    assert main([*FAST, "ablation=none,relu,silu", "seed=1,2"]) == 0
    assert main([*FAST, "ablation=none,relu", "seed=1,2,3"]) == 0
    assert {label for label, _ in runs()} == {"baseline", "relu"}
    (note,) = compare([STUDY]).notes
    assert "silu (2 runs)" in note


def test_one_label_for_two_variants_is_two(here: Path) -> None:
    """The label is the same, the model is not: the earlier runs are other ones."""
    assert main([*FAST, "ablation=none,relu", "seed=1"]) == 0
    assert main([*FAST, "model.n_layers=3", "ablation=none,relu", "seed=2"]) == 0
    assert {seed for _, seed in runs()} == {2}
    assert "relu (1 run)" in whole_plan(STUDY)[1]


def test_a_run_that_never_started_belongs_to_no_table(here: Path) -> None:
    assert main([*FAST, "ablation=none,relu", "seed=1,2"]) == 0
    for path in STUDY.glob("*-s2-*"):
        for inside in path.iterdir():
            inside.unlink()
        path.rmdir()
    assert main([*FAST, "ablation=none,relu", "seed=1"]) == 0
    assert runs() == [("baseline", 1), ("relu", 1)]


def test_damaged_plans_cost_their_runs_and_no_more(here: Path) -> None:
    assert main([*FAST, "ablation=none,relu", "seed=1"]) == 0
    assert main([*FAST, "ablation=none,relu", "seed=2"]) == 0
    first = min((STUDY / "plans").iterdir())
    first.write_text(first.read_text()[:-20])
    assert {seed for _, seed in runs()} == {2}
    plan = json.loads((STUDY / "plan.json").read_text())
    plan["additions"] = [{"when": 3}, "x", *plan["additions"]]
    (STUDY / "plan.json").write_text(json.dumps(plan))
    assert [addition.seeds for addition in additions(STUDY)] == [(2,)]
