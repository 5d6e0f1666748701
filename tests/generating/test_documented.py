"""docs/generation.md, as a reader follows it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.check.test_documented_steps import ROOT, paste

PAGE = (ROOT / "docs" / "generation.md").read_text()


def step(name: str, language: str = "sh") -> str:
    (found,) = re.findall(rf"<!-- step: {name} -->\n```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(found)


@pytest.mark.slow
def test_the_page_runs_as_pasted(tmp_path: Path) -> None:
    said = {}
    for name in ("train", "draw", "batch", "probe"):
        done = paste(step(name), tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        said[name] = done.stdout
    assert "\nThe " in said["train"] and said["draw"].count("The ") >= 2
    assert "A statement is" in said["batch"]
    done = paste(f"{sys.executable} - <<'END_OF_FILE'\n{step('python', 'python')}END_OF_FILE", tmp_path)
    assert done.returncode == 0 and "length" in done.stdout, done.stdout + done.stderr
