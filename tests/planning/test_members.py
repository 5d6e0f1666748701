"""on_invalid=skip: members of a sweep that contradict themselves are named and left out; mistakes never are."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptlab.identity import identity
from gptlab.planning.plan import Plan, expand
from tests.support.refusals import refused

TINY = ["model=tiny", "data=random_tokens"]
SKIP = [*TINY, "on_invalid=skip"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def heads(plan: Plan) -> list[int]:
    return [run.config.model.n_heads for run in plan.runs]


def test_heads_that_do_not_divide_are_named_and_left_out() -> None:
    plan = expand([*SKIP, "model.n_heads=1,2,3,4,5"])
    assert heads(plan) == [1, 2, 4]
    assert [one["overrides"] for one in plan.skipped] == ["model.n_heads=3", "model.n_heads=5"]
    assert all("divisible" in one["reason"] for one in plan.skipped)
    assert plan.to_json()["skipped"] == list(plan.skipped)
    assert "2 of 5" in plan.notes[0] and "model.n_heads=3" in plan.notes[1]


def test_refusing_stays_the_default() -> None:
    with refused("heads-divide", key="model.n_heads", value=3, emb_dim=32, suggestion=2):
        expand([*TINY, "model.n_heads=2,3"])
    plan = expand([*TINY, "model.n_heads=2,4"])
    assert plan.skipped == () and "skipped" not in plan.to_json()


def test_nothing_left_is_refused() -> None:
    with refused("heads-divide", key="model.n_heads", value=3, emb_dim=32, suggestion=2):
        expand([*SKIP, "model.n_heads=3,5"])


@pytest.mark.parametrize(
    ("wrong", "code", "value"),
    [
        ("model.activation=relu,gleu", "unknown-name", "gleu"),
        ("model.norm=rmsnorm,lyernorm", "unknown-name", "lyernorm"),
        ("model.n_heads=2,two", "wrong-type", "two"),
        ("model.n_layers=1,-1", "out-of-range", -1),
    ],
)
def test_a_mistake_is_refused_all_the_same(wrong: str, code: str, value: object) -> None:
    with refused(code, key=wrong.partition("=")[0], value=value):
        expand([*SKIP, wrong])


def test_a_cell_in_which_a_key_is_not_read_is_left_out() -> None:
    plan = expand([*SKIP, "model.attention=multi_head,identity", "model.n_kv_heads=1,2"])
    assert len(plan.runs) == 2
    assert {one["overrides"].split()[0] for one in plan.skipped} == {"model.attention=identity"}


@pytest.fixture
def _wide() -> None:
    """An ablation that mends what is wrong with its baseline: five heads divide 40, not 32."""
    Path("conf/ablation").mkdir(parents=True)
    Path("conf/ablation/wide.yaml").write_text("# @package _global_\nmodel: {emb_dim: 40}\n")


@pytest.mark.usefixtures("_wide")
@pytest.mark.parametrize("ablation", ["wide", "none,wide"])
def test_a_run_whose_baseline_cannot_be_built_is_left_out_with_it(ablation: str) -> None:
    plan = expand([*SKIP, "model.n_heads=4,5", f"ablation={ablation}"])
    assert [(run.label, run.config.model.n_heads) for run in plan.runs] == [("baseline", 4), ("wide", 4)]
    lost = plan.skipped[-1]
    assert "model.n_heads=5" in lost["overrides"] and "baseline" in lost["reason"] and "divisible" in lost["reason"]
    assert any("model.n_heads=5" in note and "baseline" in note for note in plan.notes)


@pytest.mark.usefixtures("_wide")
@pytest.mark.parametrize("words", [[*TINY, "model.n_heads=4,5"], [*SKIP, "model.n_heads=5"]])
def test_a_baseline_that_cannot_be_built_is_refused_by_its_key(words: list[str]) -> None:
    typed = [*words[:-1], "model.n_heads=5", "ablation=wide"]
    with refused("heads-divide", key="model.n_heads", baseline_of=typed) as caught:
        expand([*words, "ablation=wide"])
    for way in ("experiment.baseline=", "add_baseline=false"):
        assert way in f"{caught.value}"


@pytest.mark.usefixtures("_wide")
def test_without_a_baseline_it_runs_alone_and_says_so() -> None:
    plan = expand([*TINY, "model.n_heads=5", "ablation=wide", "add_baseline=false"])
    (run,) = plan.runs
    assert run.baseline_id is None and not run.delta
    assert any("compared with nothing" in note for note in plan.notes)


def test_skipping_changes_no_run() -> None:
    (one,), (two,) = expand(TINY).runs, expand(SKIP).runs
    assert identity(one.config) == identity(two.config) and one.id == two.id
    with refused("key-cannot-be-swept", key="on_invalid"):
        expand([*TINY, "on_invalid=skip,refuse"])
