"""The report as a file: what stands in it without any script."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.comparing.audit import audit
from gptlab.show.exports import export
from gptlab.show.finish import finish_study
from gptlab.show.report.page import write_report
from gptlab.show.report.payload import packed, script_json
from gptlab.show.report.svg import inline
from gptlab.show.report.verdicts import PAGE_COLUMNS, verdicts
from gptlab.show.surprises import surprises
from gptlab.store.study import load_study
from gptlab.texts import printable
from tests.support.hostile import ATTACK, NAMES, make_hostile
from tests.support.refusals import refused_command
from tests.support.seeded import Arm, make_seeded
from tests.support.synthetic import BASELINE, TWELVE, Variant, make_study
from tests.support.trained import make_trained

HEADERS = [column.header for column in PAGE_COLUMNS]
VOID = {"meta", "img", "input", "br", "hr", "link", "wbr"}


class Page(HTMLParser):
    """Elements with their attributes, the text of each table's cells, and what is not closed or appears twice."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._table = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._table = found.get("id") or f"table{len(self.tables)}"
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("")
        if tag == "script":
            self.scripts.append((found, ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        if "td" in self.open or "th" in self.open:
            self.tables[self._table][-1][-1] += ("\n" if self.open[-1] == "small" else "") + data

    @property
    def data(self) -> dict[str, Any]:
        """The page's data."""
        return next(json.loads(text) for attributes, text in self.scripts if attributes.get("id") == "data")


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures: they take most of the time, and the test is not about them."""
    monkeypatch.setattr("gptlab.show.report.page.figures", lambda *_: iter(()))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_trained(tmp_path_factory.mktemp("trained"), diverged="relu")


@pytest.fixture(scope="module")
def page(trained: Path) -> Page:
    return read(write_report(trained))


def test_it_is_well_formed_and_every_id_is_there_once(page: Page) -> None:
    assert (page.wrong, page.open) == ([], [])
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {
        str(attributes[name]).lstrip("#")
        for _, attributes in page.elements
        for name in ("href", "xlink:href", "aria-labelledby")
        if attributes.get(name)
    }
    assert wanted <= set(ids)


def test_it_asks_no_network_for_anything(page: Page) -> None:
    policy = next(str(a["content"]) for t, a in page.elements if t == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    script = next(text for attributes, text in page.scripts if "id" not in attributes)
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "image", "base", "form"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "action", "ping"}
            if name in ("href", "xlink:href"):
                assert str(value).startswith("#")
        assert "url(http" not in str(attributes.get("style"))


def test_the_table_says_what_the_comparison_says(page: Page, trained: Path) -> None:
    comparison = compare([trained])
    head, *lines = page.tables["verdicts-table"]
    assert head == [column.header for column in PAGE_COLUMNS]
    small = verdicts(comparison, "loss").small
    for row, line, below in zip(comparison.rows, lines, small, strict=True):
        cell = row.cell("loss")
        told = dict(zip(head, line, strict=True))
        assert told["variant"] == row.label
        assert told["verdict"] == "\n".join([cell.said, *below])
        assert told["changed"] == "(baseline)" or row.baseline
        assert float(told["mean"]) == pytest.approx(cell.mean, abs=5e-4)
        if cell.low is not None and cell.high is not None and cell.difference is not None:
            low, high = map(float, told["95 % interval"].split(" to "))
            width = cell.high - cell.low
            assert (low, high) == pytest.approx((cell.low, cell.high), abs=width / 15)
            assert float(told["difference"]) == pytest.approx(cell.difference, abs=width / 15)


def unpacked(packed: Any, size: int) -> list[Any]:
    if isinstance(packed, list):
        return packed
    return [packed["distinct"][place] for place in packed["of"]] if "of" in packed else [packed["all"]] * size


def test_the_data_has_every_runs_value_and_the_primary_metric_against_every_baseline(page: Page, trained: Path) -> None:
    comparison, data = compare([trained]), page.data
    size = len(comparison.rows)
    seeds = unpacked(data["seeds"], size)
    assert data["runs"].keys() == {*comparison.metrics, "seconds"}
    for name, packed_texts in data["runs"].items():
        texts = iter(unpacked(packed_texts, sum(map(len, seeds))))
        for row, own in zip(comparison.rows, seeds, strict=True):
            for seed in own:
                value, text = row.values.get((name, None), {}).get(seed), next(texts)
                assert text == "" if value is None else float(text) == pytest.approx(value, rel=1e-4)
    assert len(data["others"]) == size
    for base, view in zip(comparison.rows, data["others"], strict=True):
        other = compare([trained], baseline=base.label)
        assert [data["labels"][place] for place in view["order"]] == [row.label for row in other.rows]
        assert unpacked(view["words"], size) == [row.cell("loss").verdict.replace(" ", "-") for row in other.rows]
        expected = verdicts(other, "loss")
        for column, texts in zip(expected.columns, expected.texts, strict=True):
            assert unpacked(view["columns"][column.name], size) == texts, column.name


@pytest.mark.usefixtures("plain")
def test_failures_come_with_their_reasons(page: Page, tmp_path: Path) -> None:
    rows = [line for table in page.tables.values() for line in table]
    assert any(line[:4] == ["relu", "5", "diverged", "the loss is not finite at step 1050"] for line in rows)
    variants = [BASELINE, Variant("a", state="crashed"), Variant("b", state="planned"), TWELVE[-1]]
    text = write_report(make_study(tmp_path, variants)).read_text(encoding="utf-8")
    for words in (
        "result.json is missing",
        "never started",
        "is invalid for input of size 98304",
        "more detail on line",
    ):
        assert words in html.unescape(text)


@pytest.mark.usefixtures("plain")
def test_generated_texts_mark_the_first_token_that_differs(tmp_path: Path) -> None:
    text = write_report(make_study(tmp_path, TWELVE)).read_text(encoding="utf-8")
    assert '<span class="same"> Feature iman Byeswick</span><mark> stew</mark> argue logger' in text
    assert "differs from token 5 on; the baseline has \u201cattribute\u201d" in html.unescape(text)


def test_changes_and_commands_are_there(page: Page) -> None:
    rows = [line for table in page.tables.values() for line in table]
    assert ["rmsnorm", "model.activation", "gelu_tanh", "rmsnorm"] in rows


def test_the_same_study_gives_the_same_bytes(tmp_path: Path) -> None:
    trained = make_trained(tmp_path, ("none", "relu"), (1, 2))
    assert write_report(trained, tmp_path / "a").read_bytes() == write_report(trained, tmp_path / "b").read_bytes()


@pytest.mark.slow
def test_hostile_names_are_text_everywhere(tmp_path: Path) -> None:
    folder = make_hostile(tmp_path)
    path = write_report(folder)
    page = read(path)
    assert (page.wrong, page.open) == ([], [])
    assert len(page.scripts) == 2
    assert not [
        tag for tag, attributes in page.elements if tag == "img" or any(name.startswith("on") for name in attributes)
    ]
    escaped = [name.encode("utf-8", "backslashreplace").decode() for name in (*NAMES, f"failed {ATTACK}")]
    assert page.data["labels"] == [printable(name) for name in escaped]
    shown = {line[0] for line in page.tables["verdicts-table"]}
    assert {printable(name) for name in escaped[:-1]} <= shown
    text = path.read_text(encoding="utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\u2028]", text)
    assert "49" not in shown
    assert not [message for message in page.elements if message[0] == "svg" and "onload" in message[1]]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_one_run_and_few_seeds(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    one = read(write_report(make_study(tmp_path / "one", TWELVE[:1], seeds)))
    assert len(one.tables["verdicts-table"]) == 2
    path = write_report(make_study(tmp_path / "two", TWELVE[:2], seeds))
    two = read(path)
    assert ("One seed: cannot" if len(seeds) == 1 else "Two seeds: a range") in path.read_text(encoding="utf-8")
    assert two.tables["verdicts-table"][2][HEADERS.index("verdict")] == ""


@pytest.mark.usefixtures("plain")
def test_missing_seeds_are_said_once_above_a_table_of_values(tmp_path: Path) -> None:
    text = write_report(make_study(tmp_path, TWELVE[:4])).read_text(encoding="utf-8")
    page, visible = (
        Page(text),
        html.unescape(re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)).replace("<wbr>", ""),
    )
    assert visible.count("One seed: cannot be told from noise.") == 1
    assert "gptlab experiment=chapter4 seed=123,124,125,126,127" in visible
    assert 'class="summary"' not in text
    silent = [a["data-key"] for tag, a in page.elements if tag == "th" and a.get("data-extra") == "always"]
    assert {"sd", "interval", "p_corrected", "verdict"} <= set(silent)
    assert page.tables["verdicts-table"][2][HEADERS.index("difference")] == "+0.0413"


@pytest.mark.usefixtures("plain")
def test_all_that_was_measured_stands_in_the_file_with_its_verdict(tmp_path: Path) -> None:
    path = write_report(make_study(tmp_path, TWELVE[:4], (1, 2, 3, 4, 5)))
    page = read(path)
    table = next(rows for rows in page.tables.values() if rows and "grad norm last\nL2 norm" in rows[0])
    assert table[0][:3] == ["variant", "grad norm\nL2 norm", "grad norm first\nL2 norm"]
    assert table[1][0] == "none"
    assert re.fullmatch(r"x0\.[0-9]+\nclear difference", table[3][1])  # no_shortcut
    assert not any("seconds" in head for head in table[0])
    assert page.data["timing"] == ["seconds"]
    one = write_report(make_study(tmp_path / "one", TWELVE[:4])).read_text(encoding="utf-8")
    assert "too few" not in re.search(r'<section id="others".*?</section>', one, re.DOTALL)[0]  # type: ignore[index]


@pytest.mark.usefixtures("plain")
def test_the_audit_stands_at_the_top_as_the_command_says_it(tmp_path: Path) -> None:
    arms = [Arm("none", {1: 3.0, 2: 3.1, 3: 3.2}, {}, {"steps": 9}), Arm("x", {1: 3, 2: 3, 3: 3}, {"n_layers": 9})]
    folder = make_seeded(tmp_path, arms, created="2026-01-01", command=["gptlab", "ablation=none,x"])
    path = write_report(folder)
    text, found = path.read_text(encoding="utf-8"), audit(folder)
    page, told = Page(text), [[line.name, line.status] for line in found.lines]
    table = next(rows for rows in page.tables.values() if rows[0] == ["line", "question", "answer"])
    assert [[line[1].partition("\n")[0], line[2]] for line in table[1:]] == told
    assert all(line.reason in html.unescape(text) for line in found.lines)
    assert text.index('<details class="audit" open>') < text.index('id="verdicts"')
    assert f"Protocol: {found.counted}" in text and "3 seeds were planned" in text
    assert "add <code>tune=learning_rate</code>" in text  # and not the whole command again and again
    (folder / "plan.json").unlink()
    assert 'class="audit"' not in write_report(folder).read_text(encoding="utf-8")


@pytest.mark.usefixtures("plain")
def test_shapes_stand_in_the_report_with_the_name_of_their_file(tmp_path: Path) -> None:
    head = "order,module,type,output_shape,elements,bytes\n"
    lines = ['0,trf_blocks.0.att.scores,queries x keys,"(2, 4, 4, 4)",128,51200', '1,trf_blocks.1,Serial,"(2, 4)",8,32']
    whole = {"shapes.csv": head + "".join(f"{line}\n" for line in [*lines, '2,out_head,Linear,"(2, 9)",18,72'])}
    arms = [
        Arm("none", {1: 3.0, 2: 3.1}, files=whole), Arm("torn", {1: 3.0}, {"n_layers": 9}, files={"shapes.csv": "a\n1"})
    ]  # fmt: skip
    folder = make_seeded(tmp_path, arms)
    path = write_report(folder)
    page = read(path)
    table = next(rows for rows in page.tables.values() if rows and rows[0] == ["module", "type", "shape", "bytes"])
    assert table[1:] == [
        ["trf_blocks.0.att.scores", "queries x keys", "(2, 4, 4, 4)", "51,200"],
        ["... 1 more block", "", "", ""],
        ["out_head", "Linear", "(2, 9)", "72"],
    ]
    text = path.read_text(encoding="utf-8")
    assert re.search(r"All rows: <code>.*-s1/shapes.csv</code>", text)
    assert text.count('class="shapes"') == 1  # what cannot be read is passed over
    counted = [Arm(name, {1: 1000}, {"n_layers": k}) for k, name in enumerate(("none", "x"))]
    one = make_seeded(tmp_path / "one", counted, metric="parameters", primary_metric="loss")
    assert 'class="summary"' not in write_report(one).read_text(encoding="utf-8")  # nothing was measured, and all ended
    assert "trf_<wbr>blocks.<wbr>0.<wbr>att.<wbr>scores" in text  # a phone breaks the name at its joints


@pytest.mark.usefixtures("plain")
def test_what_surprises_and_what_runs_warn_of_stand_in_the_report(tmp_path: Path) -> None:
    loud = [BASELINE, replace(TWELVE[7], warnings=["the initial loss 436 is far from 10.82"])]
    text = html.unescape(write_report(make_study(tmp_path, loud)).read_text(encoding="utf-8"))
    assert "<li>tied: the initial loss 436 is far from 10.82</li>" in text
    without = Variant("no_shortcut", {"model.shortcut": ("add", "none")}, scale=9)
    study = load_study(make_study(tmp_path / "b", [BASELINE, without]))
    assert surprises(study)
    text = html.unescape(write_report(study.folder).read_text(encoding="utf-8"))
    assert all(f'<p class="note">{note}</p>' in text for note in surprises(study))


def test_nothing_finished_is_a_report_too(tmp_path: Path) -> None:
    folder = make_study(tmp_path, [Variant("none", state="failed", error="ValueError: no")])
    assert "ValueError: no" in write_report(folder).read_text(encoding="utf-8")


def test_script_json_cannot_end_the_script() -> None:
    value = {ATTACK: ["<!--", "]]>", "\u2028", "\ud800", 1e300, None]}
    text = script_json(value)
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == {ATTACK: ["<!--", "]]>", "\u2028", "\ud800", 1e300, None]}


def test_equal_lists_are_stored_once() -> None:
    assert packed([(1, 2), (1, 2)]) == {"all": (1, 2)}
    assert packed(["a", "b"]) == ["a", "b"]
    assert packed(["a", "b", "a", "b", "a"]) == {"distinct": ["a", "b"], "of": [0, 1, 0, 1, 0]}


def test_a_figure_in_the_page_has_its_own_ids_and_the_pages_colours() -> None:
    source = (
        '<?xml version="1.0"?><svg xmlns="x" width="1pt" viewBox="0 0 378 99"><metadata>m</metadata><!-- c -->'
        '<g id="a" style="fill: #1b1b1b; clip-path: url(#b)"><use xlink:href="#a"/><path d="M 1.23456 2"/></g></svg>'
    )
    assert inline(source, "p", 'say "x"') == (
        '<svg viewBox="0 0 378 99" style="max-width: 33.0rem; min-width: min(50rem, 33.0rem)" role="img" '
        'aria-label="say &quot;x&quot;">'
        '<g id="p-a" style="fill: var(--figure-ink, #1b1b1b); clip-path: url(#p-b)"><use xlink:href="#p-a"/>'
        '<path d="M 1.23 2"/></g></svg>'
    )


@pytest.mark.usefixtures("plain")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_study(tmp_path, TWELVE[:2], (1, 2, 3))
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert main(["report", str(folder), "-o", str(tmp_path / "x.html"), "--margin", "1%"]) == 0
    assert "A difference within 1% counts as equivalent" in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ([], "report-takes-one-study", {"value": []}),
        (["a", "b"], "report-takes-one-study", {"value": ["a", "b"]}),
        (["no/such"], "report-no-such-folder", {"value": "no/such"}),
        (["--outptu", "x"], "unknown-name", {"key": "option", "value": "--outptu", "suggestion": "--output"}),
        (["x", "-o"], "option-value", {"key": "--output"}),
    ],
)
def test_the_users_mistakes(
    arguments: list[str], code: str, facts: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    refused_command(capsys, "report", *arguments, code=code, **facts)


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_study(tmp_path, TWELVE[:1])
    target = str(tmp_path / "no" / "x.html")
    refused_command(capsys, "report", folder, "-o", target, code="report-not-written", where=target)
    refused_command(capsys, "report", tmp_path, code="not-a-study", folder=tmp_path)


def test_a_study_ends_with_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_study(tmp_path, TWELVE[:2])
    finish_study(folder)
    assert capsys.readouterr().out.rstrip().endswith(f"Report: {folder / 'report.html'}")
    own = (folder / "report.html").read_bytes()
    assert write_report(folder).read_bytes() == own  # from the figures' files, or drawn for it: the same


@pytest.mark.usefixtures("plain")
def test_a_number_of_steps_is_whole_in_every_table(tmp_path: Path) -> None:
    arms = [Arm("none", {1: 3.0}, {}, {"best_step": 30}), Arm("deep", {1: 3.1}, {"n_layers": 4}, {"best_step": 1200})]
    folder = make_seeded(tmp_path, arms)
    page = read(write_report(folder))
    told = unpacked(page.data["planned"]["best_step"]["columns"]["mean"], 2)
    assert (told, unpacked(page.data["runs"]["best_step"], 2)) == (["30", "1,200"], ["30", "1,200"])
    cells = {text for rows in page.tables.values() for line in rows for text in line}
    assert {"30", "+1,170"} <= cells and not cells & {"30.00", "30.000"}
    assert "| 30 |" in export(compare([folder]), "md", ["mean"])


@pytest.mark.usefixtures("plain")
def test_what_was_scored_is_read_from_the_runs(tmp_path: Path) -> None:
    heldout = {"rows": "b" * 64, "tokens": 9000, "share": 0.25}
    arms = [
        Arm(label, {1: 3.0}, {"n_layers": 2 + k}, {"steps": 9}, train={"budget": 9},
            scored={"rows": "a" * 64, "tokens": tokens, "share": None, "heldout": heldout})
        for k, (label, tokens) in enumerate([("none", 5824), ("deep", 6000)])
    ]  # fmt: skip
    text = write_report(make_seeded(tmp_path / "scored", arms)).read_text(encoding="utf-8")
    assert "scored on 5,824 to 6,000 tokens while training" in text
    assert "scored on 9,000 tokens at the end (25.0 % of what is held out)" in text
    unknown = [Arm("none", {1: 3.0}, {}, {"steps": 9}, train={"budget": 9})]
    assert "scored on" not in write_report(make_seeded(tmp_path / "unknown", unknown)).read_text(encoding="utf-8")


@pytest.mark.usefixtures("plain")
def test_what_was_trained_stands_at_the_top(tmp_path: Path) -> None:
    train = {"budget": 100, "batch_size": 16, "learning_rate": 0.001, "schedule": "cosine"}
    trained = {"steps": 100, "tokens": 204800}
    arms = [Arm("none", {1: 3.0, 2: 3.1}, {}, trained, train=train)]
    arms.append(Arm("deep", {1: 3.0, 2: 3.1}, {"n_layers": 4}, trained, train=train))
    text = write_report(make_seeded(tmp_path, arms)).read_text(encoding="utf-8")
    found = re.search(r'<p class="trained">(.*?)</p>', text)
    assert found
    for words in ("1,000 parameters", "2 or 4 layers", "100 steps, 204,800 tokens, 16 sequences a step",
                  "learning rate 0.001, cosine"):  # fmt: skip
        assert words in found[1], (words, found[1])
