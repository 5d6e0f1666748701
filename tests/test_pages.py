"""Every fenced block of README, docs and notebook: its language is said, and what a reader pastes runs as it stands.

Blocks that are marked as steps, and the lesson, have tests of their own. Of all others, what runs a model is planned
with the same arguments, what only tells is run, and the cheap blocks are pasted whole into bash.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from gptlab.book.figures import FIGURES
from gptlab.book.reproduce.claims import chosen, load_claims
from gptlab.cli import COMMANDS, dispatch
from gptlab.planning.plan import expand
from tests.check.test_documented_steps import paste
from tests.support.fences import PAGES, SHELL, Fence, arguments, fences, unquoted, without_comment

ALL = list(fences())
IN_SHELLS = [fence for fence in ALL if fence.language in SHELL]
LANGUAGES = {"sh", "bash", "python", "yaml", "json", "text", "html", "make", "toml", "csv", "latex", "markdown"}
CHEAP = re.compile(r"model=(tiny|deep_mlp|llama_tiny|toy_lesson)\b")
OF_A_STUDY = (
    "ls",
    "tag",
    "note",
    "archive",
    "ledger",
    "watch",
    "compare",
    "report",
    "audit",
    "add",
    "gc",
    "verify",
    "rerun",
)
FREE = ("plan", "components", "explain-id", *OF_A_STUDY)  # which take no model to run
MADE = "model=tiny ablation=none,relu,post_ln seed=1,2,3,4,5"  # what pages compare and look after, as outputs/runs
FOLLOWED = ("docs/chapter4-in-class.md", "docs/exercises.md")  # tests/book/test_lessons.py runs them line by line
NEEDS = {  # page -> the file that it has the reader write, and in which block
    "README.md": ("conf/ablation/small_relu.yaml", "yaml"),
    "docs/experiments.md": ("my_questions.py", "python"),
}
UNMARKED = [fence for fence in IN_SHELLS if not fence.marked and fence.commands()]
QUICK = sorted({
    command for fence in UNMARKED if fence.page not in NEEDS for command in fence.commands()
    if re.match(r"gptlab (components|explain-id|--help|--cfg)", command)
})  # fmt: skip


def is_cheap(command: str) -> bool:
    words = arguments(command)
    return (
        bool(CHEAP.search(command))
        and "launcher=" not in command
        or not words
        or words[0] in (*FREE, "--help")
        or "--study" in words
    )


CHEAP_FENCES = [
    fence for fence in UNMARKED
    if fence.page not in FOLLOWED and all(map(is_cheap, fence.commands())) and "diff-model" not in str(fence.lines)
]  # fmt: skip


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


def _write_what_the_page_says(fence: Fence) -> None:
    """The file of the page's own that its commands need, and what the block itself writes before them."""
    if fence.page in NEEDS:
        path, language = NEEDS[fence.page]
        body = next(other for other in reversed(ALL) if other.page == fence.page and other.language == language
                    and (language == "yaml" or "register(" in "".join(other.lines)))  # fmt: skip
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("\n".join(body.lines) + "\n", encoding="utf-8")
    writes = [line for line in fence.lines if line.startswith(("mkdir ", "printf "))]
    subprocess.run(["bash", "-ec", "\n".join(writes)], check=True)


def _planned(words: list[str]) -> list[str] | None:
    """The overrides that a command plans or runs; None for one that does neither."""
    if words and words[0] in ("plan", "check", "kernels"):
        words = words[1:]
    elif words and words[0] == "diff-model":
        words = words[2:]
    elif words and words[0] in COMMANDS or words[:1] in (["--help"], ["--cfg"]):
        return None
    options = {"--parts": 1, "--format": 2}
    for option, length in options.items():
        if option in words:
            del words[words.index(option) : words.index(option) + length]
    # A cluster's packages need not be here, and twenty seeds are composed like one.
    return [word if not word.startswith("seed=") else "seed=1" for word in words if not word.startswith("launcher")]


@cache
def _has_runs(words: tuple[str, ...]) -> bool:
    return bool(expand(words).runs)


@pytest.mark.parametrize(
    "fence",
    [
        pytest.param(
            fence, id=fence.place, marks=[pytest.mark.slow] if re.search(r"experiment=|glob", str(fence)) else []
        )
        for fence in UNMARKED
    ],
)
def test_whatever_runs_can_be_planned_with_the_same_arguments(
    fence: Fence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch_registry: None
) -> None:
    """The heavy ones too: each composes, is checked, and has runs. Names of figures and claims exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    _write_what_the_page_says(fence)
    for command in fence.commands():
        words = arguments(command)
        if words and words[0] == "reproduce":
            chosen(load_claims(), words[words.index("--only") + 1].split(",") if "--only" in words else [])
        elif words and words[0] == "figures" and "--study" not in words:
            assert {word for word in words[1:] if word in FIGURES or word in ("-o", "slides")} == set(words[1:])
        elif (planned := _planned(words)) is not None:
            assert _has_runs(tuple(planned)), command
        else:
            assert words[0] in (*FREE, "--help", "--cfg") or "--study" in words, command  # run by the tests below


@pytest.mark.parametrize("command", QUICK)
def test_what_only_tells_runs_as_pasted(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dispatch(arguments(command)) == 0
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small study in it that pages compare, list and look after."""
    folder = tmp_path_factory.mktemp("made")
    done = paste(f"gptlab {MADE}", folder)
    assert done.returncode == 0, done.stderr
    return folder / "work"


@pytest.mark.slow
@pytest.mark.parametrize("fence", CHEAP_FENCES, ids=lambda fence: fence.place)
def test_every_cheap_block_runs_as_pasted(
    fence: Fence, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bash, whole, where the reader would stand: beside the small study if the block speaks of one."""
    work = tmp_path / "work"
    if any({*arguments(command)} & {*OF_A_STUDY, "--study"} for command in fence.commands()):
        shutil.copytree(study, work)
    else:
        work.mkdir()
    monkeypatch.chdir(work)
    _write_what_the_page_says(fence)
    # An audit's exit code is its verdict: 3 for lines that nobody asked for.
    lines = [f"{without_comment(line)} || [ $? -eq 3 ]" if line.startswith("gptlab audit") else line
             for line in fence.lines]  # fmt: skip
    done = paste("\n".join(lines), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout and "Traceback" not in done.stderr
