"""Two runs beside each other: each difference once, under the heading where it belongs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gptlab.comparing.diff import run_differences
from gptlab.errors import ConfigError
from tests.support.seeded import MANIFEST, Arm, make_seeded


def two(root: Path, other: dict[str, Any], **more: Any) -> tuple[Path, Path]:
    arms = [Arm("none", {1: 3.0}), Arm("x", {1: more.pop("value", 3.0)}, manifest={**MANIFEST, **other}, **more)]
    folder = make_seeded(root, arms)
    rows = json.loads((folder / "plan.json").read_text())["runs"]
    return folder / rows[0]["folder"], folder / rows[1]["folder"]


@pytest.mark.parametrize(
    ("other", "heading", "key"),
    [
        ({"git": {**MANIFEST["git"], "commit": "b" * 40}}, "code", "git.commit"),
        ({"code": {"gptlab": "b"}}, "code", "code.gptlab"),
        ({"packages": {**MANIFEST["packages"], "gptlab": "0.2.0"}}, "code", "packages.gptlab"),
        ({"packages": {**MANIFEST["packages"], "torch": "2.9.0"}}, "environment", "packages.torch"),
        ({"host": "two"}, "environment", "host"),
        ({"threads": 4}, "environment", "threads"),
        ({"data_sha256": "e" * 64}, "data", "data_sha256"),
    ],
)
def test_each_difference_stands_under_its_heading(
    tmp_path: Path, other: dict[str, Any], heading: str, key: str
) -> None:
    one, changed = two(tmp_path, other)
    found = run_differences(one, changed)
    assert list(found) == ["config", "code", "environment", "data", "outcome"]
    assert {name: list(pairs) for name, pairs in found.items() if pairs} == {heading: [key]}
    backward = run_differences(changed, one)[heading][key]
    assert found[heading][key] == (backward[1], backward[0])


def test_config_and_outcome(tmp_path: Path) -> None:
    found = run_differences(*two(tmp_path, {}, value=2.5, model={"n_layers": 3}))
    assert found["config"] == {"model.n_layers": (2, 3)}
    assert found["outcome"] == {"final_loss": (3.0, 2.5)}
    assert not found["code"] and not found["environment"] and not found["data"]


def test_what_always_differs_is_no_difference(tmp_path: Path) -> None:
    own = {"start": "later", "stop": "x", "pid": 7, "command": ["a"], "overrides": ["b"]}
    found = run_differences(*two(tmp_path, own))
    assert not any(found.values())


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    one, _ = two(tmp_path, {})
    for folder, code in ((tmp_path / "missing", "diff-no-such-folder"), (tmp_path, "diff-not-a-run")):
        with pytest.raises(ConfigError) as caught:
            run_differences(one, folder)
        assert caught.value.code == code
