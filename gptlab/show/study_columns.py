"""What the study's table says: sections of columns, one cell per run. How it is laid out is `table`'s business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.text import Text

from gptlab.show import formats
from gptlab.show.layout import Column, Section, label
from gptlab.store.study import Study
from gptlab.texts import printable

STATE_STYLES = {"finished": "green", "failed": "bold red", "damaged": "bold red"}  # all others: yellow

Number = int | float | None


@dataclass(frozen=True)
class Rows:
    """The runs of a study in table order, each with the run that it is compared with."""

    runs: list[dict[str, Any]]
    bases: list[dict[str, Any] | None]
    said_when: str = ""  # of the generated texts

    def values(self, name: str) -> list[Number]:
        """A metric, one value per run."""
        return [_number(run, name) for run in self.runs]

    def base_values(self, name: str) -> list[Number]:
        """The same metric of each run's baseline; None for a baseline itself."""
        return [_number(base, name) if base else None for base in self.bases]


def rows_of(study: Study) -> Rows:
    """The runs with, beside their metrics, the gradients of their first and last layer and their tokens."""
    runs: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in study.runs.to_dict("records")]
    known = {run["run"]: run for run in runs}
    for metric in ("grad_norm", "grad_mean_abs"):
        for run, rows in study.depth(metric).groupby("run"):
            known[run][f"{metric} first"] = float(rows["value"].iloc[0])
            known[run][f"{metric} last"] = float(rows["value"].iloc[-1])
    for run, rows in study.generations.groupby("run"):
        known[run]["token_ids"] = rows["token_id"].tolist()
        known[run]["tokens"] = rows["token"].tolist()
    bases = [None if run["is_baseline"] else known.get(run["baseline"]) for run in runs]
    return Rows(runs, bases, study.said_when)


def key_columns(rows: Rows) -> list[Column]:
    """Who the row is: the variant, and its seed where there are several."""
    labels = [label(printable(run["label"]), "bold" if run["is_baseline"] else "") for run in rows.runs]
    columns = [Column("variant", labels, left=True)]
    if len({run["seed"] for run in rows.runs}) > 1:
        columns.append(Column("seed", [Text(str(run["seed"])) for run in rows.runs]))
    return columns


def sections(rows: Rows) -> list[Section]:
    """All that there is to say, in reading order. Columns, groups and sections without content are left out."""
    found = [
        _change(rows),
        _cost(rows),
        _loss(rows),
        _trained(rows),
        _gradient(rows, "grad_norm", "L2 norm"),
        _gradient(rows, "grad_mean_abs", "mean |g|"),
        _text(rows),
    ]
    kept = [[[column for column in group if not column.empty] for group in section] for section in found]
    return [groups for section in kept if (groups := [group for group in section if group])]


def _change(rows: Rows) -> Section:
    states, changes = [], []
    for run in rows.runs:
        states.append(Text(run["state"], style=STATE_STYLES.get(run["state"], "yellow")))
        change = Text("\n".join(printable(part) for part in run["changed"].split("; ") if part))
        if run["is_baseline"]:
            change = Text("(baseline)", style="bold")
        if run["error"]:
            error = printable(run["error"].splitlines()[0])
            change = Text("\n").join([part for part in (change, Text(error, style="red")) if part])
        changes.append(change)
    return [[Column("state", states, left=True), Column("what changed", changes, left=True, least=34, comfortable=40)]]


def _cost(rows: Rows) -> Section:
    parameters, base = rows.values("parameters"), rows.base_values("parameters")
    flops, base_flops = rows.values("flops_forward_per_token"), rows.base_values("flops_forward_per_token")
    divisor, prefix = formats.si_unit(flops)
    mib = formats.column(rows.values("mib"), at_least=1)
    scaled = formats.column([None if value is None else value / divisor for value in flops], at_least=1)
    return [
        [
            _numbers("parameters", map(formats.count, parameters)),
            _numbers("difference", map(formats.signed_count, parameters, base), "dim"),
            _numbers("%", map(formats.percent_change, parameters, base), "dim"),
        ],
        [_numbers("MiB", mib)],
        [
            _numbers(f"forward {prefix}FLOPs\nper token", scaled),
            _numbers("%", map(formats.percent_change, flops, base_flops), "dim"),
        ],
    ]


