"""Each line of an audit passes, fails and is not asked for what is in the files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.comparing.audit import audit, listed
from gptlab.comparing.audit_lines import Line
from tests.support.refusals import refused, refused_command
from tests.support.seeded import Arm, make_seeded
from tests.support.tuned import Curves, bowl, tuned_study

PLANNED, BEGAN = "2026-01-02T00:00:00.000+00:00", "2026-01-02T01:00:00.000+00:00"
SEEDS = range(1, 6)
TRAIN = {"budget": 100, "budget_unit": "steps"}
CURVES: Curves = {"none": bowl(), "x": bowl(0.02)}
CHOSEN: dict[str, float | None] = {"none": 0.01, "x": 0.02}
ADDED = {"when": "", "command": [], "seeds": [5], "variants": ["x"], "results": 8}
LADDER = {
    "parameters": [1e4, 3e4, 6e4, 2e5, 5e5],
    "law": {"entropy_known": False, "held_out_error_percent": 0.4},
}


def arm(label: str, shift: float, start: str = BEGAN, steps: int = 100, **more: Any) -> Arm:
    values = {seed: 3 + shift + ((seed * 7) % 5) / 50 + (shift != 0) * seed / 300 for seed in SEEDS}
    model = {} if label == "none" else {"n_layers": 3}
    manifest = {"start": start, "config": {"train": TRAIN, "model": model}}
    metrics = {"steps": steps, "accuracy": 0.5 + shift / 10, **more.pop("metrics", {})}
    return Arm(label, values, model, metrics, manifest=manifest, **more)


def study(root: Path, *arms: Arm, **plan: Any) -> Path:
    arms = arms or (arm("none", 0), arm("x", -0.3))
    curves, chosen = plan.pop("curves", CURVES), plan.pop("chosen", CHOSEN)
    plan = {"created": PLANNED, "margin": "1%", "ladder": LADDER, **plan}
    return tuned_study(root, arms, curves, chosen, **plan) if curves else make_seeded(root, arms, **plan)


def statuses(folder: Path) -> list[str]:
    return [line.status for line in audit(folder).lines]


def test_a_study_that_did_everything_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = study(tmp_path)
    found = audit(folder)
    assert [line.status for line in found.lines] == ["pass"] * 10, found.lines
    assert main(["audit", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"seeded: pass (protocol {found.protocol[:12]})")
    assert out.count("\n") == 11


@pytest.mark.parametrize(
    ("line", "plan", "status", "words"),
    [
        (1, {"margin": None}, "not asked", "no difference was named"),
        (1, {"created": "2026-01-03"}, "fail", "a run began at"),
        (1, {"created": ""}, "fail", "does not say when"),
        (2, {"curves": None}, "not asked", "one rate for all arms"),
        (2, {"curves": {**CURVES, "x": {**bowl(0.02), 0.08: 3.9}}}, "fail", "none 5, x 6"),
        (2, {"chosen": {**CHOSEN, "x": 0.04}}, "fail", "not the best of its trials: x"),
        (2, {"curves": {**CURVES, "x": bowl(0.05)}, "chosen": {**CHOSEN, "x": 0.04}}, "fail", "edge of the grid: x"),
        (2, {"curves": {**CURVES, "x": dict.fromkeys(CURVES["x"])}}, "fail", "survived on every seed: x"),
        (3, {"curves": None}, "not asked", "nothing was tuned"),
        (3, {"tuning_seeds": (5, 101)}, "fail", "also decide: 5"),
        (5, {"ladder": None}, "not asked", "one size"),
        (5, {"ladder": {"parameters": [1e4, 2e4, 3e4]}}, "fail", "3.0 times"),
        (5, {"ladder": {"parameters": []}}, "fail", "0 sizes"),
        (6, {"additions": [ADDED]}, "fail", "seeds 5"),
        (8, {"ladder": {"parameters": [1, 10, 100]}}, "not asked", "no law"),
        (8, {"ladder": {**LADDER, "parameters": [1, 10, 100, 200]}}, "fail", "4 sizes"),
        (8, {"ladder": {**LADDER, "law": {"entropy_known": True}}}, "fail", "held-out error None"),
        (9, {"curves": None}, "not asked", "0 of 10 runs failed or diverged"),
        (9, {}, "pass", "0 of 20 trials; sensitivity in nats/token: none 0.096, x 0.14"),
    ],
)  # fmt: skip
def test_each_line_by_the_plan(tmp_path: Path, line: int, plan: dict[str, Any], status: str, words: str) -> None:
    found = audit(study(tmp_path, **plan)).lines[line - 1]
    assert (found.status, words in found.reason) == (status, True), found


def test_each_line_by_the_runs(tmp_path: Path) -> None:
    big = arm("x", -0.3, metrics={"parameters": 1100, "flops_forward_per_token": 2200})
    line = audit(study(tmp_path / "a", arm("none", 0), big)).lines[3]
    assert (line.status, "x: parameters +10 %" in line.reason, line.mend) == (
        "not asked",
        True,
        "gptlab match=none,params",
    )
    assert audit(study(tmp_path / "b", arm("none", 0), big, match={"key": "params"})).lines[3].status == "fail"
    short = audit(study(tmp_path / "c", arm("none", 0), arm("x", -0.3, steps=60))).lines[6]
    assert (short.status, "x seed 1" in short.reason) == ("fail", True)
    waiting = study(tmp_path / "d", arm("none", 0), arm("x", -0.3, states={5: "planned"}))
    assert statuses(waiting)[5:7] == ["fail", "pass"]
    crashed = study(tmp_path / "e", arm("none", 0), arm("x", -0.3, states={5: "crashed"}))
    assert statuses(crashed)[5] == "fail"
    lost = study(tmp_path / "f", arm("none", 0), arm("x", -0.3, states={5: "failed"}))
    assert "x has 4 seeds: a finding takes 5" in audit(lost).lines[5].reason
    assert audit(lost).lines[8].reason.startswith("1 of 10 runs failed or diverged")


def twin(label: str, cost: str, reached: float, of: str = "", target: float = 1000) -> dict[str, Any]:
    entry = {"cost": cost, "by": "model.hidden_dim", "start": 128, "value": 85, "target": target, "plain": 1100}
    return {label: {**entry, "reached": reached, "tolerance": 1.0, "paired": True, "of": of}}


def test_a_twin_is_held_to_what_it_was_solved_for(tmp_path: Path) -> None:
    def line(name: str, parameters: float, flops: float, entry: dict[str, Any], *more: Arm) -> Any:
        cost = {"parameters": parameters, "flops_forward_per_token": flops, "training_flops": flops * 100}
        arms = (arm("none", 0, metrics={"training_flops": 200_000}), arm("x", -0.3, metrics=cost), *more)
        return audit(study(tmp_path / name, *arms, match={"twins": entry}, command=["gptlab", "match=params"])).lines[3]

    good = line("a", 1004, 2500, twin("x", "params", 1004))
    assert (good.status, "x: parameters +0.4 %" in good.reason) == ("pass", True)
    # The record says that the parameters are matched; the runs say that they are not, and only their FLOPs are.
    liar = line("b", 1100, 2000, twin("x", "params", 1000))
    assert (liar.status, "x: parameters +10 %" in liar.reason) == ("fail", True)
    assert liar.mend == "gptlab match=params match.tolerance=1"
    assert line("c", 1100, 2010, twin("x", "training_flops", 201_000, target=200_000)).status == "pass"
    body = {"parameters": 1100, "parameters/head": 600, "parameters/attention": 500}
    unequal = audit(
        study(tmp_path / "d", arm("none", 0, metrics={**body, "parameters/attention": 499}),
              arm("x", -0.3, metrics=body), match={"twins": twin("x", "params_body", 500, target=499)})
    ).lines[3]  # fmt: skip
    assert (unequal.status, "x: parameters of the blocks +0.2 %" in unequal.reason) == ("pass", True)
    plain = arm("y", -0.4, metrics={"parameters": 1100, "flops_forward_per_token": 2200})
    plain = replace(plain, model={"n_layers": 4}, manifest={**plain.manifest, "config": {"model": {"n_layers": 4}}})
    assert line("e", 1004, 2500, twin("x", "params", 1004, of="y"), plain).status == "pass"
    alone = line("f", 1004, 2500, twin("x", "params", 1004, of="z"), plain)
    assert (alone.status, "y: parameters +10 %" in alone.reason) == ("fail", True)
    assert alone.mend == "gptlab match=none,params"


def test_too_few_seeds_are_said_as_what_they_are(tmp_path: Path) -> None:
    def arms(*seeds: int) -> list[Arm]:
        made = [(arm(label, 0.1 * k), {"n_layers": 2 + k}) for k, label in enumerate(["none", *"abcdef"])]
        return [
            replace(one, values={seed: 3.0 + seed / 9 for seed in seeds}, model=model,
                    manifest={"start": BEGAN, "config": {"train": TRAIN, "model": model}})
            for one, model in made
        ]  # fmt: skip

    one, two = (audit(study(tmp_path / str(len(seeds)), *arms(*seeds))).lines[5] for seeds in ((1,), (1, 2)))
    assert (one.status, one.reason) == ("fail", "one seed was planned: a finding takes 5")
    assert two.reason == "2 seeds were planned: a finding takes 5"
    lost = [replace(a, states={5: "failed"} if a.label in "abcde" else {}) for a in arms(1, 2, 3, 4, 5)]
    assert "a, b, c, d and 1 more have 4 seeds" in audit(study(tmp_path / "l", *lost)).lines[5].reason


def test_the_first_plan_that_is_kept_is_what_counts(tmp_path: Path) -> None:
    folder = study(tmp_path)
    before = audit(folder).protocol
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plans").mkdir()
    first = {**plan, "runs": [run for run in plan["runs"] if run["seed"] < 5]}
    for name, document in (("1.json", first), ("2.json", plan)):
        (folder / "plans" / name).write_text(json.dumps(document))
    found = audit(folder)
    assert (found.lines[0].status, found.lines[0].reason) == (
        "fail",
        "2 runs of the latest plan are not in the first one",
    )
    assert found.protocol != before
    (folder / "plans" / "1.json").write_text(json.dumps({**plan, "primary_metric": "loss"}))
    assert "primary_metric was loss and is final_loss" in audit(folder).lines[0].reason


def test_exit_codes_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(study(tmp_path / "a", ladder=None)), "--format=json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["verdict"], len(document["lines"])) == (1, "not asked", 10)
    assert set(document) == {"schema", "study", "folder", "protocol_sha256", "verdict", "lines", "notes"}
    assert document["lines"][4] == {
        "line": 5, "name": "three sizes over 10x", "status": "not asked", "reason": "one size",
        "mend": "gptlab ladder=small",
    }  # fmt: skip
    assert main(["audit", str(study(tmp_path / "b", created="", ladder=None))]) == 1
    refused_command(capsys, "audit", code="audit-what")
    (tmp_path / "none").mkdir()
    with refused("no-plan"):
        audit(tmp_path / "none")


def test_an_audit_writes_nothing(tmp_path: Path) -> None:
    folder = study(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    audit(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_the_lines_are_numbered_from_one(tmp_path: Path) -> None:
    found = audit(study(tmp_path))
    numbers = [int(text.split()[0]) for text in listed(found.lines) if not text.startswith("   ")]
    assert numbers == list(range(1, len(found.lines) + 1)) == [line["line"] for line in found.to_json()["lines"]]


def test_the_study_s_command_is_said_once_and_what_is_added_to_it_below_each_line() -> None:
    command = "gptlab seed=1,2 'ablation=[a,b]'"
    judged = [
        Line("one", "fail", "no", f"{command} tune=learning_rate"),
        Line("two", "not asked", "no", command),
        Line("three", "fail", "no", "gptlab other"),
        Line("four", "pass", "yes", f"{command} never=shown"),
    ]
    text = [line.strip() for line in listed(judged, command)]
    mends = [line for line in text if not line[0].isdigit()]
    assert mends == [
        "add tune=learning_rate",
        "run the command again",
        "gptlab other",
        f"The study's command: {command}",
    ]
    assert f"{command} tune=learning_rate" in "".join(listed(judged))
    assert len(listed(judged[2:], command)) == 3, "nothing is added to it"
