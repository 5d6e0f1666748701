"""Names that would steer a terminal, turn a line around or be Markdown, through every command that shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlab.cli import main

EVIL = "a\x1b[31m\u202eb|`x`<img src=y>*[z](w)\x07"
COUNTING = ["model=tiny", "probes=counting", "data=random_tokens"]
Printed = Callable[..., str]

PLUGIN = f"""
from torch import nn

from gptlab import register


@register("activation", "evil")
class Evil(nn.ReLU):
    {f"Summary {EVIL}"!r}

    def __init__(self, depth: str = {EVIL!r}) -> None:
        super().__init__()
"""


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """Runs a command in a folder with an evil ablation in it; what it prints, on both ways out, steers nothing."""
    monkeypatch.chdir(tmp_path)
    Path("conf/ablation").mkdir(parents=True)
    text = f"# @package _global_\nmodel: {{activation: relu}}\nlabel: {json.dumps(EVIL)}\n"
    Path("conf/ablation/evil.yaml").write_text(text, encoding="utf-8")

    def run(*arguments: str, code: int = 0) -> str:
        assert main(arguments) == code, arguments
        captured = capsys.readouterr()
        loose = {character for character in captured.out + captured.err
                 if not character.isprintable() and character != "\n"}  # fmt: skip
        assert loose == set(), (arguments, loose)
        return captured.out if code == 0 else captured.err

    return run


def test_what_shows_a_label_writes_it_out(printed: Printed) -> None:
    seen = r"a\x1b[31m\u202eb|`x`<img src=y>*[z](w)\x07"
    assert seen in printed("plan", *COUNTING, "ablation=evil")
    planned = json.loads(printed("plan", *COUNTING, "ablation=evil", "--format", "json"))
    assert [run["label"] for run in planned["runs"]] == ["baseline", EVIL]
    printed(*COUNTING, "ablation=evil")  # with its progress on stderr
    shown = printed("explain-id", " ".join([*COUNTING, "ablation=evil"]))
    assert json.dumps(EVIL)[1:-1].split("|")[0] in shown
    printed("explain-id", " ".join([*COUNTING, "ablation=evil"]), " ".join(COUNTING))
    assert seen in printed("ls")
    assert EVIL in {row["label"] for row in json.loads(printed("ls", "--format", "json"))}
    assert json.loads(printed("compare", "outputs/runs", "--format", "json"))["baseline"] == "baseline"
    for arguments in (["compare", "outputs/runs"], ["report", "outputs/runs"], ["verify", "outputs"],
                      ["compare", "--diff", *map(str, sorted(Path("outputs/runs").glob("*-s123-*")))],
                      ["add", "outputs/runs", "seed=5", "--plan"]):  # fmt: skip
        printed(*arguments)
    for arguments in (["ls", "--columns", "label,seed"], ["compare", "outputs/runs"]):
        page = printed(*arguments, "--format", "md")
        rows = [line for line in page.splitlines() if "src=y" in line and line.startswith("|")]
        ruled = {line.count("|") for line in page.splitlines() if re.fullmatch(r"[|: -]+", line)}
        assert rows and ruled
        for row in rows:  # one cell each, and nothing that Markdown would act on
            assert not re.search(r"(?<!\\)[`<\[*]", row)
            assert len(re.findall(r"(?<!\\)\|", row)) in ruled


def test_messages_write_it_out_too(printed: Printed) -> None:
    one = Path("conf/ablation/evil.yaml").read_text(encoding="utf-8")
    Path("conf/ablation/other.yaml").write_text(one.replace("relu", "silu"), encoding="utf-8")
    assert r"\x1b[31m\u202eb" in printed("plan", *COUNTING, "ablation=evil,other", code=2)  # two with one name
    for arguments in (["plan", f"ablation={EVIL}"], [f"model.norm={EVIL}"], [EVIL], ["ls", EVIL],
                      ["compare", "nowhere", "--by", EVIL], ["components", EVIL], ["explain-id", EVIL]):  # fmt: skip
        printed(*arguments, code=2)


def test_components_of_a_plugin(printed: Printed, monkeypatch: pytest.MonkeyPatch, scratch_registry: None) -> None:
    Path("my_evil.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert r"\x1b[31m\u202eb" in printed("components", "activation", "plugins=[my_evil]")
    page = printed("components", "activation", "plugins=[my_evil]", "--format", "md")
    (row,) = [line for line in page.splitlines() if line.startswith("| `evil`")]
    assert "<img" not in re.sub(r"`[^`]*`", "", row)
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
