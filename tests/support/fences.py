"""The fenced blocks of README, docs and notebook, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "experiments").rglob("*.md")])
SHELL = ("sh", "bash")
_COMMAND = re.compile(r"^(?:\S+=\S+ +)?(?:\$ )?(?:\.venv/bin/|srun (?:\S+ )*)?gptlab(?= |$)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\\.")


@dataclass(frozen=True)
class Fence:
    """One block: its page, the line of its opening, its language and its lines."""

    page: str
    line: int
    language: str
    lines: tuple[str, ...]
    marked: bool = False  # as a step, `<!-- step: ... -->`, that a test of the page pastes with the files it needs

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """The gptlab commands of a shell block, continued lines joined, comments off."""
        joined = "\n".join(self.lines).replace("\\\n", " ")
        return [without_comment(line).strip() for line in joined.splitlines() if _COMMAND.match(line)]


def fences() -> Iterator[Fence]:
    """Every fenced block of every page."""
    for path in PAGES:
        opened: tuple[int, str] | None = None
        inside: list[str] = []
        before = ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            mark = re.match(r"^ *```(.*)$", line)
            if mark and opened:
                yield Fence(str(path.relative_to(ROOT)), *opened, tuple(inside), before.startswith("<!-- step:"))
                opened, inside = None, []
            elif mark:
                opened = number, mark[1].strip()
            elif opened:
                inside.append(line)
            else:
                before = line


def arguments(command: str) -> list[str]:
    """What gptlab gets of a command: no `srun` before it, no pipe behind it."""
    words = shlex.split(command)
    first = next(place for place, word in enumerate(words) if word.endswith("gptlab"))
    last = next((place for place, word in enumerate(words) if word in ("|", ">")), len(words))
    return words[first + 1 : last]


def without_comment(line: str) -> str:
    """A line of shell up to its comment; a # in quotes is none."""
    hidden = _QUOTED.sub(lambda quoted: "x" * len(quoted[0]), line)
    found = re.search(r"(^|\s)#", hidden)
    return line[: found.start()] if found else line


def unquoted(command: str) -> str:
    """The part of a command that a shell looks at: what is in quotes is left out."""
    return _QUOTED.sub("", command)