def _loss(rows: Rows) -> Section:
    values, base = rows.values("loss"), rows.base_values("loss")
    texts = [
        "not finite" if "loss" in run["not_finite"].split(", ") else text
        for run, text in zip(rows.runs, formats.column(values, at_least=4), strict=True)
    ]
    differences = [formats.difference(value, other, 4) for value, other in zip(values, base, strict=True)]
    return [[_numbers("initial\nloss", texts), _numbers("difference", differences, "dim")]]


def _trained(rows: Rows) -> Section:
    """What training came to; empty where nothing was trained."""
    groups: Section = []
    for metric, title in (("final_loss", "final\nloss"), ("final_excess", "final\nexcess")):
        values, base = rows.values(metric), rows.base_values(metric)
        differences = [formats.difference(value, other, 4) for value, other in zip(values, base, strict=True)]
        groups.append([_numbers(title, formats.column(values, at_least=4)), _numbers("difference", differences, "dim")])
    return groups


def _gradient(rows: Rows, metric: str, title: str) -> Section:
    """First layer, last layer and the whole model in one format, each beside its ratio to the baseline."""
    keys = (f"{metric} first", f"{metric} last", metric)
    values = formats.column([value for key in keys for value in rows.values(key)])
    groups = []
    for place, (key, name) in enumerate(zip(keys, ("first", "last", "all"), strict=True)):
        own = values[place * len(rows.runs) : (place + 1) * len(rows.runs)]
        ratios = map(formats.ratio, rows.values(key), rows.base_values(key))
        groups.append([_numbers(f"{title}\n{name}", own), _numbers("ratio", ratios, "dim")])
    return groups


def _text(rows: Rows) -> Section:
    several_prompts = len(prompts(rows)) > 1
    texts, places = [], []
    for run, base in zip(rows.runs, rows.bases, strict=True):
        same = _common_tokens(run, base)
        shown = run["text"] if several_prompts else run["new_text"].removeprefix(" ")
        text = Text(printable(shown))
        place = ""
        if same is not None:
            ended = same == len(run["token_ids"]) == len(base["token_ids"]) if base else False
            place = formats.SAME if ended else f"token {same + 1}"
        texts.append(text)
        places.append(Text(place, style="dim"))
    header = "generated text" if several_prompts else "continuation"
    header += f" {rows.said_when}".rstrip()
    return [[Column("differs\nfrom", places), Column(header, texts, left=True, least=40, comfortable=75)]]


def prompts(rows: Rows) -> list[str]:
    """The prompts of the study; nearly always one."""
    return list(dict.fromkeys(run["prompt"] for run in rows.runs if run["text"]))


def _common_tokens(run: dict[str, Any], base: dict[str, Any] | None) -> int | None:
    """How many tokens two continuations share before they part; None where either is missing."""
    if base is None or "token_ids" not in run or "token_ids" not in base:
        return None
    pairs = enumerate(zip(run["token_ids"], base["token_ids"], strict=False))
    shortest = min(len(run["token_ids"]), len(base["token_ids"]))
    return next((place for place, (own, other) in pairs if own != other), shortest)


def _numbers(header: str, texts: Any, style: str = "") -> Column:
    return Column(header, [Text(text, style=style, justify="right") for text in texts])


def _number(run: dict[str, Any], name: str) -> Number:
    value = run.get(name)
    # pandas writes what is missing as NA or NaN: neither equals itself.
    return value if isinstance(value, (int, float)) and value == value else None
