"""docs/weights.md, as a reader follows it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gptlab import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "weights.md").read_text()


@pytest.mark.slow
def test_the_page_s_commands_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = re.findall(r"<!-- step: (\w+) -->\n```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(steps) == PAGE.count("```sh")
    for name, block in steps:
        for line in block.strip().splitlines():
            words = shlex.split(line)
            assert words[0] == "gptlab" and cli.main(words[1:]) == 0, (name, line, capsys.readouterr().err)
