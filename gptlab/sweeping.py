"""A sweep from Python: the plan, queue and files of the command line, and what came of them as frames and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.config import flatten
from gptlab.planning.plan import Plan, expand
from gptlab.running.stages import begun, finished, following, reached

if TYPE_CHECKING:
    import pandas as pd

    from gptlab.show.presented import PresentedComparison


_PLAIN = re.compile(r"[\w.+/-]+")  # a word that needs no quotes in an override


@dataclass(frozen=True)
class Sweep:
    """A study whose runs have been executed, or were there already. `states` are those of its runs, in their order.

    Of a study whose tuning has not come to its end, they are those of the trials."""

    folder: Path
    plan: Plan
    states: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """A row for each run: label, seed, state, each config key in which the runs differ, and every metric."""
        import pandas as pd

        from gptlab.store.study import load_study

        keys = pd.DataFrame([{"folder": run.folder, **_settings(run.config)} for run in self.plan.runs])
        same = [key for key in keys.columns if key != "folder" and keys[key].map(repr).nunique() == 1]
        runs = load_study(self.folder).runs
        # A metric, or what a run is called, goes before a key of the same name.
        keys = keys.drop(columns=[*same, *(key for key in keys.columns if key in runs.columns and key != "folder")])
        return keys.merge(runs, on="folder", how="left")

    def compare(self, **options: Any) -> PresentedComparison:
        """As `gptlab.compare` of the study's folder; its options."""
        from gptlab.api import compare

        return compare(self.folder, **options)

    def report(self, target: Path | str | None = None) -> Path:
        """Write the study's report, `report.html` in its folder or `target`, and return its path."""
        from gptlab.show.report.page import write_report

        return write_report(self.folder, target)


def sweep(overrides: Sequence[str] = (), *, config_dirs: Sequence[str | Path] = (), **values: Any) -> Sweep:
    """Run a study: `sweep(["model=tiny", "ablation=relu,post_ln"], seed=range(5), workers=2)`.

    `overrides` are those of the command line. `values` are keys by name; of a list or range each member is one value
    of the sweep, and a list in it is one stacked choice: `ablation=["relu", ["relu", "post_ln"]]`. The same call again
    runs only what is missing. A run that fails is in `states`; ConfigError for what cannot run, before anything does.
    """
    words = [*overrides, *(f"{key}={_written(value)}" for key, value in values.items())]
    plan: Plan | None = reached(expand(words, config_dirs))
    while plan is not None:
        stage = begun(plan, ["gptlab", *words])
        states = finished(stage, lambda _: None)
        plan = following(stage.plan)
    return Sweep(stage.folder, stage.plan, tuple(states))


def _written(value: Any) -> str:
    """A Python value as the command line has it. A text stands for itself: `ablation="relu,post_ln"` is a sweep."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple, range)):
        return ",".join(_member(item) for item in value)
    return _member(value)


def _member(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_member(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"[{','.join(map(_member, value))}]"
    text = str(value)
    if isinstance(value, str) and not _PLAIN.fullmatch(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def _settings(config: Any) -> dict[str, Any]:
    flat = flatten(config)
    return {key: value for key, value in flat.items() if key not in ("label", "seed")}
