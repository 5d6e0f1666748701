from __future__ import annotations

import ast
import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlab.store import atomic, files
from gptlab.store.atomic import StorageError
from tests.support.faults import Nth, hooked, python, raises

PACKAGE = Path(files.__file__).parents[1]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def operations(action) -> int:  # type: ignore[no-untyped-def]
    counter = Nth()
    with hooked(counter):
        action()
    return counter.count


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_a_write_that_is_refused_anywhere_leaves_the_old_content(tmp_path: Path, number: int) -> None:
    path = tmp_path / "file.json"
    files.write_json(path, {"old": 1})
    total = operations(lambda: files.write_json(path, {"old": 1}, durable=True))
    for place in range(1, total + 1):
        with hooked(Nth(place, raises(number))), pytest.raises(StorageError) as caught:
            files.write_json(path, {"new": 2}, durable=True)
        assert caught.value.errno == number and str(tmp_path) in str(caught.value)
        assert files.read_json(path) in ({"old": 1}, {"new": 2})
        assert names(tmp_path) == ["file.json"]
        if place < total:  # the last one is the folder's fsync, after the rename
            assert files.read_json(path) == {"old": 1}


def test_a_process_that_dies_at_any_operation_leaves_old_or_new(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from gptlab.store import files
from gptlab.store.atomic import is_temporary
from tests.support.faults import Nth, hooked
path = Path(sys.argv[1])
counter = Nth()
with hooked(counter):
    files.write_json(path, {"old": 1})
for place in range(1, counter.count + 1):
    if os.fork() == 0:
        with hooked(Nth(place, lambda path: os._exit(9))):
            files.write_json(path, {"new": 2})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 9
    assert files.read_json(path) == {"old": 1}, place
    left = [name for name in os.listdir(path.parent) if name != path.name]
    assert all(map(is_temporary, left)), left
    files.sweep(path.parent)
    assert os.listdir(path.parent) == [path.name]
print(counter.count)
"""
    assert int(python(code, tmp_path / "file.json").stdout) == 4


def test_create_makes_a_whole_file_once(tmp_path: Path) -> None:
    made: list[bool] = []
    threads = [
        threading.Thread(target=lambda k=k: made.append(files.create(tmp_path / "x", b"content %d" % k)))
        for k in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 15 + [True]
    assert (tmp_path / "x").read_bytes().startswith(b"content ")
    assert names(tmp_path) == ["x"]


def test_create_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*arguments: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert files.create(tmp_path / "x", b"one")
    assert not files.create(tmp_path / "x", b"two")
    assert (tmp_path / "x").read_bytes() == b"one"


def test_a_torn_last_line_is_dropped_reported_and_cut_off_by_the_next_append(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    files.append_jsonl(path, {"step": 0}, {"step": 1, "loss": float("nan")})
    whole = path.read_bytes()
    for torn in range(1, len(whole) - whole.index(b"\n") - 1):
        path.write_bytes(whole[:-torn])
        rows, problem = files.read_jsonl(path)
        assert rows == [{"step": 0}]
        assert "metrics.jsonl: the last line is torn" in problem
        files.append_jsonl(path, {"step": 2})
        assert files.read_jsonl(path) == ([{"step": 0}, {"step": 2}], "")


@pytest.mark.parametrize("line", [b"{", b"[1]", b"\xff\xfe", b"1"])
def test_any_other_bad_line_is_damage(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 0}\n' + line + b'\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 2"):
        files.read_jsonl(path)


def test_appending_to_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    files.append_jsonl(path, {"step": 0})
    for place in (1, 2):
        with hooked(Nth(place, raises(errno.ENOSPC))), pytest.raises(StorageError):
            files.append_jsonl(path, {"step": 1})
        assert files.read_jsonl(path)[0] == [{"step": 0}]


rows = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False))


@settings(deadline=None, max_examples=50)
@given(st.lists(rows.filter(lambda row: all(v not in (float("inf"), float("-inf")) for v in row.values())), max_size=5))
def test_what_is_appended_comes_back(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[dict[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "x.jsonl"
    for row in given_rows:
        files.append_jsonl(path, row)
    assert (files.read_jsonl(path) if path.exists() else ([], "")) == (given_rows, "")


def test_removing_a_folder_is_all_or_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a").write_text("x")
    with hooked(Nth(1, raises(errno.EACCES))), pytest.raises(StorageError):
        files.remove(folder)
    assert names(folder) == ["a"]
    files.remove(folder)
    assert names(tmp_path) == []
    files.remove(folder)  # no error for what is not there


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.remove(tmp_path / "link")
    assert names(tmp_path) == ["real"]


def test_without_a_hook_nothing_is_counted() -> None:
    assert atomic.hook is None


def test_nothing_else_in_the_package_writes_files() -> None:
    """One module owns every write but those of data and training, which atomic.py serves. (Figures are drawn first.)"""
    others = {
        "one_at_a_time.py",
        "atomic.py",
        "cache.py",
        "checkpoint.py",
        "history.py",
        "loop.py",
        "trackers.py",
        "huggingface.py",
        "refused_writes.py",
    }
    writing = {"write_text", "write_bytes", "unlink", "rename", "replace", "mkdir", "makedirs", "rmtree", "rmdir",
               "savefig", "to_csv", "symlink_to", "touch"}  # fmt: skip
    found = []
    for path in PACKAGE.rglob("*.py"):
        if path == Path(files.__file__) or path.name in others:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            owner = getattr(getattr(function, "value", None), "id", "")
            modes = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            opens_to_write = name == "open" and owner != "os" and any(set(m) & set("wax+") for m in modes if len(m) < 4)
            if opens_to_write or (name in writing and owner in ("os", "shutil", "path", "folder", "Path", "temporary")):
                found.append(f"{path.name}:{node.lineno} {owner}.{name}")
    assert found == []


def test_json_has_no_nan(tmp_path: Path) -> None:
    files.write_json(tmp_path / "x", {"a": [float("nan"), float("inf"), -float("inf"), 1.5]})
    assert json.loads((tmp_path / "x").read_text()) == {"a": ["nan", "inf", "-inf", 1.5]}


def test_gc_knows_what_every_writer_leaves_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each writer dies in the middle of a write: what it began is found, and goes."""
    import torch

    from gptlab.cli import main
    from gptlab.data import cache
    from gptlab.store.upkeep.collect import collect
    from gptlab.training import checkpoint
    from gptlab.training.history import History

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTLAB_CACHE", str(tmp_path / "cache"))
    run = tmp_path / "outputs" / "study" / "x-s1-01234567"
    run.mkdir(parents=True)
    with torch.random.fork_rng():
        model = torch.nn.Linear(1, 1)

    class Gone(BaseException):
        pass

    def dies(operation: str, path: Path) -> None:
        if operation in ("fsync", "rename"):
            raise Gone

    writers: dict[str, Callable[[], object]] = {
        "history": lambda: History(run),
        "checkpoint": lambda: checkpoint.save(run, "ab", 1, model, [], {}),
        "cache": lambda: cache.cached(["x"], lambda: iter(()), wide=False),
        "table": lambda: files.write_text(run.parent / "runs.csv", "x"),
        "figure": lambda: files.write_bytes(run.parent / "figure.svg", b"x"),
        "plan": lambda: files.write_json(run.parent / "plan.json", {}),
    }
    for name, write in writers.items():
        with hooked(dies), monkeypatch.context() as dead:
            dead.setattr(Path, "unlink", lambda *a, **k: None)  # a dead process tidies nothing
            dead.setattr("shutil.rmtree", lambda *a, **k: None)
            with pytest.raises(Gone):
                write()
        old = list(tmp_path.rglob(".*.tmp"))
        assert old, name
        for path in old:
            os.utime(path, (0, 0))
        left = [*collect(tmp_path / "outputs"), *collect(tmp_path / "cache")]
        assert {waste.path for waste in left} == {p for p in old if not any(q in p.parents for q in old)}, name
        capsys.readouterr()
        assert main(["gc", "--yes"]) == 0
        assert not list(tmp_path.rglob(".*.tmp")), (name, capsys.readouterr())
