"""The command line. Thin: it picks the command and turns what goes wrong into one line and an exit code.

0 all finished, 1 a run failed or standard output did, 2 the user's mistake, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from gptlab.cli.arguments import Parser
from gptlab.cli.output import settle_environment, standard_output, tell
from gptlab.errors import ConfigError, GptlabError, closest

# Each is a module with `main(arguments) -> exit code`. Loaded when asked for: `gptlab --help` must not wait for torch.
COMMANDS = {
    "plan": "gptlab.cli.plan",
    "add": "gptlab.cli.add",
    "audit": "gptlab.cli.audit",
    "check": "gptlab.cli.check",
    "diff-model": "gptlab.cli.diff_model",
    "generate": "gptlab.cli.generate",
    "inspect": "gptlab.cli.weights.inspect",
    "export": "gptlab.cli.weights.export",
    "ls": "gptlab.cli.listing",
    "watch": "gptlab.cli.daily.watch",
    "tag": "gptlab.cli.daily.tag",
    "note": "gptlab.cli.daily.note",
    "archive": "gptlab.cli.daily.archive",
    "ledger": "gptlab.cli.daily.ledger",
    "compare": "gptlab.cli.compare",
    "report": "gptlab.cli.report",
    "figures": "gptlab.cli.figures",
    "reproduce": "gptlab.cli.reproduce",
    "components": "gptlab.cli.components",
    "kernels": "gptlab.cli.kernels",
    "explain-id": "gptlab.cli.explain",
    "verify": "gptlab.cli.verify",
    "rerun": "gptlab.cli.rerun",
    "gc": "gptlab.cli.collect",
}
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` without the program's name. Prints errors of the user's as `gptlab: ...` on stderr."""
    if argv is None:
        settle_environment()
    arguments = list(sys.argv[1:] if argv is None else argv)
    with standard_output() as out:
        code = _answered(arguments)
    if out.failure is None or isinstance(out.failure, BrokenPipeError):  # `gptlab ls | head`: nobody reads on
        return code
    tell(f"standard output: {out.failure.strerror or out.failure}.")
    return code or 1


def _answered(arguments: Sequence[str]) -> int:
    """The exit code of a command. Whatever went wrong is told on stderr."""
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        return dispatch(arguments)
    except GptlabError as error:
        if full_error:
            raise
        tell(error)
        return 2
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
    except OSError as error:  # a full disk, a read-only folder, a file that may not be read
        if error.filename is None or full_error:
            raise
        tell(f"{error.filename}: {error.strerror or error}.")
        return 2


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
