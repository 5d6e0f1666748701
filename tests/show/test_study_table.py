from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gptlab.show.finish import finish_study
from gptlab.show.study_table import look_alikes, print_study
from gptlab.store.study import load_study
from tests.support.refusals import refused
from tests.support.synthetic import BASELINE, MLP, TWELVE, Variant, make_study


def shown(root: Path, variants: Sequence[Variant] = TWELVE, width: int | None = 100, **options: Any) -> str:
    out = io.StringIO()
    print_study(load_study(make_study(root, variants, **options)), width, out)
    return out.getvalue()


@pytest.mark.parametrize("width", [30, 60, 80, 100, 120, 160, 250])
def test_at_any_width_every_number_is_whole(tmp_path: Path, width: int) -> None:
    text = shown(tmp_path, width=width)
    study = load_study(tmp_path / "chapter4" / "2026-01-02_03-04-05-000006")
    for run in study.runs.to_dict("records"):
        if run["state"] == "finished":
            assert f"{run['parameters']:,}" in text
            assert f"{run['loss']:.4f}" in text
    for number in ("-28,329,984", "-17.38%", "4.42e-07", "x5e-07", "3.15e-15", "+0.0413", "621.8"):
        assert re.search(rf"(^|\s){re.escape(number)}($|\s)", text), number
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    if width >= 80:
        tables = text[: text.index("Files: ")].splitlines()
        assert max(map(len, tables)) <= width


def test_without_a_terminal_it_is_plain_and_asks_for_no_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        text = shown(tmp_path, width=None)
    assert "\x1b" not in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_generated_text_cannot_steer_the_terminal_or_the_markup(tmp_path: Path) -> None:
    text = shown(tmp_path, [BASELINE, TWELVE[6]], width=160)
    assert r"Feature\n\n [red]bold[/red]\x1b[31m" in text
    assert "\x1b" not in text


def test_the_first_token_that_differs_is_named(tmp_path: Path) -> None:
    text = shown(tmp_path, TWELVE[:4], width=160)
    assert re.search(r"relu +token 5 +Feature iman Byeswick stew argue", text)
    assert re.search(r"post_ln +token 1 +rooft", text)


def test_an_output_without_unicode_gets_escapes_instead_of_an_error(tmp_path: Path) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    print_study(load_study(make_study(tmp_path, [BASELINE, replace(TWELVE[6], label="größe")])), 100, out)
    text = raw.getvalue().decode("ascii")
    assert "gr\\xf6\\xdfe" in text
    assert "163,009,536" in text


def test_a_failed_run_is_a_row_with_the_first_line_of_its_error(tmp_path: Path) -> None:
    text = shown(tmp_path, width=160)
    assert re.search(r"wide_heads +failed +n_heads: 12 -> 7\n", text)
    assert "RuntimeError: shape '[2, 64, 7, 109]'" in text
    assert "line two" not in text
    assert "Finished: 12 of 13 runs (1 failed)." in text


def test_crashed_and_planned_runs_are_rows(tmp_path: Path) -> None:
    text = shown(tmp_path, [BASELINE, Variant("gone", state="crashed"), Variant("later", state="planned")])
    assert re.search(r"gone +crashed", text)
    assert re.search(r"later +planned", text)


def test_differences_are_to_the_baseline_of_the_same_seed(tmp_path: Path) -> None:
    text = shown(tmp_path, [TWELVE[1], BASELINE], seeds=(123, 124), width=160)
    rows = [line.split() for line in text.splitlines() if re.match(r"(none|post_ln)? +12[34] .*\d\.\d{4}", line)]
    losses = [row for row in rows if "10.9800" in row or "11.0213" in row or "10.9810" in row or "11.0223" in row]
    assert [row[0] for row in losses] == ["none", "124", "post_ln", "124"]  # the baseline first, a label only once
    assert [row[-1] for row in losses if row[0] == "post_ln" or "11.0223" in row] == ["+0.0413", "+0.0413"]


