"""docs/weights.md, as a reader follows it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.check.test_documented_steps import ROOT, paste

PAGE = (ROOT / "docs" / "weights.md").read_text()


@pytest.mark.slow
def test_the_page_runs_as_pasted(tmp_path: Path) -> None:
    steps = re.findall(r"<!-- step: (\w+) -->\n```(sh|python)\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(steps) == PAGE.count("```") // 2
    for name, language, block in steps:
        shell = block if language == "sh" else f"{sys.executable} - <<'END_OF_FILE'\n{block}END_OF_FILE"
        done = paste(shell, tmp_path)
        assert done.returncode == 0, (name, done.stdout + done.stderr)
        assert name != "refused" or done.stdout.endswith("refused\n") and "model.norm_placement=post" in done.stderr
