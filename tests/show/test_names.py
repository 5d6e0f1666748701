"""`experiment.labels` and `--label`: what readers see, while files and choices keep the labels."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.comparing.naming import named_plan, names_of
from gptlab.declare.composer import compose
from gptlab.errors import GptlabError
from gptlab.identity import identity
from gptlab.planning.plan import expand
from gptlab.show.exports import export
from gptlab.store.study_plan import PlanEntry, StoredPlan
from gptlab.twin import Twin
from tests.support.refusals import refused
from tests.support.seeded import Arm, make_seeded

PLAN = ["model=tiny", "ablation=none,relu,post_ln"]


def _named(folder: Path, names: dict[str, str]) -> Path:
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "labels": names}))
    return folder


def _study(root: Path) -> Path:
    arms = [
        Arm("none", {1: 3.0, 2: 3.1, 3: 3.2}),
        Arm("post_ln", {1: 3.3, 2: 3.5, 3: 3.6}, {"norm_placement": "post"}),
        Arm("relu", {1: 3.0, 2: 3.0, 3: 3.0}, {"activation": "relu"}),
    ]
    return _named(make_seeded(root, arms), {"post_ln": "Post-LN", "none": "GPT-2"})


@pytest.mark.parametrize(
    "typed",
    [
        ["experiment.labels={post_ln: Post-LN, relu: ReLU}"],
        ["experiment.labels.post_ln=Post-LN", "experiment.labels.relu=ReLU"],
    ],
)
def test_a_plan_keeps_the_names_and_the_runs_stay_themselves(typed: list[str]) -> None:
    plan = expand([*PLAN, *typed])
    assert plan.to_json()["labels"] == {"post_ln": "Post-LN", "relu": "ReLU"}
    assert [run.id for run in plan.runs] == [run.id for run in expand(PLAN).runs]
    assert [run.label for run in plan.runs] == [run.label for run in expand(PLAN).runs]
    assert identity(compose(typed)) == identity(compose())


def test_a_name_is_text_whatever_it_holds() -> None:
    assert expand([*PLAN, "experiment.labels.relu=ReLU, 1e3 [no]"]).labels == {"relu": "ReLU, 1e3 [no]"}


def test_an_experiment_may_name_more_variants_than_one_command_runs() -> None:
    assert expand([*PLAN, "experiment.labels={rope: RoPE, relu: ReLU, rope+relu: both}"]).labels == {"relu": "ReLU"}


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ("{post_in: Post-LN}", "unknown-name"),
        ("{post_ln: relu}", "name-twice"),
        ("{post_ln: X, relu: X}", "name-twice"),
        ("{post_ln: 'NA'}", "name-for-missing"),
    ],
)
def test_names_that_would_mislead_are_refused_when_planned(labels: str, code: str) -> None:
    with pytest.raises(GptlabError) as caught:
        expand([*PLAN, f"experiment.labels={labels}"])
    assert caught.value.code == code


def test_tables_have_names_and_data_has_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _study(tmp_path)
    for form in ("table", "md", "latex", "html"):
        assert main(["compare", str(folder), "--format", form, "--label", "relu=Rectified"]) == 0
        shown = capsys.readouterr().out
        assert "Post-LN" in shown and "GPT-2" in shown and "Rectified" in shown, form
        assert "post_ln" not in shown.replace("norm_placement", "") and "post\\_ln" not in shown, form
    assert main(["compare", str(folder), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["variant"] for row in rows} == {"none", "post_ln", "relu"}
    assert main(["compare", str(folder), "--format", "json"]) == 0
    assert "Post-LN" not in json.dumps(json.loads(capsys.readouterr().out)["rows"])


def test_variants_are_chosen_by_their_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _study(tmp_path)
    named = compare([folder], baseline="post_ln", labels={"relu": "ReLU"})
    plain = compare([folder], baseline="post_ln")
    assert [row.label for row in named.rows] == ["Post-LN", "GPT-2", "ReLU"]
    assert [row.label for row in plain.rows] == ["post_ln", "none", "relu"]
    assert named.row("ReLU").baseline == "Post-LN"
    assert named.row("ReLU").cell("final_loss").p == plain.row("relu").cell("final_loss").p


def test_the_report_and_the_figures_have_names(tmp_path: Path) -> None:
    folder = _study(tmp_path)
    assert main(["report", str(folder), "--label", "relu=Rectified"]) == 0
    page = (folder / "report.html").read_text()
    assert "Post-LN" in page and "Rectified" in page and "post_ln" not in page


def _plan(*labels: str) -> StoredPlan:
    return StoredPlan("s", "", (), labels[0], "", tuple(PlanEntry(label, label, 1, label) for label in labels))


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        (["post_in=X"], "unknown-name"),
        (["post_ln="], "label-without-name"),
        (["relu=X", "relu=Y"], "label-given-twice"),
        (["relu=NA"], "name-for-missing"),
    ],
)
def test_a_wrong_option_is_refused(typed: list[str], code: str) -> None:
    with pytest.raises(GptlabError) as caught:
        names_of([_plan("none", "relu", "post_ln")], typed)
    assert caught.value.code == code


def test_a_name_that_collides_is_refused_by_its_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _study(tmp_path)
    for command in (["compare", str(folder)], ["report", str(folder)], ["figures", "--study", str(folder)]):
        assert main([*command, "--label", "relu=Post-LN"]) == 2
        assert capsys.readouterr().err.startswith("gptlab: --label Post-LN: ")
    assert main(["compare", str(folder), "--label", "rleu=X"]) == 2
    assert capsys.readouterr().err.count("post_ln") == 1  # each label once


def test_a_caption_of_the_users_own_leaves_the_qualification_below_the_table(tmp_path: Path) -> None:
    text = export(compare([_study(tmp_path)]), "latex", ["mean_sd", "verdict"], "Norms")
    assert r"\caption{Norms}" in text and "exploratory" in text.partition(r"\end{tabular}")[2]


def test_a_matched_twin_goes_by_its_name_wherever_it_is_spoken_of() -> None:
    twin = Twin("params", "model.hidden_dim", 128, 85, 43712, 50000, 43732, 1.0, True, of="glu")
    plan = StoredPlan("s", "", (), "none", "", (), twins={"glu+match": twin})
    (named,) = named_plan(plan, {"glu": "GLU", "glu+match": "GLU, matched"}).twins.items()
    assert (named[0], named[1].of) == ("GLU, matched", "GLU")


def test_a_label_may_hold_an_equals_sign() -> None:
    assert names_of([_plan("n_layers=12", "n_layers=1")], ["n_layers=12=Deep = 12"]) == {"n_layers=12": "Deep = 12"}


@pytest.mark.parametrize("typed", ["post_ln", "Post-LN"])
@pytest.mark.parametrize("labels", [None, {}, {"relu": "ReLU"}])
def test_a_baseline_is_chosen_by_its_label_or_by_its_name(
    tmp_path: Path, typed: str, labels: dict[str, str] | None
) -> None:
    found = compare([_study(tmp_path)], baseline=typed, labels=labels)
    assert found.baseline == ("post_ln" if labels is None else "Post-LN")
    assert {row.baseline for row in found.rows} == {None, found.baseline}


@pytest.mark.parametrize("labels", [None, {}])
def test_a_baseline_that_nobody_is_lists_labels_and_names(tmp_path: Path, labels: dict[str, str] | None) -> None:
    with refused("unknown-name", key="baseline", value="Post-NL", suggestion="Post-LN") as caught:
        compare([_study(tmp_path)], baseline="Post-NL", labels=labels)
    assert caught.value.facts["allowed"] == ["GPT-2", "Post-LN", "none", "post_ln", "relu"]
