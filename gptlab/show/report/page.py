"""From a study to one HTML file: its parts gathered, the template filled in, the file written whole or not at all."""

from __future__ import annotations

import base64
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.comparing.advice import advice
from gptlab.comparing.assemble import compare
from gptlab.comparing.comparison import FINDINGS, TOO_FEW, VERDICTS, Comparison, Row
from gptlab.comparing.naming import named_study
from gptlab.comparing.which_metrics import declared
from gptlab.show.figures import figures, reason
from gptlab.show.figures.style import drawing, svg
from gptlab.show.formats import measured
from gptlab.show.other_metrics import other_metrics
from gptlab.show.report import details
from gptlab.show.report.payload import Runs, has_every_baseline, payload, run_metrics, script_json
from gptlab.show.report.protocol import protocol
from gptlab.show.report.svg import inline
from gptlab.show.report.verdicts import Verdicts, verdicts, word_class
from gptlab.show.shape_trace import HEADS, alone, traces
from gptlab.show.study_table import warnings_of_runs
from gptlab.show.surprises import surprises
from gptlab.show.tables import better
from gptlab.store.files import write_text
from gptlab.store.records import Record
from gptlab.store.run_listing import no_collection
from gptlab.store.study import Study, load_study
from gptlab.texts import printable

if TYPE_CHECKING:
    from markupsafe import Markup

NAME = "report.html"
OTHERS = 50  # rows of the table of all other metrics
ROWS = 100  # of a table in the file itself; the script shows the others, page by page
MOST_TRACES = 6  # of shapes
ESSENTIAL = ("variant", "difference", "verdict")  # what a phone shows first; the menu brings the others
JOINTS = ",+_=/."  # of a name: none of them is in what escaping makes
FIRST = 20  # of these, laid out before the first paint; with scripts, the others come with the script's own rows
CAPTIONS = {
    "loss_curves": "Loss while training; with three seeds or more, their mean and its 95% t interval.",
    "rates": "What each arm reached at each rate that it tried: dots are tuning seeds, a ring is the best of the grid.",
    "differences": "Differences to the planned baseline with their 95% intervals, and the verdict of each.",
    "cost": "What each variant reaches for its parameters and its FLOPs.",
    "isolation": "Each knob by itself: for each setting the best that any setting of the others reached.",
    "heatmap": "Both knobs at once.",
    "gradient_norm": "L2 norm of the gradient in each layer; layer 0 is nearest the input.",
    "gradient_mean_abs": "Mean absolute gradient in each layer; layer 0 is nearest the input.",
    "parameters": "Where the parameters are.",
}


def write_report(
    folder: Path | str,
    target: Path | str | None = None,
    *,
    study: Study | None = None,
    comparison: Comparison | None = None,
    drawn: Sequence[Path] = (),
    lost: Mapping[str, str] | None = None,
) -> Path:
    """Write the report of the study in `folder` and return its path: `report.html` in the folder, or `target`.

    `study`, `comparison`, `drawn`, `lost`: those of this folder, its figures, and why others could not be drawn, where
    they have been made already.
    GptlabError when there is no study; OSError when the file cannot be written.
    """
    path = Path(target) if target else Path(folder) / NAME
    if not study:
        study = named_study(load_study(folder))
    html = render(study, comparison or compare([folder], labels=()), drawn, lost)
    write_text(path, html)
    return path


