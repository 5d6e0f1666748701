"""The command line. Thin: it picks the command and turns what goes wrong into one line and an exit code.

0 all finished, 1 a run failed, 2 the user's mistake, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` without the program's name. Prints errors of the user's as `gptlab: ...` on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        _find_plugins_here()
        code = _dispatch(arguments)
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


def _find_plugins_here() -> None:
    """`plugins=[mine]` finds mine.py beside the user's conf/, however gptlab was started."""
    try:
        here = os.getcwd()
    except FileNotFoundError as error:
        raise ConfigError("the folder that you are in has been removed. Go to another one.") from error
    if here not in sys.path:
        sys.path.append(here)


def _dispatch(arguments: list[str]) -> int:
    word = arguments[0] if arguments else ""
    if word in COMMANDS:
        code: int = importlib.import_module(COMMANDS[word]).main(arguments[1:])
        return code
    if "--version" in arguments:
        print(f"gptlab {importlib.import_module('gptlab').__version__}")
        return 0
    if word and "=" not in word and not word.startswith(("-", "+", "~")):
        raise _unknown_command(arguments)
    from gptlab.cli import hydra_flags

    if hydra_flags.wanted(arguments):
        return hydra_flags.main(arguments)
    from gptlab.cli import run

    return run.main(arguments)


def _unknown_command(arguments: list[str]) -> ConfigError:
    from gptlab.declare.composer import Composer
    from gptlab.declare.slips import VERBS, refuse_slips

    word, following = arguments[0], "".join(arguments[1:2])
    match = closest(word, COMMANDS)
    if match and word not in VERBS and not following.startswith("="):
        return ConfigError(f"{word!r} is no command. Did you mean {match!r}? Commands: {', '.join(COMMANDS)}.")
    try:
        refuse_slips([text for text in arguments if not text.startswith("-")], Composer().groups)
    except ConfigError as error:
        return error.reworded(f"{error} (Commands: {', '.join(COMMANDS)}; see gptlab --help.)")
    return ConfigError(f"{word!r} is no command.", code="no-such-command")
