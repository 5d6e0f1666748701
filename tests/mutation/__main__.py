"""`make mutants`: plant a seeded sample of small faults in each room, and see which of them the fast tests notice.

    python -m tests.mutation [ROOM ...] [--sample 300] [--seed 0] [--tests FOLDER ...]

Results are appended to .mutation/results.jsonl as they come, so that a second call goes on; `--page` writes the page
of results from them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.mutation import page, trial
from tests.mutation.operators import Mutant, mutants
from tests.mutation.recorded import CACHE, ROOT, recorded

ROOMS = ("model", "training", "comparing", "data", "store")
RESULTS = CACHE / "results.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], default=[])
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="*", help="folders of tests/ to choose from (the room's own)")
    parser.add_argument("--again", action="store_true", help="try those that survived once more, with the tests of now")
    parser.add_argument("--page", action="store_true", help="write the page of results, and run nothing")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if not given.page:
        _try(given.rooms or list(ROOMS), given.sample, given.seed, given.tests, given.again)
    page.write(RESULTS)


def _try(rooms: list[str], size: int, seed: int, folders: list[str] | None, again: bool) -> None:
    files = {room: [file for name in folders or [room] for file in _files(name)] for room in rooms}
    tests = {room: recorded(files[room]) for room in rooms}
    trial.warm()
    done = {page.key(line): line for line in page.read(RESULTS)}
    copy = trial.Copy()
    sound: dict[str, bool] = {}
    try:
        for room in rooms:
            for number, (file, mutant) in enumerate(sampled(room, size, seed), 1):
                line = {"room": room, "file": file, "line": mutant.line, "function": mutant.function,
                        "operator": mutant.operator, "before": mutant.before, "after": mutant.after}  # fmt: skip
                before = done.get(page.key(line))
                if before and (before["killed_by"] or not again):
                    continue
                given = trial.chosen(tests[room], file, mutant)
                killer = trial.killer(copy, file, mutant.source, given, sound)
                line |= {**before, "later": killer} if before else {"tests": len(given), "killed_by": killer}
                with RESULTS.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(line) + "\n")
                word = "caught" if killer else "SURVIVED" if given else "no test runs it"
                print(
                    f"{room} {number}: {file}:{mutant.line} {mutant.before} -> {mutant.after}: {word}", file=sys.stderr
                )
    finally:
        copy.remove()


def _files(folder: str) -> list[Path]:
    return sorted((ROOT / "tests" / folder).glob("test_*.py"))


def sampled(room: str, size: int, seed: int) -> Iterator[tuple[str, Mutant]]:
    """A sample without replacement over all mutants of a room. A larger one begins with a smaller one."""
    every = [
        (path.relative_to(ROOT / "gptlab").as_posix(), mutant)
        for path in sorted((ROOT / "gptlab" / room).rglob("*.py"))
        for mutant in mutants(path.read_text(encoding="utf-8"))
    ]
    random.Random(f"{room}-{seed}").shuffle(every)
    yield from every[:size]


if __name__ == "__main__":
    main()
