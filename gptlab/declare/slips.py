"""Slips of the command line as a whole, seen before any word of it is read: each answered with the line to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from gptlab.declare.typed_text import free_texts
from gptlab.errors import ConfigError, closest
from gptlab.values import unknown_key

VERBS = frozenset({"run", "train", "start", "sweep", "experiment", "exec", "main", "fit"})


def refuse_slips(words: Sequence[str], groups: Mapping[str, Collection[str]]) -> None:
    """ConfigError for the first word that is no KEY=VALUE, most often a piece of one that the shell took apart."""
    for place, word in enumerate(words):
        before, after = words[place - 1] if place else "", words[place + 1] if place + 1 < len(words) else ""
        if before and word.startswith("=") or word.endswith("=") and _is_piece(after):
            key = before if word.startswith("=") else word[:-1]
            value = word[1:] or after if word.startswith("=") else after
            raise _as_one(f"{key}={value}", "no spaces around the equals sign", "spaces-around-equals")
        if "=" in word or word.startswith("~") or after == "=" or after.startswith("="):
            continue
        if before.partition("=")[0] in free_texts() and "=" in before:
            raise _as_one(_joined(words, place - 1, " "), "text with spaces goes in quotes", "text-unquoted")
        if before.endswith((",", "[", "(", "{")) or word[:1] in ",])}":
            raise _as_one(_joined(words, place - 1, ""), "the shell splits at spaces: leave them out", "list-spaces")
        raise _no_override(word, groups)


def _is_piece(word: str) -> bool:
    return bool(word) and "=" not in word and not word.startswith("-")


def _joined(words: Sequence[str], start: int, by: str) -> str:
    """The pieces of one override: all words from `start` up to the next that is an override of its own."""
    end = start + 1
    while end < len(words) and "=" not in words[end]:
        end += 1
    return by.join(words[start:end])


def _as_one(line: str, why: str, code: str) -> ConfigError:
    typed = shlex.quote(line) if re.search(r"[^\w=.,/+-]", line) else line
    return ConfigError(f"{line.partition('=')[0]}: {why}. Type {typed}", code=code, command=typed)


def _no_override(word: str, groups: Mapping[str, Collection[str]]) -> ConfigError:
    said = f"{word!r}: an override is KEY=VALUE."
    if word in VERBS:
        hint = f"{word!r}: leave it out. gptlab followed by overrides runs them: gptlab model=tiny"
        return ConfigError(hint, code="no-such-command", suggestion="gptlab model=tiny")
    for group, options in groups.items():
        if word in options:
            line = f"{group}={word}"
            return ConfigError(f"{said} Did you mean {line}?", code="no-equals-sign", suggestion=line)
    match = closest(word, [f"{group}={option}" for group, options in groups.items() for option in options])
    hint = f" Did you mean {match}?" if match else ""
    return ConfigError(f"{said}{hint}", code="no-equals-sign", suggestion=match)


def foreign_flag(flag: str, value: str, groups: Collection[str]) -> ConfigError | None:
    """For `--model tiny`, as other programs have it: here the keys have no dashes."""
    key = flag.lstrip("-").replace("-", "_")
    if key in groups or "." in key or key in ("seed", "workers", "output_dir", "label", "rng", "threads"):
        line = f"{key}={value or 'VALUE'}"
        return ConfigError(f"{flag}: keys have no dashes here. Type {line}", code="flag-for-key", command=line)
    error = unknown_key(flag, key, (), value)
    return error if error.facts.get("suggestion") else None