def test_without_a_baseline_there_are_no_differences(tmp_path: Path) -> None:
    text = shown(tmp_path, TWELVE[1:4], baseline=None)
    assert "difference" not in text
    assert "ratio" not in text
    assert "No baseline." in text


def test_a_single_run_and_a_network_that_reads_no_words(tmp_path: Path) -> None:
    assert "difference" not in shown(tmp_path / "one", [BASELINE])
    text = shown(tmp_path / "mlp", MLP)
    assert "continuation" not in text
    assert re.search(r"no_shortcut .* \S+e-06 +x0\.0006", text)


def test_nothing_but_failures_is_still_a_table(tmp_path: Path) -> None:
    text = shown(tmp_path, [Variant("none", state="failed", error="ValueError: no")])
    assert re.search(r"none +failed", text)
    assert "Finished: 0 of 1 runs (1 failed)." in text


def test_warnings_of_the_runs_stand_below_the_table(tmp_path: Path) -> None:
    text = shown(tmp_path, [BASELINE, replace(TWELVE[7], warnings=["the initial loss 436 is far from 10.82"])])
    assert "Warning: tied: the initial loss 436 is far from 10.82" in text


def test_variants_that_measure_exactly_the_same_are_pointed_out(tmp_path: Path) -> None:
    twin = replace(BASELINE, label="twin", delta={"model.n_heads": (12, 6)})
    other = replace(BASELINE, label="other", scale=1.0000001)
    text = shown(tmp_path, [BASELINE, twin, other], seeds=(123, 124), width=200)
    assert text.count("none and twin measured exactly the same: are they the same model?") == 1
    assert "other measured" not in text
    assert "Dropout" not in text


def test_variants_that_train_apart_are_not_the_same(tmp_path: Path) -> None:
    study = load_study(make_study(tmp_path, [BASELINE, replace(BASELINE, label="twin", delta={"train.clip": (1, 2)})]))
    for apart in (False, True):
        study.runs["final_loss"] = [2.5, 2.4 if apart else 2.5]
        assert bool(look_alikes(study)) != apart


def test_dropout_is_named_where_it_explains_the_likeness(tmp_path: Path) -> None:
    dry = replace(BASELINE, label="no_dropout", delta={"model.drop_rate": (0.1, 0.0)})
    assert "Dropout acts in training only." in " ".join(shown(tmp_path, [BASELINE, dry]).split())


def test_a_loss_that_is_not_finite_says_so(tmp_path: Path) -> None:
    folder = make_study(tmp_path, TWELVE[:2])
    path = next(folder.glob("post_ln-*")) / "result.json"
    result = json.loads(path.read_text())
    result["metrics"]["loss"] = None
    path.write_text(json.dumps(result))
    out = io.StringIO()
    print_study(load_study(folder), 160, out)
    assert "not finite" in out.getvalue()


def test_finishing_a_study_leaves_tables_and_figures(tmp_path: Path) -> None:
    folder = make_study(tmp_path, TWELVE[:2])
    out = io.StringIO()
    study = finish_study(folder, 100, out)
    assert len(study.runs) == 2
    assert "163,009,536" in out.getvalue()
    made = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.parent.name in (folder.name, "figures")
    }
    names = [
        f"figures/{stem}.{end}"
        for stem in ("gradient_norm", "gradient_mean_abs", "parameters")
        for end in ("svg", "png")
    ]
    assert {"runs.csv", "layers.csv", "generations.csv", *names} <= made
    assert not list(folder.rglob(".*"))


@pytest.mark.parametrize("blocked", ["runs.csv", "figures"])
def test_a_folder_that_takes_no_files_is_one_sentence_after_the_table(tmp_path: Path, blocked: str) -> None:
    folder = make_study(tmp_path, [BASELINE])
    if blocked == "figures":
        (folder / blocked).write_text("in the way")
    else:
        (folder / blocked).mkdir()
    out = io.StringIO()
    with refused("tables-not-written", folder=folder):
        finish_study(folder, 100, out)
    assert "163,009,536" in out.getvalue()
