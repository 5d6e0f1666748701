"""docs/blocks.md, as a reader follows it: two plugins, each one file, checked, planned, trained and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.check.test_documented_steps import ROOT, paste

PAGE = (ROOT / "docs" / "blocks.md").read_text()


def step(name: str) -> str:
    (found,) = re.findall(rf"<!-- step: {name} -->\n```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(found)


@pytest.mark.slow
def test_the_two_plugins_are_checked_planned_trained_and_compared(tmp_path: Path) -> None:
    for name in ("mixed_values", "experts"):
        done = paste(step(name), tmp_path)
        assert done.returncode == 0 and " fail " not in done.stdout, done.stdout + done.stderr
    done = paste(step("train"), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mixed_values" in done.stdout and "experts" in done.stdout
    results = [json.loads(path.read_text()) for path in (tmp_path / "work" / "outputs").rglob("result.json")]
    assert len(results) == 6 and {result["state"] for result in results} == {"finished"}
    balanced = [result["metrics"].get("auxiliary_loss/load_balance") for result in results]
    assert sum(value is not None and 0 < value < 0.2 for value in balanced) == 2


@pytest.mark.slow
def test_a_block_of_ones_own(tmp_path: Path) -> None:
    done = paste(step("block"), tmp_path)
    assert done.returncode == 0 and " fail " not in done.stdout, done.stdout + done.stderr


def test_the_python_of_the_page_runs() -> None:
    for text in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(text, "docs/blocks.md", "exec"), {"__name__": "page"})