@no_collection()
def render(
    study: Study, comparison: Comparison, drawn: Sequence[Path] = (), lost: Mapping[str, str] | None = None
) -> str:
    """The whole page."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    runs = {row.label: row.runs for row in comparison.rows}
    script = _asset("page.js")
    failed_figures = dict(lost or {})
    table = verdicts(comparison, comparison.primary_metric)
    of_runs = run_metrics(comparison)
    data = script_json(payload(comparison, runs, table, of_runs))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["soft"] = _soft
    failed, failures = details.failures(comparison.rows, runs)
    prompt, texts, texts_note = details.continuations(study)
    return environment.from_string(_asset("page.html")).render(
        title=printable(comparison.title),
        question=printable(comparison.question),
        facts=_facts(study, comparison, runs),
        trained=details.trained(runs),
        summary=_summary(comparison),
        warnings=[printable(text) for text in (*comparison.warnings, *warnings_of_runs(study))],
        audit=protocol(study, comparison),
        notes=[printable(text) for text in (*comparison.notes, *surprises(study))],
        advice=[printable(text) for text in advice(comparison) or ()],
        columns=table.columns,
        essential=ESSENTIAL,
        silent=table.silent,
        against=table.against,
        every_baseline=has_every_baseline(comparison),
        other_baseline=f"gptlab compare {shlex.quote(printable(str(study.folder)))} --baseline VARIANT",
        others=_others(comparison),
        metric=_metric(comparison),
        rows=_rows(table),
        first=FIRST,
        total=len(comparison.rows),
        figures=_figures(study, comparison, drawn, failed_figures),
        lost_figures=failed_figures.items(),
        changes=details.changes(comparison.rows),
        changed=sum(bool(row.delta) for row in comparison.rows),
        prompt=prompt,
        texts=texts,
        texts_note=texts_note,
        said_when=study.said_when,
        shapes=[(trace, printable(str(trace.path))) for trace in islice(traces(study), MOST_TRACES)],
        shape_heads=HEADS,
        shapes_alone=alone(study),
        failed=failed,
        failures=failures,
        run_columns=of_runs,
        runs=_run_rows(comparison, runs, of_runs),
        run_total=sum(map(len, runs.values())),
        environment=details.environment(runs),
        commands=details.commands(study),
        margin=printable(comparison.margin),
        style=Markup(_asset("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(sha256(script.encode()).digest()).decode(),
        data=Markup(data),
    )  # fmt: skip


def _soft(text: str, joints: str = JOINTS) -> Markup:
    """Text for the page in which a line may end at the joints of a name, and not in mid-word."""
    from markupsafe import Markup, escape

    return Markup(re.sub(rf"([{joints}])(?=[^\s{joints}])", r"\1<wbr>", str(escape(text))))


def _asset(name: str) -> str:
    return (files("gptlab.show.report") / "assets" / name).read_text(encoding="utf-8").strip("\n")


def _metric(comparison: Comparison) -> dict[str, str]:
    name = comparison.primary_metric
    about = declared(name)
    return {"name": about.name, "unit": about.unit, "meaning": about.meaning, "better": better(name)}


def _facts(study: Study, comparison: Comparison, runs: Runs) -> list[str]:
    states = Counter(run.state for seeds in runs.values() for run in seeds.values())
    total = states.total()
    others = ", ".join(f"{number:,} {state}" for state, number in states.items() if state != "finished")
    seeds = sorted({seed for own in runs.values() for seed in own})
    listed = ", ".join(map(str, seeds[:10])) + (f", ... ({len(seeds)} in all)" if len(seeds) > 10 else "")
    words = [
        f"{len(comparison.rows):,} variant{'s' if len(comparison.rows) != 1 else ''}",
        f"seed{'s' if len(seeds) != 1 else ''} {listed}",
        f"{states['finished']:,} of {total:,} runs finished" + (f" ({others})" if others else ""),
    ]
    return words + ([f"baseline: {printable(comparison.baseline)}"] if comparison.baseline else [])


def _summary(comparison: Comparison) -> list[tuple[str, str]]:
    """(verdict, the variants that it goes to), in the order of the words' list."""
    if all(_without_numbers(row, comparison.metrics) for row in comparison.rows):
        return []
    found: dict[str, list[str]] = {}
    said = advice(comparison)
    for row in comparison.rows:
        cell = row.cell(comparison.primary_metric)
        if row.baseline is not None and cell.verdict and not (said and cell.verdict == TOO_FEW):
            found.setdefault(cell.verdict, []).append(
                printable(row.label) + (" (exploratory)" if cell.exploratory and cell.verdict in FINDINGS else "")
            )
    return [(word, _listed(found[word])) for word in VERDICTS if word in found]


def _without_numbers(row: Row, metrics: Sequence[str]) -> bool:
    """Whether all is well and there is nothing to compare: shapes alone were asked for."""
    well = row.n_finished == row.n_planned and not any(run.not_finite for run in row.runs.values())
    return well and not any(row.cell(name).n for name in metrics)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f", and {len(names) - 12:,} more" if len(names) > 12 else "")


def _rows(table: Verdicts) -> list[list[dict[str, Any]]]:
    """The first rows of the verdict table: text and small print of each column."""
    return [
        [
            {
                "text": texts[place],
                "small": table.small[place] if column.name == "verdict" else [],
                "word": table.words[place] if column.name == "verdict" else "",
                "bold": table.bold[place] and column.name in ("difference", "verdict"),
            }
            for column, texts in zip(table.columns, table.texts, strict=True)
        ]
        for place in range(min(len(table.words), ROWS))
    ]


def _others(comparison: Comparison) -> dict[str, Any] | None:
    """All other metrics of the first variants: heads (metric, unit), and a line of entries per variant."""
    found = other_metrics(comparison, OTHERS)
    if found is None:
        return None
    heads = [(column.header, declared(column.name).unit) for column in found.columns[1:]]
    lines = [
        (line[0].text, [{"text": e.text, "word": word_class(e.verdict), "words": e.verdict} for e in line[1:]])
        for line in found.lines
    ]
    return {"heads": heads, "lines": lines}


def _run_rows(comparison: Comparison, runs: Runs, names: Sequence[str]) -> list[dict[str, Any]]:
    """The first runs of the study, in table order."""
    found: list[tuple[Row, int, Record]] = []
    for row in comparison.rows:
        found += [(row, seed, run) for seed, run in sorted(runs[row.label].items())]
        if len(found) >= ROWS:
            break
    write = {name: measured(name) for name in names}
    return [
        {
            "label": printable(row.label), "seed": str(seed), "state": run.state,
            "values": [_value(row, name, seed, text) for name, text in write.items()],
            "error": printable(run.error.splitlines()[0][:300]) if run.error else "",
        }
        for row, seed, run in found[:ROWS]
    ]  # fmt: skip


def _value(row: Row, name: str, seed: int, write: Callable[[float], str]) -> str:
    value = row.values.get((name, None), {}).get(seed)
    return "" if value is None else write(value)


def _figures(study: Study, comparison: Comparison, drawn: Sequence[Path], lost: dict[str, str]) -> list[dict[str, Any]]:
    """Name, caption and SVG. `drawn`: the files, where these very figures have just been written.

    `lost` gets those that could not be drawn.
    """
    from markupsafe import Markup

    texts = {path.stem: path.read_text(encoding="utf-8") for path in drawn if path.suffix == ".svg"}
    if not drawn:
        with drawing():
            for name, figure in figures(study, comparison, lost):
                try:
                    texts[name] = svg(figure).decode("utf-8")
                except Exception as error:
                    lost[name] = reason(error)
    return [
        {"name": name, "caption": CAPTIONS[name], "svg": Markup(inline(text, f"figure-{name}", CAPTIONS[name]))}
        for name, text in texts.items()
    ]
