"""The one family of errors that a user can cause, and the closest-match hint they carry."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GptlabError(Exception):
    """Anything that is the user's to mend. The command line prints it without a traceback and exits with 2."""


class ConfigError(GptlabError, ValueError):
    """A configuration that cannot be run: what is wrong, where, what is allowed, and the closest match."""


def closest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that looks most like `word`, or None when none looks alike."""
    matches = difflib.get_close_matches(str(word), list(allowed), n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown(what: str, word: str, allowed: Iterable[str]) -> ConfigError:
    """The standard sentence for a name that does not exist: `what` names the place, `allowed` lists the choices."""
    names = sorted(allowed)
    match = closest(word, names)
    hint = f" Did you mean {match!r}?" if match else ""
    return ConfigError(f"{what}: {word!r} does not exist.{hint} Allowed: {', '.join(names) or 'nothing'}.")
