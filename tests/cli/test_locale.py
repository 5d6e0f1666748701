"""Under the C locale an ä is what it is under any other: read as UTF-8, and printed in some way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
C = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}


def test_text_on_the_command_line_is_utf_8(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    asked = ["plan", "model=tiny", "data=random_tokens", "experiment.question=Wäre es so?", "label=ä", "--format=json"]
    done = subprocess.run(
        [sys.executable, "-m", "gptlab", *asked], env=environ | C, cwd=tmp_path, capture_output=True, check=True
    )
    plan = json.loads(done.stdout)
    assert plan["question"] == "Wäre es so?"
    assert plan["runs"][0]["label"] == "ä"
