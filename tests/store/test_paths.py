"""What writes takes a path as text, too, and does the same with it."""

from __future__ import annotations

from pathlib import Path

from gptlab.store import files
from gptlab.store.atomic import replacing, replacing_folder


def test_a_path_may_be_text(tmp_path: Path) -> None:
    folder = str(tmp_path / "new")
    files.make_folder(folder)
    files.write_bytes(f"{folder}/a", b"a")
    assert files.create(f"{folder}/b", b"b") and not files.create(f"{folder}/b", b"other")
    files.append_jsonl(f"{folder}/c.jsonl", {"step": 1})
    files.append_jsonl(f"{folder}/c.jsonl", {"step": 2}, {"step": 3})
    rows, _ = files.read_jsonl(f"{folder}/c.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert files.create_folder(f"{folder}/inner", "name", b"x") and Path(folder, "inner", "name").read_bytes() == b"x"
    with replacing(f"{folder}/d") as file:
        file.write(b"d")
    with replacing_folder(f"{folder}/whole") as inside:
        (inside / "e").write_bytes(b"e")
    files.remove(f"{folder}/a")
    found = sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())
    assert found == ["b", "c.jsonl", "d", "inner/name", "whole/e"]
