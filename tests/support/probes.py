"""Probes that a test puts in the place of gptlab's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gptlab import registry


def put_probe(monkeypatch: pytest.MonkeyPatch, name: str, measure: Callable[..., Any]) -> None:
    """`measure` is the probe `name` until the test is over."""
    known = registry.get("probe", name)
    monkeypatch.setitem(registry._components["probe"], name, replace(known, factory=measure))
