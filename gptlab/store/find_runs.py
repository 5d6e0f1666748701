"""Finding runs on disk: below a folder, or by the beginning of an id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gptlab.errors import GptlabError
from gptlab.store.damage import DamagedError, load_object
from gptlab.store.names import CONFIG, MANIFEST, RESULT, RUN_NAME, bare_id

DEPTH = 4  # folders below the one named: <output_dir>/<study>/<run>, and some more for collections of those
_SIGNS = (RESULT, MANIFEST, CONFIG)


def find_runs(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """The run folders at and below `folder`, in order. Names that begin with a dot are passed over."""
    if is_run(folder):
        yield folder
        return
    if depth < 0:
        return
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names:
        yield from find_runs(folder / name, depth - 1)


def is_run(folder: Path) -> bool:
    """Whether a run has, or had, this folder: by its name, or by the files in it."""
    return bool(RUN_NAME.fullmatch(folder.name)) or any(os.path.lexists(folder / sign) for sign in _SIGNS)


def find_run(word: str, output_dir: Path) -> Path:
    """The folder that `word` names: itself, or the one run below `output_dir` whose id begins so.

    GptlabError when there is none, or more than one id that fits.
    """
    path = Path(word)
    if path.is_dir():
        return _refuse_no_run(path)
    if path.is_file():
        raise GptlabError(
            f"{word}: is a file, and a run is a folder. Its folder is {path.parent}.",
            code="run-is-a-file",
            word=word,
            parent=path.parent,
        )
    found: dict[str, Path] = {}
    if digits := bare_id(word):
        for folder in find_runs(output_dir):
            known = recorded_id(folder)
            if known.startswith(digits):
                found[known] = folder
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise GptlabError(
            f"{word}: more than one run begins so: {', '.join(sorted(known[:12] for known in found))}.",
            code="run-ambiguous",
            word=word,
        )
    raise GptlabError(
        f"{word}: no run folder, and no run in {output_dir} has an id that begins so.",
        code="run-not-found",
        word=word,
        output_dir=output_dir,
    )


def _refuse_no_run(folder: Path) -> Path:
    """The folder itself. GptlabError, with what was expected, when it is no run."""
    if not os.access(folder, os.R_OK | os.X_OK):
        raise GptlabError(f"{folder}: cannot be read (Permission denied).", code="run-not-readable", folder=folder)
    if is_run(folder):
        return folder
    inside = next(find_runs(folder), None)
    if inside:
        raise GptlabError(
            f"{folder}: is no run, but holds runs, such as {inside}. Name one of them.",
            code="run-is-a-study",
            folder=folder,
            inside=inside,
        )
    raise GptlabError(
        f"{folder}: is no run: a run's folder has {', '.join(_SIGNS)}. `gptlab ls` lists the runs.",
        code="not-a-run",
        folder=folder,
    )


def recorded_id(folder: Path) -> str:
    """The id that the run states; the digits in its folder's name where it cannot."""
    for name in (RESULT, MANIFEST):
        try:
            return str(load_object(folder / name)["id"])
        except (DamagedError, KeyError):
            continue
    match = RUN_NAME.fullmatch(folder.name)
    return match["id"] if match else ""
