"""What the page's script gets: every value by variant and seed, so that it can compare with any baseline.

Columns instead of rows, lists that many variants share written once, and a value that all seeds share written once:
ten thousand runs stay well below five megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from gptlab.comparing import power
from gptlab.comparing.comparable import CAUSAL_LOSSES
from gptlab.comparing.comparison import Comparison, Row
from gptlab.comparing.margin import Margin
from gptlab.comparing.variants import differences
from gptlab.comparing.which_metrics import declared
from gptlab.store.records import Facts, Record, parsed_config
from gptlab.texts import printable

Runs = Mapping[str, Mapping[int, Record]]  # label -> seed -> run


def payload(comparison: Comparison, runs: Runs) -> dict[str, Any]:
    """The page's data as plain JSON values."""
    rows = comparison.rows
    places = {row.label: place for place, row in enumerate(rows)}
    seeds = {row.label: sorted(runs[row.label]) for row in rows}
    facts: dict[Facts, int] = {}

    def each(of: Callable[[Record], Hashable]) -> dict[str, Any]:
        return shared([tuple(of(runs[row.label][seed]) for seed in seeds[row.label]) for row in rows])

    names = dict.fromkeys(
        [comparison.primary_metric, *(name for row in rows for name, step in row.values if step is None)]
    )
    margin = Margin.parse(comparison.margin) if comparison.margin else None
    return {
        "primary": comparison.primary_metric,
        "margin": {"size": margin.size, "relative": margin.relative} if margin else None,
        "metrics": {name: _about(name) for name in names},
        "shown": list(comparison.metrics),
        "timing": timing(comparison),
        "labels": [printable(row.label) for row in rows],
        "bases": [places.get(row.baseline or "", -1) for row in rows],
        "seeds": shared([tuple(seeds[row.label]) for row in rows]),
        "states": each(lambda run: run.state),
        "outcomes": each(lambda run: run.outcome),
        "runFacts": each(lambda run: facts.setdefault(run.facts, len(facts))),
        "errors": _errors(rows, runs),
        "facts": [[printable(text) for text in fact] for fact in facts],
        "settings": _settings(rows, runs),
        "values": {name: [_values(row, name, seeds[row.label], runs[row.label]) for row in rows] for name in names},
        "detectable": [power.detectable(n) for n in range(3, power.MOST_SEEDS + 1)] if comparison.has_baseline else [],
    }


def timing(comparison: Comparison) -> list[str]:
    """The timing metrics that were measured and not asked for: a reader may look at them, the tables leave them out."""
    found = dict.fromkeys(name for row in comparison.rows for name, step in row.values if step is None)
    return [name for name in found if declared(name).kind == "timing" and name not in comparison.metrics]


def script_json(value: Any) -> str:
    """JSON that may stand inside a <script> element: nothing in it can end the element or start a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")  # a lone surrogate is no text


def shared(lists: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Equal lists once: `distinct`, and `of`, the place of each (one number when all are the same)."""
    known: dict[tuple[Any, ...], int] = {}
    of = [known.setdefault(values, len(known)) for values in lists]
    return {"distinct": [list(values) for values in known], "of": of if len(known) > 1 else 0}


def setting_word(value: Any) -> str:
    """A setting as text that may be shown: words as they are, all else as JSON."""
    return printable(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str))


def _about(name: str) -> dict[str, Any]:
    about = declared(name)
    return {
        "unit": about.unit,
        "direction": about.direction,
        "kind": about.kind,
        "meaning": about.meaning,
        "trained": about.trained,
        "tokens": about.unit == "nats/token",
        "masked": name in CAUSAL_LOSSES,
    }


def _values(row: Row, name: str, seeds: Sequence[int], runs: Mapping[int, Record]) -> Any:
    """None, or one number that all finished runs have, or a list along the seeds."""
    found = row.values.get((name, None))
    if not found:
        return None
    first = next(iter(found.values()))
    if all(found.get(seed) == first for seed in seeds if runs[seed].state == "finished"):
        return first
    return [found.get(seed) for seed in seeds]


def _errors(rows: Iterable[Row], runs: Runs) -> list[list[Any]]:
    """(variant, seed, first line) of each run that has an error."""
    found = []
    for place, row in enumerate(rows):
        for seed, run in runs[row.label].items():
            if run.error:
                found.append([place, seed, printable(run.error.splitlines()[0][:300])])
    return found


def _settings(rows: Sequence[Row], runs: Runs) -> dict[str, dict[str, Any]]:
    """key -> distinct `words`, and the `index` of each variant's own: for the keys in which any two variants differ.

    A variant has its baseline's settings but for its delta; of several baselines, the first one's but for what their
    configs say.
    """
    known = {row.label: row for row in rows}
    roots = [row for row in rows if row.baseline is None]
    own: dict[str, dict[str, Any]] = {}
    if len(roots) > 1:
        configs = [_config(row, runs) for row in roots]
        for row, config in zip(roots, configs, strict=True):
            own[row.label] = {key: new for key, (_, new) in differences(configs[0], config).items()}
    old = {
        key: pair[0]
        for row in reversed(rows)
        for key, pair in row.delta.items()
        if known.get(row.baseline or "") is roots[0]
    }
    settings: list[dict[str, Any]] = []
    for row in rows:
        base = own.get(row.baseline or row.label, {})
        settings.append({**base, **{key: new for key, (_, new) in row.delta.items()}})
    table = {}
    for key in dict.fromkeys(key for values in settings for key in values):
        words: dict[str, int] = {}
        index = [words.setdefault(setting_word(values.get(key, old.get(key))), len(words)) for values in settings]
        if len(words) > 1:
            table[printable(key)] = {"words": list(words), "index": index}
    return table


def _config(row: Row, runs: Runs) -> dict[str, Any]:
    return next(filter(None, (parsed_config(run.folder) for run in runs[row.label].values())), {})
