"""The same table in six formats: read back, it says the same; and no name can break out of its format."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gptlab.comparing.advice import advice
from gptlab.comparing.assemble import compare
from gptlab.comparing.comparison import VERDICTS, Comparison
from gptlab.show.columns import PAPER, SCREEN
from gptlab.show.comparison_table import print_comparison
from gptlab.show.exports import export
from gptlab.show.finish import finish_study
from gptlab.show.tables import tables
from gptlab.store.study import describe_change
from tests.comparing.test_compare import JITTER, NOISE, SEEDS, values
from tests.support.refusals import refused
from tests.support.seeded import Arm, make_seeded
from tests.support.synthetic import TWELVE, make_study
from tests.support.trained import make_trained

HOSTILE = [
    '=HYPERLINK("x")', "@sum", "<script>alert(1)</script>", r"\input{/etc/passwd} 50% & #1_a ^ ~ {x} $y$", "[x] -- y",
    "a|b **c** `d` _e_", "größe 日本", "\x1b[31mred\u202e", "line\nbreak",
]  # fmt: skip


def study(root: Path) -> Path:
    arms = [Arm("none", values(0), metrics={"grad_norm": 1.0})]
    for place, label in enumerate(HOSTILE):
        own = {seed: 2.995 + place / 50 + 0.1 * NOISE[seed] + 0.02 * JITTER[seed + place] for seed in SEEDS}
        arms.append(Arm(label, own, {"n_layers": 5 + place}, metrics={"grad_norm": 1.0 + place}))
    arms[3].states = {2: "failed", 3: "diverged"}
    return make_seeded(root, arms)


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    return compare([study(tmp_path)])


def from_markdown(text: str) -> list[list[list[str]]]:
    tables = []
    for part in text.split("### ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        cells = [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in [lines[0], *lines[2:]]]
        plain = [[re.sub(r"^\*\*(.*)\*\*$", r"\1", cell.strip()) for cell in line] for line in cells]
        tables.append([[re.sub(r"\\(.)", r"\1", cell) for cell in line] for line in plain])
    return tables


class Tables(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.values: list[float] = []
        self.tags: set[str] = set()
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.inside = True
        elif tag == "data":
            self.values.append(float(dict(attrs)["value"] or "nan"))

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.tables[-1][-1][-1] += data


def from_html(text: str) -> list[list[list[str]]]:
    parser = Tables()
    parser.feed(text)
    return parser.tables


def from_latex(text: str) -> list[list[list[str]]]:
    tables = []
    for whole in re.findall(r"\\begin\{table\}\n(.*?)\\end\{table\}", text, re.DOTALL):
        rows: list[list[str]] = []
        for part in re.findall(r"\\toprule\n(.*?)\\bottomrule", whole, re.DOTALL):
            lines = [line for line in part.splitlines() if line != r"\midrule"]
            assert all(line.endswith(r" \\") for line in lines)
            cells = [[_untex(cell) for cell in re.split(r" (?<!\\)& ", line[:-3])] for line in lines]
            assert not rows or [row[0] for row in rows] == [row[0] for row in cells]  # each part names its variants
            rows = [a + b[1:] for a, b in zip(rows, cells, strict=True)] if rows else cells
        tables.append(rows)
    return tables


def _untex(cell: str) -> str:
    cell = re.sub(r"^\\textbf\{(.*)\}$", r"\1", cell)
    cell = re.sub(r"^\{\$\\times\$\\num\{(.*)\}\}$", r"x\1", cell)
    cell = re.sub(r"\\gptlabchar\{(.)\}\{[0-9A-F]+\}", r"\1", cell)
    cell = cell.replace("-{}-", "--").replace(r"$\pm$", "±")
    names = {"backslash": "\\", "asciitilde": "~", "asciicircum": "^", "less": "<", "greater": ">", "bar": "|"}
    cell = re.sub(r"\\text(\w+)\{\}", lambda m: names[m[1]] + "\0", cell)
    cell = re.sub(r"\\([{}$&#%_])", lambda m: f"\x01{m[1]}", cell)
    cell = re.sub("(?<!\x01)[{}]", "", cell)
    return cell.replace("\0", "").replace("\x01", "").replace(r"\textless", "<").strip()


@pytest.mark.parametrize(
    ("format", "read", "level"),
    [("md", from_markdown, PAPER), ("html", from_html, SCREEN), ("latex", from_latex, PAPER)],
)
def test_each_format_read_back_is_the_table(
    comparison: Comparison, format: str, read: Callable[[str], list[list[list[str]]]], level: int
) -> None:
    found = read(export(comparison, format))
    expected = tables(comparison, level)
    assert len(found) == len(expected) > 1
    for table, grid in zip(found, expected, strict=True):
        assert [cell.strip() for cell in table[0]] == [column.header for column in grid.columns]
        shown = [[" ".join(entry.text.split()) for entry in line] for line in grid.lines]
        assert [[" ".join(cell.split()) for cell in line] for line in table[1:]] == shown


def test_csv_json_and_html_have_every_digit(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(export(comparison, "csv"))))
    documents = json.loads(export(comparison, "json"))["rows"]
    assert len(rows) == len(documents) == len(comparison.rows) * len(comparison.metrics)
    for row, document in zip(rows, documents, strict=True):
        for key, value in document.items():
            if isinstance(value, bool) or value is None:
                assert row[key] == ("" if value is None else str(value))
            elif isinstance(value, (int, float)):
                assert float(row[key]) == value
            else:
                assert row[key].removeprefix("'") == value
        cell = comparison.row(comparison.rows[0].label).cell(document["metric"])
        assert document["variant"] != "none" or document["mean"] == cell.mean
    parser = Tables()
    parser.feed(export(comparison, "html"))
    known = {float(v) for d in documents for v in d.values() if isinstance(v, (int, float))}
    assert set(parser.values) <= known


def test_what_is_rounded_is_rounded_from_what_is_not(comparison: Comparison) -> None:
    for grid in tables(comparison, SCREEN):
        for line in grid.lines:
            for column, entry in zip(grid.columns, line, strict=True):
                if column.kind == "number" and isinstance(entry.value, float):
                    shown = entry.text.removeprefix("x").replace(",", "")
                    digits = shown.partition("e")[0].partition(".")[2]
                    power = int(shown.partition("e")[2] or 0)
                    assert abs(float(shown) - entry.value) <= 0.5001 * 10.0 ** (power - len(digits)), (column, entry)


def test_csv_guards_formulas(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(export(comparison, "csv"))))
    assert [row["variant"] for row in rows[1:3]] == ['\'=HYPERLINK("x")', "'@sum"]
    assert not any(value.startswith(("=", "@", "+")) for row in rows for value in row.values())
    assert any(row["difference"].startswith("-") for row in rows)  # a negative number is a number


def test_names_cannot_break_out(comparison: Comparison) -> None:
    page = export(comparison, "html")
    parser = Tables()
    parser.feed(page)
    assert "script" not in parser.tags
    assert html.escape("<script>") in page
    for format in ("md", "html", "latex", "csv", "json"):
        text = export(comparison, format)
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert r"\input{" not in export(comparison, "latex")
    assert "<script>" not in export(comparison, "md")


def test_bold_is_only_for_what_survived(comparison: Comparison, tmp_path: Path) -> None:
    bold = [row.label for row in comparison.rows if row.cell("final_loss").bold]
    assert not bold  # all are worse, or unclear
    better = compare([make_seeded(tmp_path / "b", [Arm("none", values(0)), Arm("x", values(-0.5), {"n_layers": 9})])])
    assert export(better, "latex").count(r"\textbf{") == 3  # the name in each of two parts, and the verdict
    assert r"\textbf{x}" in export(better, "latex")
    assert "**better**" in export(better, "md")
    assert "<strong>better</strong>" in export(better, "html")


def test_latex_is_balanced(comparison: Comparison) -> None:
    text = export(comparison, "latex")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(comparison.metrics)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") >= len(comparison.metrics)
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    for table in re.findall(r"\\begin\{tabular\}\{([^\n]*)\}\n\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
        columns = len(re.findall(r"l|S\[[^]]*\]|p\{10em\}", re.sub(r">\{[^}]*\}", "", table[0])))
        assert {len(re.split(r" & ", line)) for line in table[1].splitlines() if line != r"\midrule"} == {columns}


EVERY_LETTER = "".join(map(chr, [*range(0xA1, 0x250), *range(0x1E00, 0x1F00), 0x20AC, 0x2192, 0x221E, 0x3B1, 0x1F642]))


def test_latex_stacks_what_is_wider_than_a_portrait_page(tmp_path: Path) -> None:
    text = export(compare([six_variants(tmp_path)]), "latex")
    first = text[: text.index(r"\end{table}")]
    heads = [head.replace("{", "").replace("}", "") for head in re.findall(r"\\toprule\n(.*?) \\\\", first)]
    assert [head.split(" & ")[:2] for head in heads] == [
        ["variant", "changed"],
        ["variant", "mean"],
        ["variant", "verdict"],
    ]


@pytest.mark.slow
def test_latex_fits_a_portrait_page(tmp_path: Path) -> None:
    if not shutil.which("pdflatex") or subprocess.run(["kpsewhich", "siunitx.sty"], check=False).returncode:
        pytest.skip("no pdflatex with siunitx here (Debian packages texlive-latex-base and texlive-science)")
    page = "\\documentclass[a4paper]{article}\\usepackage{booktabs,siunitx}\\begin{document}\n"
    page += export(compare([six_variants(tmp_path)]), "latex") + "\\end{document}\n"
    (tmp_path / "t.tex").write_text(page, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "t.tex"], cwd=tmp_path, check=False, capture_output=True, timeout=120
    )
    assert done.returncode == 0
    assert b"Overfull" not in done.stdout


def six_variants(root: Path) -> Path:
    """A typical study: six changes on five seeds, a run that failed, a small p."""
    changes = {
        "relu": {"activation": "relu"}, "post_ln": {"norm_placement": "post"}, "no_shortcut": {"shortcut": "none"},
        "rmsnorm,swiglu": {"norm": "rmsnorm", "feed_forward": "swiglu"}, "learned_positions": {"position": "learned"},
        "untied": {"tie_weights": False},
    }  # fmt: skip
    found = [Arm("none", values(0, SEEDS[:5]), metrics={"grad_norm": 2.0, "train_loss": 3.0})]
    for k, (name, change) in enumerate(changes.items(), 1):
        more = {"parameters": 1000 + 37 * k, "flops_forward_per_token": 2000 + 3 * k, "grad_norm": 2.0 + k}
        lost = {3: "failed"} if name == "no_shortcut" else {}
        found.append(Arm(name, values(0.05 * k, SEEDS[:5]), change, {**more, "train_loss": 3.0}, states=lost))
    return make_seeded(root, found)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pdflatex", "xelatex", "lualatex"])
@pytest.mark.parametrize("name", ["hostile", "trained", "one_seed", "letters"])
def test_latex_compiles(tmp_path: Path, name: str, engine: str) -> None:
    if (
        not shutil.which(engine)
        or subprocess.run(["kpsewhich", "siunitx.sty"], check=False, capture_output=True).returncode
    ):
        pytest.skip(f"no {engine} with siunitx here (Debian packages texlive-latex-base and texlive-science)")
    labels = [EVERY_LETTER[place : place + 40] for place in range(0, len(EVERY_LETTER), 40)]
    folder = {
        "hostile": lambda: study(tmp_path),
        "trained": lambda: make_trained(tmp_path, diverged="relu"),
        "one_seed": lambda: make_study(tmp_path, TWELVE),
        "letters": lambda: make_seeded(
            tmp_path,
            [Arm("none", values(0)), *(Arm(label, values(1), {"n_layers": 5 + k}) for k, label in enumerate(labels))],
        ),
    }[name]()
    page = "\\documentclass{article}\\usepackage{booktabs,siunitx}\\begin{document}\n\\listoftables\n"
    page += export(compare([folder]), "latex") + "\\end{document}\n"
    (tmp_path / "t.tex").write_text(page, encoding="utf-8")
    for _ in range(2):  # the second time with the list of tables that the first one wrote
        done = subprocess.run(
            [engine, "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
            cwd=tmp_path, check=False, capture_output=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-1500:]
    assert (tmp_path / "t.pdf").stat().st_size > 5000


@pytest.mark.parametrize("width", [40, 80, 120, 250])
def test_at_any_width_every_number_is_whole(comparison: Comparison, width: int) -> None:
    out = io.StringIO()
    print_comparison(comparison, width, out, every_metric=True)
    text = out.getvalue()
    for shown in tables(comparison, SCREEN):
        for place, column in enumerate(shown.columns):
            if column.kind == "number":
                assert all(
                    re.search(rf"(^|\s){re.escape(e.text)}(\s|$)", text) for e in (line[place] for line in shown.lines)
                )
    assert "\x1b" not in text
    assert "8 of 10" in text
    assert "seed 2 failed: ValueError: no" in " ".join(text.split())


def test_a_study_with_several_seeds_ends_with_its_comparison(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, [Arm("none", values(0)), Arm("x", values(-0.5), {"n_layers": 9}, curve=[0, 5])])
    out = io.StringIO()
    finish_study(folder, 120, out)
    assert re.search(r"x .*-0\.5.* better .*n_layers: 2 -> 9", out.getvalue())
    assert "In every row: seeds 10 of 10; " in out.getvalue()
    assert "better" in out.getvalue()
    assert "95 % t interval of the mean" in " ".join(out.getvalue().split())
    assert {"comparison.csv", "comparison.json", "runs.csv", "steps.csv"} <= {path.name for path in folder.iterdir()}
    with (folder / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["run", "label", "seed", "step", "tokens", "flops", "seconds", "metric", "value"]
    assert len(rows) == 10 * 2 * 2
    first = (folder / "comparison.csv").read_bytes()
    finish_study(folder, 120, io.StringIO())
    assert (folder / "comparison.csv").read_bytes() == first


def test_a_study_with_one_seed_ends_with_its_runs(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, [Arm("none", values(0, [1])), Arm("x", values(-0.5, [1]), {"n_layers": 9})])
    out = io.StringIO()
    finish_study(folder, 120, out)
    assert re.search(r"(?m)^variant(?!.*verdict)", out.getvalue())
    assert "One seed: cannot be told from noise." in out.getvalue()
    assert "\nMore seeds: gptlab seed=1,2,3,4,5\n" in out.getvalue()
    rows = list(csv.DictReader(io.StringIO((folder / "comparison.csv").read_text())))
    assert {row["verdict"] for row in rows} == {"", "too few seeds"}


@pytest.mark.parametrize(
    ("seeds", "words", "command"),
    [
        ([4], "One seed: cannot be told from noise.", "gptlab seed=4,5,6,7,8"),
        ([1, 7], "Two seeds: a range, not an interval.", "gptlab seed=1,7,8,9,10"),
    ],
)
def test_missing_seeds_are_said_once_and_the_values_stay(
    tmp_path: Path, seeds: list[int], words: str, command: str
) -> None:
    found = [Arm("none", values(0, seeds)), *(Arm(f"x{k}", values(k, seeds), {"n_layers": 9 + k}) for k in (1, 2, 3))]
    comparison = compare([make_seeded(tmp_path, found, command=["gptlab", "seed=4"])])
    out = io.StringIO()
    print_comparison(comparison, 120, out)
    for text in (out.getvalue(), export(comparison, "md"), export(comparison, "html"), export(comparison, "latex")):
        plain = " ".join(text.split())
        assert plain.count(words) == 1
        assert "too few seeds" not in plain
        assert "+2" in plain
    for text in (out.getvalue(), export(comparison, "md"), export(comparison, "html")):
        assert text.count(command) == 1
    for text in (export(comparison, "csv"), export(comparison, "json")):
        assert text.count("too few seeds") == 3


@pytest.mark.parametrize(
    ("states", "said", "command"),
    [
        (dict.fromkeys((3, 4, 5), "failed"), "Of the planned runs: 3 failed.", "seed=1,2,3,4,5 retry_failed=true"),
        (dict.fromkeys((3, 4, 5), "planned"), "Of the planned runs: 3 planned.", "seed=1,2,3,4,5"),
        ({3: "failed", 4: "crashed", 5: "planned"}, "1 crashed, 1 failed, 1 planned.", "1,2,3,4,5 retry_failed=true"),
        (dict.fromkeys((3, 4, 5), "diverged"), "Of the planned runs: 3 diverged.", "seed=1,2,3,4,5,6,7,8"),
    ],
)
def test_seeds_that_were_planned_are_not_asked_for_anew(
    tmp_path: Path, states: dict[int, str], said: str, command: str
) -> None:
    seeds = [1, 2, 3, 4, 5]
    own = {seed: None if states.get(seed) == "diverged" else value for seed, value in values(1, seeds).items()}
    found = [Arm("none", values(0, seeds)), Arm("x", own, {"n_layers": 9}, states=states)]
    given = ["gptlab", "seed=1,2,3,4,5", "retry_failed=false"]
    words, asked = advice(compare([make_seeded(tmp_path, found, command=given)])) or ("", "")
    assert words.endswith(said)
    assert asked.endswith(command)
    assert asked.startswith("gptlab seed=")


def test_of_ten_seeds_eight_are_still_to_come(tmp_path: Path) -> None:
    later = dict.fromkeys(range(3, 11), "planned")
    found = [Arm("none", values(0), states=later), Arm("x", values(1), {"n_layers": 9}, states=later)]
    words, command = advice(compare([make_seeded(tmp_path, found)])) or ("", "")
    assert words.startswith("Two seeds: ")
    assert words.endswith("Of the planned runs: 16 planned.")
    assert command == "gptlab seed=1,2,3,4,5,6,7,8,9,10"


def test_where_one_variant_has_enough_seeds_the_others_say_what_they_lack(tmp_path: Path) -> None:
    found = [Arm("none", values(0)), Arm("x", values(1), {"n_layers": 9}), Arm("y", values(1, [1]), {"n_layers": 8})]
    out = io.StringIO()
    print_comparison(compare([make_seeded(tmp_path, found)]), 160, out)
    assert "too few seeds" in out.getvalue()
    assert "More seeds:" not in out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_the_verdict_stands_in_the_row_of_its_difference(tmp_path: Path, width: int) -> None:
    found = [Arm("none", values(0)), Arm("x", values(-0.5), {"n_layers": 9}), Arm("y", values(0.5), {"n_layers": 8})]
    out = io.StringIO()
    print_comparison(compare([make_seeded(tmp_path, found)]), width, out)
    assert re.search(r"(?m)^x .*-0\.5.* better", out.getvalue())
    assert re.search(r"(?m)^y .*\+0\.5.* worse", out.getvalue())
    assert "In every row: seeds 10 of 10; parameters 1,000; parameters % 0; FLOPs % 0." in " ".join(
        out.getvalue().split()
    )


def test_a_study_in_which_nothing_finished_has_whole_sentences(tmp_path: Path) -> None:
    states = {1: "interrupted"}
    folder = make_seeded(
        tmp_path, [Arm("none", {1: None}, states=states), Arm("x", {1: None}, {"norm": "x"}, states=states)]
    )
    out = io.StringIO()
    finish_study(folder, 100, out)
    comparison = compare([folder])
    texts = [out.getvalue(), *(export(comparison, name) for name in ("md", "html", "latex", "json"))]
    page = re.sub(r"<script.*?</script>|<style.*?</style>", "", (folder / "report.html").read_text(), flags=re.DOTALL)
    for text in (*texts, page):
        assert not re.search(r"[:,] ?\.(\s|<|$)|: ?;|\(\)", text)
    assert "No run has finished." in texts[1]


def test_has_none_and_is_one_are_two_things(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, [Arm("none", values(0, [1, 2, 3])), Arm("x", values(1, [1, 2, 3]), {"n_layers": 9})])
    alone = [run.folder for run in compare([folder]).row("x").runs.values()]
    (row,) = compare(alone).rows
    assert row.lacks_baseline
    assert "| (its baseline is not among these) |" in export(compare(alone), "md")
    assert not compare([folder]).row("none").lacks_baseline


def test_a_plugin_is_no_change_beside_another() -> None:
    assert (
        describe_change({"plugins": ([], ["mine"]), "model.norm": ("layernorm", "mine")}) == "norm: layernorm -> mine"
    )
    assert describe_change({"plugins": ([], ["mine"])}) == 'plugins: [] -> ["mine"]'


def test_one_table_with_the_columns_asked_for(comparison: Comparison) -> None:
    text = export(comparison, "md", ["mean_sd", "verdict"], "Norms *of* all")
    assert text.startswith("### Norms \\*of\\* all\n")
    head, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    assert head.startswith("| variant | final_loss | final_loss verdict |")
    assert len(rows) == len(comparison.rows)
    assert re.match(r"\| none \| 3\.\d+ ± 0\.\d+ \|", rows[0])
    assert r"\caption{Norms" in export(comparison, "latex", ["mean_sd"], "Norms")
    with refused("unknown-name", key="--columns", value="verdit", suggestion="verdict"):
        export(comparison, "md", ["verdit"])


def test_asked_columns_in_which_nobody_has_anything_are_named(tmp_path: Path) -> None:
    out = io.StringIO()
    alone = compare([make_seeded(tmp_path, [Arm("none", values(0, [1, 2, 3]))])])
    print_comparison(alone, 160, out, columns=["mean", "difference", "interval"])
    assert "3.0" in out.getvalue() and "difference, interval" in out.getvalue()


def test_the_command_in_markdown_can_be_copied(tmp_path: Path) -> None:
    arms = [Arm("none", values(0, [1])), Arm("x", values(1, [1]), {"n_layers": 9})]
    given = ["gptlab", "ablation=[none,x]", "experiment.name=a_b"]
    text = export(compare([make_seeded(tmp_path, arms, command=given)]), "md")
    assert "`gptlab 'ablation=[none,x]' experiment.name=a_b seed=1,2,3,4,5`" in text


def test_the_documented_keys_are_those_of_the_json(comparison: Comparison) -> None:
    document = json.loads(export(comparison, "json"))
    path = Path(__file__).parents[2] / "docs" / "compare-json.md"
    top, row = path.read_text(encoding="utf-8").split("## A row")
    named = [re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) for part in (top, row)]
    assert named[0] == list(document)
    assert named[1] == ["metric", "step", *list(document["rows"][0])[1:]]


# What programs have been promised. A key that goes away, or changes its type, is a new schema.
NUMBERS_OF_1 = [
    "n_planned",
    "n_finished",
    "n_failed",
    "n_diverged",
    "n_missing",
    "parameters",
    "parameters_difference",
    "parameters_percent",
    "flops",
    "flops_difference",
    "flops_percent",
    "residual_percent",
    "n",
    "mean",
    "sd",
    "half_width",
    "pairs",
    "expected",
    "difference",
    "relative",
    "low",
    "high",
    "p",
    "p_corrected",
    "p_sign_flip",
    "p_equivalence",
    "wins",
    "noise_units",
    "spread",
    "effect",
    "correlation",
    "detectable",
    "n_needed",
]
TEXTS_OF_1 = [
    "metric",
    "variant",
    "changed",
    "study",
    "baseline",
    "seeds",
    "matched",
    "scale",
    "interval",
    "verdict",
    "note",
]
TOP_OF_1 = [
    "title",
    "question",
    "baseline",
    "primary_metric",
    "margin",
    "keys",
    "caption",
    "warnings",
    "notes",
    "failures",
    "rows",
]


def test_schema_1_of_the_json_keeps_its_keys_and_types(comparison: Comparison) -> None:
    document = json.loads(export(comparison, "json"))
    assert document["schema"] == 1
    assert set(TOP_OF_1) <= document.keys()
    for row in document["rows"]:
        assert {*NUMBERS_OF_1, *TEXTS_OF_1, "exploratory"} <= row.keys()
        assert all(type(row[key]) in (int, float, type(None)) for key in NUMBERS_OF_1), row
        assert all(type(row[key]) in (str, type(None)) for key in TEXTS_OF_1), row
        assert type(row["exploratory"]) is bool
    said = {row["verdict"] for row in document["rows"]} - {None}
    assert said <= set(VERDICTS), "the words of docs/comparing.md"
