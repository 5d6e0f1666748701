"""Gradient norms of the first and the last block, from layers.csv: depth in two numbers that can be compared."""

from __future__ import annotations

import csv
import math

FIRST, LAST = "grad_norm_first", "grad_norm_last"
COLUMNS = ("step", "layer", "part", "metric", "value")
_WANTED = b",all,grad_norm,"


def gradient_ends(content: bytes) -> dict[str, float]:
    """FIRST and LAST at the first measured step; empty where no gradients were measured. ValueError if unreadable.

    Only the lines that matter are parsed: a study may have ten thousand of these files.
    """
    head, *lines = content.splitlines() or [b""]
    if tuple(head.decode("utf-8").split(",")) != COLUMNS:
        return {}
    found: dict[int, dict[int, float]] = {}
    for step, layer, _, _, value in csv.reader(line.decode("utf-8") for line in lines if _WANTED in line):
        found.setdefault(int(step), {})[int(layer)] = float(value or "nan")
    if not found:
        return {}
    norms = found[min(found)]
    ends = {FIRST: norms[min(norms)], LAST: norms[max(norms)]}
    return {name: value for name, value in ends.items() if math.isfinite(value)}
