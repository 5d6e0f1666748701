"""Kind of data `hf`: a Hugging Face data set, by name or from a local folder. Needs the extra `hf`.

Its documents are streamed once and kept beside the cached tokens, so that later runs need no network and see the same
text. A local folder is read again when the content of one of its files changes; a name only when `revision` does.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gptlab.data import cache
from gptlab.data.text import Content, Text, scan
from gptlab.data.texts import TextSource
from gptlab.errors import ConfigError, GptlabError, wrong_value
from gptlab.registry import register
from gptlab.store import data_files
from gptlab.store.atomic import replacing


@register("data", "hf")
def _hf(
    path: str,
    tokenizer: str,
    vocab_size: int,
    split: str = "document",
    validation_fraction: float = 0.1,
    subset: str | None = None,
    part: str = "train",
    column: str = "text",
    max_documents: int = 10_000,
    revision: str | None = None,
) -> TextSource:
    """A Hugging Face data set: a name, or a local folder. One document for each row."""
    where = f"data.path={path}"
    if max_documents < 1:
        raise wrong_value("data.options.max_documents", max_documents, "must be 1 or more.", code="hf-max-documents")
    local = os.path.expanduser(path)
    files = _contents(local) if os.path.isdir(local) else None
    request = {"path": os.path.abspath(local) if files else path, "subset": subset, "part": part, "column": column}
    key = json.dumps({**request, "max_documents": max_documents, "revision": revision, "files": files}, sort_keys=True)
    place = cache.folder() / "documents" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.jsonl"
    if not cache.sound(place):
        rows = _rows(where, {**request, "revision": revision})
        try:
            _keep(place, _column(rows, column, max_documents, where))
        except OSError as error:
            raise GptlabError(
                f"{where}: {place}: cannot be written: {error.strerror or error}.",
                code="hf-not-written",
                where=where,
                place=place,
            ) from error
    text = Text(lambda: _read(place), lambda characters: _scan(place, place.stat().st_mtime_ns, characters))
    if not any(text.scan(False).lengths):
        raise ConfigError(f"{where}: no row of {part} holds any text.", code="hf-no-text", where=where, part=part)
    return TextSource(
        where, text, tokenizer, vocab_size, (split, validation_fraction), kept=True, files=local if files else ""
    )


def _contents(folder: str) -> list[tuple[str, str]]:
    """Name and SHA-256 of every file in the folder."""
    found = data_files.record("", [folder]).files[os.path.abspath(folder)]
    return [(os.path.relpath(file.path, folder), file.sha256) for file in found]


def _rows(where: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"{where}: data.source=hf needs the package datasets: pip install 'gptlab[hf]'.",
            code="hf-not-installed",
            where=where,
        ) from error
    try:
        stream = datasets.load_dataset(
            request["path"],
            name=request["subset"],
            split=request["part"],
            revision=request["revision"],
            streaming=True,
        )
        yield from stream
    except Exception as error:  # of any kind: no such name, no network, no such split, a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"{where}: datasets cannot load it: {reason}", code="hf-not-loaded", where=where, reason=reason
        ) from error


def _column(rows: Iterable[dict[str, Any]], column: str, limit: int, where: str) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number == limit:
            return
        if not isinstance(row.get(column), str):
            columns = ", ".join(name for name, value in row.items() if isinstance(value, str)) or "none"
            raise wrong_value(
                "data.options.column",
                column,
                f"not a column of text in {where}. Those are: {columns}.",
                code="hf-column",
                where=where,
                columns=columns,
            )
        yield row[column]


def _keep(place: Path, documents: Iterable[str]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place) as file:
        for document in documents:
            file.write(json.dumps(document).encode() + b"\n")
    cache.seal(place)


def _read(place: Path) -> Iterator[list[str]]:
    with place.open("rb") as file:
        for line in file:
            yield [json.loads(line)]


@functools.lru_cache(maxsize=16)
def _scan(place: Path, changed: int, characters: bool) -> Content:
    return scan(_read(place), characters)
