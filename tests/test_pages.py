"""Every fenced block of README, docs and notebook: its language is said, and what a reader pastes runs as it stands.

Pages of their own test what needs files (an experiment, a plugin); here all commands are looked at, and those that only
plan or explain are run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from gptlab.cli import COMMANDS, dispatch
from tests.support.fences import PAGES, SHELL, Fence, fences, unquoted

ALL = list(fences())
IN_SHELLS = [fence for fence in ALL if fence.language in SHELL]
LANGUAGES = {"sh", "bash", "python", "yaml", "json", "text", "html", "make", "toml", "csv", "latex", "markdown"}
OWN_FILES = re.compile(
    r"\bmy_|\bmine\b|plugins=|conf/|outputs/|STUDY|RUN\b|\bA\b|\.\.\.|two_speed|leaky|experts|narrow_relu|value_residual"
)
QUICK = sorted({
    command for fence in IN_SHELLS for command in fence.commands()
    if re.match(r"gptlab (plan|components|explain-id) ", command) and "--config-dir" not in command
    and not OWN_FILES.search(command) and ("model=tiny" in command or "components" in command)
})  # fmt: skip


def test_every_fence_says_its_language() -> None:
    assert [fence.place for fence in ALL if fence.language not in LANGUAGES] == []


def test_nothing_is_left_to_the_shell() -> None:
    """zsh takes [...] for a pattern and refuses it, bash takes (...) for a command."""
    loose = [(fence.place, command) for fence in IN_SHELLS for command in fence.commands()
             if re.search(r"[\[\](){}*?~]", unquoted(command))]  # fmt: skip
    assert loose == []


def test_every_command_is_one() -> None:
    words = [
        (fence.place, command.split("gptlab", 1)[1].split()) for fence in IN_SHELLS for command in fence.commands()
    ]
    strange = [(place, rest[0]) for place, rest in words
               if rest and "=" not in rest[0] and rest[0][0] not in "-'\"|>" and rest[0] not in COMMANDS]  # fmt: skip
    assert strange == []
    assert len(words) > 100 and len(PAGES) > 20  # they are found at all


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_every_block_can_be_parsed(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")

    def complaint(fence: Fence) -> str:
        text = "\n".join(fence.lines)
        done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
        return done.stderr

    assert {fence.place: said for fence in IN_SHELLS if (said := complaint(fence))} == {}


@pytest.mark.parametrize("command", QUICK)
def test_what_only_plans_runs_as_pasted(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dispatch(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out
