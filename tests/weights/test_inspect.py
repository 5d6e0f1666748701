"""`gptlab inspect`: what it says, and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gptlab import cli
from tests.support.refusals import refused_command
from tests.support.weights import saved, tiny_llama


def test_what_is_there_as_text_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_llama()
    folder = saved(model, tmp_path)
    (folder / "tokenizer.json").write_text("{}")
    assert cli.main(["inspect", str(folder)]) == 0
    text = capsys.readouterr().out
    count = sum(p.numel() for p in model.parameters())
    assert (
        "hugging face, llama" in text and f"{count:,}" in text and "n_kv_heads=2" in text and "tokenizer.json" in text
    )
    assert cli.main(["inspect", str(folder), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["whole"], found["parameters"], found["model"]["hidden_dim"]) == (True, count, 64)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 2'))
    assert cli.main(["inspect", str(folder)]) == 1
    assert "left over   model.layers.2.input_layernorm.weight" in capsys.readouterr().out


def test_one_path_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "--help"]) == 0
    refused_command(capsys, "inspect", code="inspect-takes-one-path")
    refused_command(capsys, "inspect", "a", "b", code="inspect-takes-one-path")


def test_the_command_line_starts_without_safetensors() -> None:
    code = "import sys, gptlab.cli; gptlab.cli.main(['inspect', '--help']); print('safetensors' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
