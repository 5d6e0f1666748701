"""Files are whole or not there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from gptlab.runs import files


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=lambda e: type(e).__name__)
def test_a_write_that_breaks_off_leaves_the_old_content_and_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(type(error)):
            files.write_text(path, "new")
        with pytest.raises(type(error)):
            files.write_text(tmp_path / "b.txt", "new")
    assert os.listdir(tmp_path) == ["a.txt"]
    assert path.read_text() == "old"
    files.write_text(path, "new")
    assert path.read_text() == "new"


def test_content_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (order.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(Path(a).read_text()), replace(a, b)))
    files.write_text(tmp_path / "a.txt", "content")
    assert order == ["fsync", "content"]


@pytest.mark.skipif(sys.platform == "win32", reason="no umask")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_mode_bits_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        files.write_text(tmp_path / "a.txt", "")
        assert os.umask(umask) == umask  # and nobody moved it
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == mode


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write_text(tmp_path / "no" / "a.txt", "")


def test_json_has_null_for_what_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {"a": float("nan"), "b": [1.5, float("inf"), (float("-inf"), 2)], 3: {"c": float("nan")}, "d": "NaN"}
    files.write_json(path, value)
    assert files.read_json(path) == {"a": None, "b": [1.5, None, [None, 2]], "3": {"c": None}, "d": "NaN"}
    json.loads(path.read_text(), parse_constant=pytest.fail)


def test_text_is_utf8_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    text = {"text": "Größe 語 \ud800 \x00 \u2028"}
    files.write_json(path, text)
    assert "Größe 語" in path.read_bytes().decode("utf-8")
    assert files.read_json(path) == text
    files.write_text(path, "a\nb\r\nc")
    assert path.read_bytes() == b"a\nb\r\nc"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"a": 1'])
def test_a_damaged_file_is_a_value_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011 - the families of json and of unicode
        files.read_json(tmp_path / "a.json")
    with pytest.raises(OSError, match=r"b\.json"):
        files.read_json(tmp_path / "b.json")
