"""The command line. Thin: it picks the command and turns what goes wrong into one line and an exit code.

0 all finished, 1 a run failed, 2 the user's mistake, 130 interrupted.
"""

from __future__ import annotations

import codecs
import importlib
import io
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from gptlab.cli.arguments import Parser
from gptlab.errors import ConfigError, GptlabError, closest

# Each is a module with `main(arguments) -> exit code`. Loaded when asked for: `gptlab --help` must not wait for torch.
COMMANDS = {
    "plan": "gptlab.cli.plan",
    "add": "gptlab.cli.add",
    "audit": "gptlab.cli.audit",
    "check": "gptlab.cli.check",
    "ls": "gptlab.cli.listing",
    "compare": "gptlab.cli.compare",
    "report": "gptlab.cli.report",
    "figures": "gptlab.cli.figures",
    "reproduce": "gptlab.cli.reproduce",
    "components": "gptlab.cli.components",
    "explain-id": "gptlab.cli.explain",
    "verify": "gptlab.cli.verify",
    "rerun": "gptlab.cli.rerun",
    "gc": "gptlab.cli.collect",
}
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` without the program's name. Prints errors of the user's as `gptlab: ...` on stderr."""
    arguments = list(map(_decoded, sys.argv[1:])) if argv is None else list(argv)
    _print_anywhere()
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        code = dispatch(arguments)
        sys.stdout.flush()  # here, so that a closed pipe is noticed here
    except GptlabError as error:
        if full_error:
            raise
        print(f"gptlab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gptlab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `gptlab ls | head`: nobody reads on. Point stdout elsewhere, or Python complains once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a read-only folder, a file that may not be read
        if error.filename is None or full_error:
            raise
        print(f"gptlab: {error.filename}: {error.strerror or error}.", file=sys.stderr)
        return 2
    return code


def _print_anywhere() -> None:
    """A letter that the locale's encoding lacks must not end a study: ASCII, as under C, becomes UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if ascii_only else None, errors="backslashreplace")


def _decoded(argument: str) -> str:
    """An argument as UTF-8, whatever the locale: under C, Python takes the bytes of an ä for no text."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeDecodeError:
        return argument  # it is refused where it is used, by name


def _find_plugins_here() -> None:
    """`plugins=[mine]` finds mine.py beside the user's conf/, however gptlab was started."""
    try:
        here = os.getcwd()
    except FileNotFoundError as error:
        raise ConfigError(
            "the folder that you are in has been removed. Go to another one.", code="working-folder-gone"
        ) from error
    if here not in sys.path:
        sys.path.append(here)


def dispatch(arguments: Sequence[str]) -> int:
    """Run one command. A mistake of the user's is raised, as GptlabError."""
    _find_plugins_here()
    word = arguments[0] if arguments else ""
    if word in COMMANDS:
        code: int = importlib.import_module(COMMANDS[word]).main(arguments[1:])
        return code
    if word and "=" not in word and not word.startswith(("-", "+", "~")):
        raise _unknown_command(arguments)
    return _without_command(arguments)


def _without_command(arguments: Sequence[str]) -> int:
    """A question to gptlab or to Hydra, or overrides: a run."""
    given = _read(arguments)
    if given.version:
        print(f"gptlab {importlib.import_module('gptlab').__version__}")
        return 0
    if given.help:
        from gptlab.cli import help

        return help.main(given.config_dirs)
    if given.hydra_help or given.shell_completion or given.cfg or given.info:
        from gptlab.cli import hydra_flags

        return hydra_flags.main(arguments, given)
    for flag in ("--package", "--resolve"):
        if getattr(given, flag.strip("-")):
            raise ConfigError(f"{flag}: belongs to --cfg.", code="flag-without-cfg", key=flag)
    from gptlab.cli import run

    return run.main(arguments)


def _read(arguments: Sequence[str]) -> Namespace:
    parser = Parser(overrides=True)
    for flags in (("--version",), ("--hydra-help",), ("--resolve",), ("--shell-completion", "-sc")):
        parser.switch(*flags)
    parser.option("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.option("--package", "-p")
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=_INFO)
    try:
        return parser.read(arguments)
    except ConfigError as error:
        if (error.code, error.key) != ("unknown-name", "option"):
            raise
        from gptlab.declare.overrides import GROUPS
        from gptlab.declare.slips import foreign_flag

        flag = error.facts["value"]
        place = next(at for at, text in enumerate(arguments) if text.partition("=")[0] == flag)
        value = arguments[place].partition("=")[2] or "".join(arguments[place + 1 : place + 2])
        raise foreign_flag(flag, value, GROUPS) or error from None


def _unknown_command(arguments: Sequence[str]) -> ConfigError:
    from gptlab.declare.composer import Composer
    from gptlab.declare.slips import VERBS, refuse_slips

    word, following = arguments[0], "".join(arguments[1:2])
    match = closest(word, COMMANDS)
    if match and word not in VERBS and not following.startswith("="):
        return ConfigError(
            f"{word!r} is no command. Did you mean {match!r}? Commands: {', '.join(COMMANDS)}.",
            code="unknown-command-near",
            value=word,
            suggestion=match,
        )
    try:
        refuse_slips([text for text in arguments if not text.startswith("-")], Composer().groups)
    except ConfigError as error:
        return error.reworded(f"{error} (Commands: {', '.join(COMMANDS)}; see gptlab --help.)")
    return ConfigError(f"{word!r} is no command.", code="no-such-command")
