"""Files that others read come back as they were: through csv, and through pandas at its defaults."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlab.config import Config
from gptlab.errors import ConfigError
from gptlab.planning.plan import expand
from gptlab.running import execute
from gptlab.show.listing import list_runs, print_rows
from gptlab.store import files
from gptlab.store.csv_text import csv_text, is_missing, unguarded
from gptlab.store.names import bare_id, short_id
from gptlab.store.study import load_study, write_tables

HOSTILE = [
    "NA", "N/A", "None", "none", "null", "nan", "NaN", " NA ", "#N/A", "<NA>", "inf", "-inf", "1e3", "4e632029",
    "410716e8", "00173538", "010", " 12 ", "True", "false", "a\rb", "a\r\nb", "a\n", "=1+1", "+x", "-5", "@x", "\tx",
    "'", "''x", 'a"b', "a,b", "\ufeff", "\x00", "1_000", "½", "\u2028",
]  # fmt: skip
texts = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)


def by_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def by_pandas(path: Path, text: str) -> list[dict[str, Any]]:
    path.write_bytes(text.encode())
    return pd.read_csv(path).to_dict("records")


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(texts, numbers, texts), min_size=1, max_size=4))
def test_a_table_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float, str]]) -> None:
    text = csv_text(("a", "b", "c"), rows)
    read = by_csv(text)
    assert [(unguarded(row["a"]), float(row["b"]), unguarded(row["c"])) for row in read] == rows
    for row, line in zip(by_pandas(tmp_path_factory.mktemp("csv") / "x.csv", text), rows, strict=True):
        for key, value in zip("abc", line, strict=True):
            found = row[key]
            if isinstance(value, str):
                assert (unguarded(found) if isinstance(found, str) else found) == value or (
                    value == "" and math.isnan(found)
                )
            else:
                assert found == pytest.approx(value, rel=1e-14)


def test_what_pandas_takes_for_missing_is_known() -> None:
    from pandas._libs.parsers import STR_NA_VALUES

    assert all(is_missing(word) for word in STR_NA_VALUES - {""})


def hostile_study(root: Path, text: str) -> Path:
    """One finished run of which everything that may be a text is `text`."""
    run_id = "4e632029" + "0" * 56
    folder = root / "study"
    run = folder / f"x-s1-{run_id[:8]}"
    run.mkdir(parents=True)
    row = {"id": run_id, "label": text, "seed": 1, "folder": run.name, "baseline_id": run_id, "overrides": [text]}
    files.write_json(folder / "plan.json", {"study": text, "question": text, "command": [text], "runs": [row]})
    generation = {"prompt": text, "text": text, "new_text": text, "token_ids": [1], "tokens": [text], "margins": [0.5]}
    files.write_json(run / "generation.json", generation)
    layers = csv_text(["step", "layer", "part", "metric", "value"], [(0, 1, text, text, 1.5)])
    files.write_text(run / "layers.csv", layers)
    files.append_jsonl(run / "metrics.jsonl", {"step": 1, "tokens": 1, "metrics": {text or "x": 2.5, "odd": math.inf}})
    result = {"id": run_id, "label": text, "seed": 1, "state": "finished", "metrics": {"loss": math.nan, "grad": 1.5}}
    files.write_json(run / "result.json", {**result, "notes": [text], "warnings": [text, text], "error": text})
    return folder


def check_tables(folder: Path, text: str) -> None:
    study = load_study(folder)
    for path in write_tables(study):
        frame: pd.DataFrame = getattr(study, path.stem)
        for read in (by_csv(path.read_bytes().decode()), pd.read_csv(path).to_dict("records")):
            assert len(read) == len(frame), path.name
            for row, line in zip(frame.astype(object).to_dict("records"), read, strict=True):
                for key, value in row.items():
                    found: Any = line[key]
                    if isinstance(value, str) and value:
                        assert unguarded(str(found)) == value, (path.name, key)
                    elif isinstance(value, float) and not math.isnan(value):
                        assert float(found) == value, (path.name, key)


@pytest.mark.parametrize("text", HOSTILE)
def test_every_table_of_a_study_comes_back(tmp_path: Path, text: str) -> None:
    folder = hostile_study(tmp_path, text)
    check_tables(folder, text)
    study = load_study(folder)
    assert study.runs.loc[0, "label"] == text and study.runs.loc[0, "run"] == "r4e632029"
    assert study.layers.loc[0, "part"] == text and study.generations.loc[0, "token"] == text
    out = io.StringIO()
    print_rows(list_runs(folder), folder, "csv", ["label", "id", "folder", "study"], file=out)
    (row,) = by_csv(out.getvalue())
    assert unguarded(row["label"]) == text and row["id"].startswith("r4e632029")


def test_numbers_that_json_lacks_are_words(tmp_path: Path) -> None:
    folder = hostile_study(tmp_path, "x")
    run = next(folder.glob("x-s1-*"))
    document = json.loads((run / "result.json").read_text(), parse_constant=pytest.fail)
    assert document["metrics"]["loss"] == "nan"
    study = load_study(folder)
    assert study.runs.loc[0, "not_finite"] == "loss"
    assert study.steps.set_index("metric").loc["odd", "value"] == math.inf
    result = files.read_json(run / "result.json")  # as older runs have it
    files.write_json(run / "result.json", {**result, "metrics": {**result["metrics"], "loss": None}})
    assert load_study(folder).runs.loc[0, "not_finite"] == "loss"


@pytest.mark.parametrize("word", ["NA", "None", "null", "nan", "N/A"])
def test_a_label_that_reads_as_missing_is_refused(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(["model=tiny", f"label={word}"])
    assert (caught.value.code, caught.value.key) == ("label-missing", "label")


def test_ids_are_read_in_both_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gptlab.show.listing import select
    from gptlab.store.find_runs import find_run

    monkeypatch.chdir(tmp_path)
    folder = hostile_study(tmp_path, "x")
    for word in ("4e632029", "r4e632029", "4e63"):
        assert find_run(word, folder).name == "x-s1-4e632029"
        assert len(select(list_runs(folder), f"id ~ {word}")) == 1
    assert select(list_runs(folder), "id ~ 4e632028") == []
    assert short_id("") == "" and bare_id("relu") == "" and bare_id("r") == ""


def test_the_tables_of_a_run_are_guarded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gptlab import probes
    from gptlab.store.run_tables import read_layers

    rows = [{"step": 0, "layer": None, "part": text, "metric": "NA", "value": 1.0} for text in HOSTILE]
    found = probes.Measurement(tables={"layers": rows})
    monkeypatch.setattr(probes, "measure", lambda probe, subject: found)
    config: Config = expand(["model=tiny", "probes=counting"]).runs[0].config
    assert execute.execute(config, tmp_path / "run")["state"] == "finished"
    read = read_layers(tmp_path / "run", {})
    assert [row["part"] for row in read][: len(HOSTILE)] == HOSTILE and {row["metric"] for row in read} == {"NA"}


def assert_comes_back(text: str, rows: list[dict[str, Any]], folder: Path) -> None:
    """Both readers, with the guard off, find these rows: texts as they were, numbers with every digit."""
    for read in (by_csv(text), by_pandas(folder / "x.csv", text)):
        assert len(read) == len(rows)
        for line, row in zip(read, rows, strict=True):
            assert list(line) == list(row)
            for key, value in row.items():
                found = line[key]
                if isinstance(value, str) and value:
                    assert unguarded(found) == value, key
                elif isinstance(value, bool):
                    assert str(found) == str(value), key
                elif isinstance(value, int | float) and math.isfinite(value):
                    assert float(found) == value, key
                else:
                    assert found == "" or math.isnan(float(found)) or float(found) == value, key


def test_a_comparison_comes_back(tmp_path: Path) -> None:
    from gptlab.comparing.assemble import compare
    from gptlab.comparing.tidy import records
    from gptlab.show.exports import export
    from gptlab.texts import printable
    from tests.support.seeded import Arm, make_seeded

    labels = [text for text in dict.fromkeys(HOSTILE) if printable(text).strip() and text != "none"]
    arms = [Arm("none", {1: 3.0, 2: 3.1})]
    arms += [Arm(label, {1: 3.0 + n, 2: 3.2 + n}, {"n_layers": n + 3}) for n, label in enumerate(labels)]
    comparison = compare([make_seeded(tmp_path, arms)])
    rows = [
        {key: printable(value) if isinstance(value, str) else value for key, value in row.items()}
        for row in records(comparison)
    ]
    assert {row["variant"] for row in rows} >= {printable(label) for label in labels}
    assert_comes_back(export(comparison, "csv"), rows, tmp_path)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(texts, st.integers(-(2**53), 2**53), texts, st.booleans()), min_size=1, max_size=4))
def test_what_an_analysis_found_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, str, bool]]
) -> None:
    from gptlab.analyses import Findings
    from gptlab.cli.analysis import write

    folder = tmp_path_factory.mktemp("analysis")
    table = [dict(zip(("name", "count", "shows", "holds"), row, strict=True)) for row in rows]
    write(Findings([(name, count, shows) for name, count, shows, _ in rows], {"mine": table}), folder)
    summary = [{"quantity": name, "value": count, "meaning": shows} for name, count, shows, _ in rows]
    assert_comes_back((folder / "summary.csv").read_bytes().decode(), summary, folder)
    assert_comes_back((folder / "mine.csv").read_bytes().decode(), table, folder)


def test_fractions_of_an_analysis_have_six_digits(tmp_path: Path) -> None:
    from gptlab.analyses import Findings
    from gptlab.cli.analysis import write

    write(Findings([("share", 1 / 3, "a third"), ("count", 163_009_536, "=all")]), tmp_path)
    assert (tmp_path / "summary.csv").read_text() == (
        "quantity,value,meaning\nshare,0.333333,a third\ncount,163009536,'=all\n"
    )


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.strip() and "\x00" not in text])
def test_the_verdicts_on_claims_come_back(tmp_path: Path, text: str) -> None:
    from gptlab.book.reproduce.claims import Claim
    from gptlab.book.reproduce.rendering import export
    from gptlab.book.reproduce.verdicts import Result

    claim = Claim(text, text, text, text, "0.023", "exact", "reproduced")
    results = [Result(claim, "reproduced", 0.0231, text), Result(claim, "differs", text, text)]
    row = {"id": text, "group": text, "source": text, "claim": text, "published": 0.023, "got": 0.0231,
           "difference": 0.0231 - 0.023, "tolerance": "exact", "verdict": "reproduced", "shows": text}  # fmt: skip
    (first, second) = by_csv(export(results, "csv"))
    assert_comes_back(export(results[:1], "csv"), [row], tmp_path)
    assert (unguarded(second["got"]), second["difference"], first["published"]) == (text, "", "0.023")


def test_the_tables_of_a_run_from_python_have_no_guard(tmp_path: Path) -> None:
    from gptlab.api import Run

    lines = [(0, 1, text, "norm", 1.5) for text in HOSTILE] + [(0, None, "", "norm", 2.5)]
    files.write_text(tmp_path / "layers.csv", csv_text(["step", "layer", "part", "metric", "value"], lines))
    files.write_json(tmp_path / "result.json", {"state": "finished"})
    frame = Run(tmp_path, {"state": "finished"}).layers
    assert frame["part"].tolist()[:-1] == HOSTILE and frame["part"].isna().tolist()[-1]
    assert frame["layer"].isna().sum() == 1 and frame["value"].tolist() == [1.5] * len(HOSTILE) + [2.5]
