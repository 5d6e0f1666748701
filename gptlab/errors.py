"""The one family of errors that a user can cause, and the closest-match hint they carry."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_NAMES = 20  # that a message lists


class GptlabError(Exception):
    """Anything that is the user's to mend. The command line prints it without a traceback and exits with 2."""


class ConfigError(GptlabError, ValueError):
    """A configuration that cannot be run: what is wrong, where, what is allowed, and the closest match."""

    key = ""  # dotted, where one key is to blame: whoever knows the files can say in which line it stands


def closest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that looks most like `word`, or None when none looks alike."""
    matches = difflib.get_close_matches(str(word), list(allowed), n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown(what: str, word: str, allowed: Iterable[str], listing: str = "") -> ConfigError:
    """The standard sentence for a name that does not exist: `what` names the place, `allowed` lists the choices.

    Of many choices only the nearest are shown; `listing` is the command that shows all.
    """
    names = sorted(allowed)
    match = closest(word, names)
    hint = f" Did you mean {match!r}?" if match else ""
    if len(names) <= MOST_NAMES:
        return ConfigError(f"{what}: {word!r} does not exist.{hint} Allowed: {', '.join(names) or 'nothing'}.")
    near = difflib.get_close_matches(str(word), names, n=5, cutoff=0.3)
    shown = f" Nearest of {len(names)}: {', '.join(near)}." if near else f" There are {len(names)}."
    where = f" `{listing}` lists them." if listing else ""
    return ConfigError(f"{what}: {word!r} does not exist.{hint}{shown}{where}")
