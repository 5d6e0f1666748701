"""Which runs a comparison is of: the studies and the run folders that were named, read into records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gptlab.errors import ConfigError
from gptlab.store.names import MANIFEST, PLAN, RESULT
from gptlab.store.plan_history import whole_plan
from gptlab.store.records import Provenance, Record, record_of
from gptlab.store.study_plan import PlanEntry, StoredPlan, entry_of, load_plan

MOST_STUDIES = 8  # that a message names


@dataclass(frozen=True)
class Source:
    """One study, or those of its runs that were named."""

    folder: Path
    plan: StoredPlan
    records: tuple[Record, ...]
    names: Mapping[str, str] = field(default_factory=dict)  # label in the files -> what this calls it, if another


def load_sources(paths: Sequence[Path | str], histories: bool = False) -> list[Source]:
    """Read the studies and run folders in `paths`. ConfigError for a path that is neither, or that is named twice.

    `histories`: metrics.jsonl is going to be read too, so it is checked to the byte.
    """
    studies: dict[Path, list[PlanEntry] | None] = {}  # None: all of its runs
    seen: dict[str, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise ConfigError(f"compare: there is no folder {str(path)!r}.", code="compare-no-such-folder", value=path)
        if seen.setdefault(os.path.realpath(path), path) is not path:
            raise ConfigError(f"compare: {path} is named twice.", code="named-twice", path=path)
        if _is_run(path):
            folder = Path(os.path.dirname(os.path.abspath(path))) if path.name in ("", "..") else path.parent
            chosen = studies.setdefault(folder, [])
            if chosen is None:
                raise ConfigError(
                    f"compare: {path} is named twice, alone and as a part of {folder}.",
                    code="named-alone-and-as-part",
                    path=path,
                    folder=folder,
                )
            chosen.append(_planned(path))
        elif not (path / PLAN).exists() and (inside := _studies_in(path)):
            raise ConfigError(
                f"compare: {path} is no study, but holds {len(inside)}: {', '.join(inside[:MOST_STUDIES])}"
                f"{', ...' if len(inside) > MOST_STUDIES else ''}. Type gptlab compare {inside[0]}",
                code="compare-holds-studies",
                value=str(path),
                allowed=inside,
                command=f"gptlab compare {inside[0]}",
            )
        elif studies.setdefault(path, None) is not None:
            raise ConfigError(
                f"compare: {path} is named twice, as a whole and by some of its runs.",
                code="named-whole-and-in-part",
                path=path,
            )
    return [_load(folder, chosen, histories) for folder, chosen in studies.items()]


def _studies_in(folder: Path) -> list[str]:
    """The studies in a folder that is none itself, the newest plan first."""
    found = [path.parent for path in folder.glob(f"*/{PLAN}")]
    return [str(study) for study in sorted(found, key=lambda study: -(study / PLAN).stat().st_mtime)]


def _is_run(path: Path) -> bool:
    return not os.path.lexists(path / PLAN) and any(os.path.lexists(path / name) for name in (RESULT, MANIFEST))


def _planned(path: Path) -> PlanEntry:
    """The run's entry in its study's plan; made from the run itself where it has no study."""
    if os.path.lexists(path.parent / PLAN):
        for run in load_plan(path.parent).runs:
            if run.folder == path.name:
                return run
    return entry_of(path, PlanEntry("", path.name, 0, path.name))


def _load(folder: Path, chosen: Iterable[PlanEntry] | None, histories: bool) -> Source:
    if chosen is None:
        plan, _ = whole_plan(folder)
    elif os.path.lexists(folder / PLAN):
        plan = replace(load_plan(folder), runs=tuple(chosen))
    else:
        plan = StoredPlan(folder.name, "", (), "", "", tuple(chosen))
    known: dict[Provenance, Provenance] = {}
    return Source(folder, plan, tuple(record_of(folder, run, known, histories) for run in plan.runs))
