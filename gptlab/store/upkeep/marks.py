"""What people write beside a run: tags, notes, and whether it is archived. No part of the run.

They stand in `marks.json` in the run's folder, written whole or not at all. No identity and no hash of a result knows
that file, so marks may come and go at any time, also while the run goes on; a run that is repeated keeps them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gptlab.errors import ConfigError, unknown
from gptlab.store import files
from gptlab.store.damage import DamagedError, load_object, parsing
from gptlab.store.locks import GATE
from gptlab.store.names import MARKS, SHOWN_ID, now
from gptlab.store.one_at_a_time import one_at_a_time

SCHEMA = 1
_TAG = re.compile(r"[^\W_][\w.+-]{0,39}")


@dataclass(frozen=True)
class Note:
    """A sentence and when it was written (UTC, ISO 8601)."""

    when: str
    text: str


@dataclass(frozen=True)
class Marks:
    """All that stands beside one run. `archived`: since when; empty where it is not.

    `problem`: why they could not be read, for who only looks (`seen_marks`).
    """

    tags: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    archived: str = ""
    problem: str = ""


NONE = Marks()


def read_marks(folder: Path | str) -> Marks:
    """The marks of the run in `folder`. DamagedError where there are some that cannot be read."""
    path = os.path.join(folder, MARKS)
    if not os.path.lexists(path):  # of thousands nearly all: quicker than an exception
        return NONE
    content = load_object(path)
    with parsing(MARKS):
        notes = tuple(Note(str(note["when"]), str(note["text"])) for note in content.get("notes") or ())
        return Marks(tuple(map(str, content.get("tags") or ())), notes, str(content.get("archived") or ""))


def seen_marks(folder: Path | str) -> Marks:
    """The same for a listing: what cannot be read costs the marks, never the run."""
    try:
        return read_marks(folder)
    except DamagedError as damage:
        return Marks(problem=str(damage))


def tagged(folder: Path, tags: tuple[str, ...]) -> Marks:
    """Add these tags. ConfigError for a tag that could not be asked for, or would pass for a run."""
    for tag in tags:
        check_tag(tag)
    return _changed(folder, lambda marks: replace(marks, tags=tuple(dict.fromkeys((*marks.tags, *tags)))))


def untagged(folder: Path, tags: tuple[str, ...]) -> Marks:
    """Take these tags away, where they are."""
    return _changed(folder, lambda marks: replace(marks, tags=tuple(t for t in marks.tags if t not in tags)))


def noted(folder: Path, text: str) -> Marks:
    """Add a note, below those that there are. ConfigError for an empty one."""
    if not text.strip():
        raise ConfigError("note: the text is empty.", code="note-empty", value=text)
    return _changed(folder, lambda marks: replace(marks, notes=(*marks.notes, Note(now(), text.strip()))))


def unnoted(folder: Path, number: int) -> Marks:
    """Take away one note, counted from 1. ConfigError where there is none of this number."""

    def without(marks: Marks) -> Marks:
        if not 1 <= number <= len(marks.notes):
            raise unknown("note", str(number), map(str, range(1, len(marks.notes) + 1)))
        return replace(marks, notes=marks.notes[: number - 1] + marks.notes[number:])

    return _changed(folder, without)


def archived(folder: Path, is_archived: bool = True) -> Marks:
    """Archive the run, or bring it back. The day of the first time stays."""
    return _changed(folder, lambda marks: replace(marks, archived=(marks.archived or now()) if is_archived else ""))


def check_tag(tag: str) -> None:
    """ConfigError unless `tag` is one word, and no id."""
    if not _TAG.fullmatch(tag) or SHOWN_ID.fullmatch(tag):
        raise ConfigError(
            f"tag: {tag!r} is no tag. One word of letters, digits and . + - _, up to 40, that is no run's id.",
            code="tag-not-a-word",
            value=tag,
        )


def _changed(folder: Path, change: Callable[[Marks], Marks]) -> Marks:
    """Read, change and write, while no other command does. Without marks there is no file."""
    with one_at_a_time(folder.parent / GATE):
        before = readable(folder)
        after = change(before)
        if after == NONE:
            files.remove(folder / MARKS)
        elif after != before:
            files.write_json(folder / MARKS, _document(after))
    return after


def _document(marks: Marks) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "tags": list(marks.tags),
        "notes": [asdict(note) for note in marks.notes],
        "archived": marks.archived or None,
    }


def readable(folder: Path) -> Marks:
    """As `read_marks`, for who is going to write: ConfigError that says what to do."""
    try:
        return read_marks(folder)
    except DamagedError as damage:
        raise ConfigError(
            f"{folder}: {damage}. Mend or remove {folder / MARKS}; the run itself is not touched.",
            code="marks-damaged",
            folder=str(folder),
            damage=str(damage),
        ) from damage
