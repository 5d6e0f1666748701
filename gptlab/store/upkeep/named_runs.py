"""Which runs a word means where several may be meant: one run, or all of a study."""

from __future__ import annotations

import os
from pathlib import Path

from gptlab.store.find_runs import find_run, find_runs, is_run
from gptlab.store.names import PLAN, SHOWN_ID


def named_runs(word: str, output_dir: Path) -> list[Path]:
    """The run that `word` names (see `find_run`), or all runs in a study's folder. GptlabError as in `find_run`."""
    folder = Path(word)
    if os.path.lexists(folder / PLAN):
        return list(find_runs(folder, depth=1))
    return [find_run(word, output_dir)]


def looks_like_a_run(word: str) -> bool:
    """Whether a word that stands beside tags is meant for a run or study: a path, its folder, or an id as shown."""
    folder = Path(word)
    return os.sep in word or bool(SHOWN_ID.fullmatch(word)) or os.path.lexists(folder / PLAN) or is_run(folder)
