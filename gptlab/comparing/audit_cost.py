"""The line of an audit on matched cost: what each variant cost beside its baseline, as counted in their runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from gptlab.comparing.audit_lines import FAIL, NOT_ASKED, PASS, Line
from gptlab.comparing.comparison import Comparison, Row
from gptlab.store.records import Record
from gptlab.twin import COSTS, FRAME, Twin, percent_off

MATCHED = 1.0  # percent: as many parameters, or as much compute, as the baseline


def matched(record: Mapping[str, Any], comparison: Comparison, command: str) -> Line:
    """What variants cost as it was counted in their runs: of a twin, what was solved; else parameters or FLOPs.

    A variant that costs something else passes where its twin stands beside it. `record`: that of the plan.
    """
    name = "matched cost"
    compared = [row for row in comparison.rows if row.baseline is not None]
    if not compared:
        return Line(name, NOT_ASKED, "nothing is compared")
    rows = {row.label: row for row in comparison.rows}
    found = {row.label: _off(row, rows[row.baseline or ""]) for row in compared}
    near = [row for row in compared if (off := found[row.label][1]) is not None and abs(off) <= MATCHED]
    stands_for = {twin.of for row in near for twin in [row.twin] if twin}
    passed = stands_for | {row.label for row in near}
    apart = [row for row in compared if row.label not in passed]
    if not apart:
        said = "; ".join(_cost_words(row.label, *found[row.label]) for row in near[:4])
        more = f"; and {len(near) - 4} more" if len(near) > 4 else ""
        return Line(name, PASS, f"within {MATCHED:g} % of the baseline's: {said}{more}")
    said = "; ".join(_cost_words(row.label, *found[row.label]) for row in apart[:4])
    words = f"not within {MATCHED:g} %: {said}{'; ...' if len(apart) > 4 else ''}"
    return Line(name, FAIL if record else NOT_ASKED, words, _with_match(command, apart[0].twin))


def _off(row: Row, base: Row) -> tuple[str, float | None]:
    """(what is counted, how far it is from the baseline's in percent; None without counts)."""
    if row.twin:
        pairs = [(_cost(row.runs[seed], row.twin.cost), _cost(base.runs[seed], row.twin.cost))
                 for seed in sorted(row.runs.keys() & base.runs.keys())]  # fmt: skip
        offs = [percent_off(own, its) for own, its in pairs if own is not None and its is not None]
        return COSTS[row.twin.cost], max(offs, key=abs, default=None)
    known = [("parameters", row.parameters_percent), ("FLOPs per token", row.flops_percent)]
    measured = [(what, off) for what, off in known if off is not None]
    return min(measured, key=lambda cost: abs(cost[1])) if measured else ("parameters", None)


def _cost(run: Record, cost: str) -> float | None:
    """What a run cost, by its results."""
    if cost == "params_body":
        parts = {name: n for name, n in run.metrics.items() if name.startswith("parameters/")}
        return sum(n for name, n in parts.items() if name.partition("/")[2] not in FRAME) if parts else None
    if cost == "params_active":  # where a token meets all, there is one number
        return run.metrics.get("parameters_active", run.metrics.get("parameters"))
    return run.metrics.get({"params": "parameters", "flops": "flops_forward_per_token"}.get(cost, cost))


def _cost_words(label: str, what: str, off: float | None) -> str:
    return f"{label}: no counts of its {what}" if off is None else f"{label}: {what} {off:+.2g} %"


def _with_match(command: str, twin: Twin | None) -> str:
    """The command with a match that this audit passes, in place of the one that it has."""
    words = [word for word in shlex.split(command) if word.partition("=")[0].partition(".")[0] != "match"]
    again = [f"match={twin.cost}", f"match.tolerance={MATCHED:g}"] if twin else ["match=none,params"]
    return shlex.join([*words, *again])
