"""docs/components.md, as a reader follows it: every marked block is pasted into a shell in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gptlab import registry
from gptlab.model.block import PLACEMENTS, Block

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "components.md").read_text()


def blocks(step: str) -> list[str]:
    found = re.findall(rf"<!-- step: {step} -->\n```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    assert found, step
    return found


def paste(text: str, folder: Path, *search: Path) -> subprocess.CompletedProcess[str]:
    """In bash, stopping at the first failure; `gptlab` is the tree under test."""
    command = folder / "bin"
    command.mkdir(exist_ok=True)
    (command / "gptlab").write_text(f'#!/bin/sh\nexec {sys.executable} -m gptlab "$@"\n')
    (command / "gptlab").chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GPTLAB_")}
    environ["PATH"] = f"{command}{os.pathsep}{environ['PATH']}"
    environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, *search)))
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return subprocess.run(
        ["bash", "-ec", text], cwd=work, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


@pytest.mark.slow
@pytest.mark.parametrize("step", ["ablation", "component", "probe", "training"])
def test_the_steps_work_from_an_empty_folder(step: str, tmp_path: Path) -> None:
    for text in blocks(step):
        done = paste(text, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " fail " not in done.stdout
    assert list((tmp_path / "work" / "outputs").rglob("result.json"))


@pytest.mark.slow
def test_the_leak_is_found(tmp_path: Path) -> None:
    (text,) = blocks("fails")
    done = paste(text, tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(r"causality +fail +token 1 was changed, and logits before it moved by", done.stdout)
    assert re.search(r"causality of gradients +fail +logits 0 have a gradient of", done.stdout)


@pytest.mark.slow
def test_a_package_joins_by_its_entry_point(tmp_path: Path) -> None:
    (text,) = blocks("package")
    assert paste(text, tmp_path).returncode == 0
    work, site = tmp_path / "work", tmp_path / "site"
    site.mkdir()
    (site / "my_package").symlink_to(work / "my_package")
    # What an installer leaves behind, without one: setuptools need not be here.
    info = site / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    points = re.search(r'\[project\.entry-points\."(.+?)"\]\n(.+?) = "(.+?)"', (work / "pyproject.toml").read_text())
    assert points
    (info / "entry_points.txt").write_text(f"[{points[1]}]\n{points[2]} = {points[3]}\n")
    (text,) = blocks("installed")
    done = paste(text, tmp_path, site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "x + sin(rate x) / rate." in done.stdout and " fail " not in done.stdout


def test_the_page_draws_every_placement_and_layout() -> None:
    drawn = PAGE[PAGE.index("## Where things stand") : PAGE.index("## A variant of your own")]
    for name in PLACEMENTS:
        assert re.search(rf"^{name}\b", drawn, flags=re.MULTILINE), name
        assert re.search(rf"\b{name}\b", Block.__doc__ or ""), name
    for name, layout in registry.components("block").items():
        if layout.module.startswith("gptlab."):
            assert re.search(rf"^{name}\b", drawn, flags=re.MULTILINE), name


def test_every_command_of_the_page_exists() -> None:
    from gptlab.cli import COMMANDS

    words = re.findall(r"^gptlab (\S+)", PAGE, flags=re.MULTILINE)
    assert {word for word in words if "=" not in word} <= set(COMMANDS)
