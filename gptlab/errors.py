"""The one family of errors that a user can cause: each has a code, its facts as data, and one short sentence.

The code names the kind of mistake (`unknown-name`, `heads-divide`) and stays when the words change, so that a
program, or a test, never reads English. `tests/golden/messages.txt` has every code with its sentence.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any, Self

from gptlab.other_names import VALUES

MOST_NAMES = 20  # that a message lists


class GptlabError(Exception):
    """Anything that is the user's to mend. The command line prints it without a traceback and exits with 2.

    `facts` holds what the sentence says, as data. Where they apply: `key` (dotted) and `value`, `allowed`, `suggestion`
    (the closest that would do), `file` and `line`, `command` (a line to type).
    """

    def __init__(self, message: str, /, *, code: str, **facts: Any) -> None:
        super().__init__(message)
        self.code, self.facts = code, facts

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), str(self), self.code, self.facts)  # keyword arguments survive a worker's pipe

    @property
    def key(self) -> str:
        """The dotted key that is to blame, or "": whoever knows the files can say in which line it stands."""
        return str(self.facts.get("key", ""))

    def with_facts(self, **facts: Any) -> Self:
        """The same error, which says more facts."""
        self.facts |= facts
        return self

    def reworded(self, message: str, **facts: Any) -> Self:
        """A new error of the same kind and facts, and more: for whoever knows where it happened."""
        return type(self)(message, code=self.code, **self.facts | facts)


def _rebuilt(kind: type[GptlabError], message: str, code: str, facts: dict[str, Any]) -> GptlabError:
    return kind(message, code=code, **facts)


class ConfigError(GptlabError, ValueError):
    """A configuration that cannot be run: what is wrong, where, what is allowed, and the closest match."""


def closest(word: str, allowed: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The allowed word that looks most like `word`, or None when none looks alike; a higher `cutoff` asks for more."""
    matches = difflib.get_close_matches(str(word), list(allowed), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def meant(word: str, allowed: Collection[str]) -> str | None:
    """The allowed name for what other libraries call `word`, or None."""
    name = VALUES.get(word.lower())
    return name if name and name in allowed else None


def wrong_value(key: str, value: object, why: str, *, code: str, **facts: Any) -> ConfigError:
    """The standard sentence for a value that cannot be: `key=value: why`."""
    return ConfigError(f"{key}={value}: {why}", code=code, key=key, value=value, **facts)


def unknown(what: str, word: str, allowed: Iterable[str], listing: str = "", cutoff: float = 0.6) -> ConfigError:
    """The standard sentence for a name that does not exist: `what` names the place, `allowed` lists the choices.

    Of many choices only the nearest are shown; `listing` is the command that shows all; `cutoff` as in `closest`.
    """
    names = sorted(allowed)
    match = meant(str(word), names) or closest(word, names, cutoff)
    hint = f" Did you mean {match!r}?" if match else ""
    members = [part.strip() for part in str(word).split(",")]
    if len(members) > 1 and set(members) <= set(names):
        match, hint = ",".join(members), f" Without the quotes it is a sweep: {','.join(members)}."
    facts = {"key": what, "value": word, "allowed": names, "suggestion": match, "command": listing or None}
    if len(names) <= MOST_NAMES:
        choices = f" Allowed: {', '.join(names) or 'nothing'}."
    else:
        near = difflib.get_close_matches(str(word), names, n=5, cutoff=0.3)
        choices = f" Nearest of {len(names)}: {', '.join(near)}." if near else f" There are {len(names)}."
        choices += f" `{listing}` lists them." if listing else ""
    return ConfigError(f"{what}: {word!r} does not exist.{hint}{choices}", code="unknown-name", **facts)
