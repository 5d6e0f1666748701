"""gptlab as it reaches a user: from a checkout, from any folder, and from an installed wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import gptlab

ROOT = Path(__file__).parents[1]
PLAN = ["plan", "model=tiny", "ablation=relu"]


def run(command: list[str], cwd: Path, pythonpath: Path | None = None) -> str:
    """The standard output of a command that has to succeed, run without what the caller's environment adds."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith(("GPTLAB_", "PYTEST_"))}
    if pythonpath:
        env["PYTHONPATH"] = str(pythonpath)
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def conf_files() -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / "conf").rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and with the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds gptlab as installed from the wheel; its dependencies come from the running environment."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    run([*pip, "--target", str(target), str(wheel)], cwd=target)
    return target


def test_version_is_the_one_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert gptlab.__version__ == declared


@pytest.mark.parametrize("statement", ["import gptlab", "from gptlab.cli import main"])
def test_import_is_light(statement: str, tmp_path: Path) -> None:
    code = f"import sys; {statement}; print(*({{'torch', 'pandas', 'matplotlib', 'numpy'}} & sys.modules.keys()))"
    assert run([sys.executable, "-c", code], cwd=tmp_path).split() == []


@pytest.mark.slow
def test_sdist_is_complete(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "Makefile", "constraints.txt", *conf_files()} <= names


@pytest.mark.slow
def test_wheel_holds_all_of_conf(wheel: Path) -> None:
    shipped = {name.removeprefix("gptlab/") for name in zipfile.ZipFile(wheel).namelist() if "/conf/" in name}
    assert shipped == conf_files()
    assert len(shipped) > 20


@pytest.mark.slow
def test_wheel_holds_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"gptlab/py.typed", "gptlab/book/reproduce/claims.csv"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"gptlab", f"gptlab-{gptlab.__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.slow
def test_wheel_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    where = run([sys.executable, "-c", "import gptlab; print(gptlab.__file__)"], tmp_path, pythonpath=installed)
    assert Path(where.strip()).is_relative_to(installed)
    assert "gptlab" in run([sys.executable, "-m", "gptlab", "--help"], tmp_path, pythonpath=installed)
    assert "relu" in run([sys.executable, "-m", "gptlab", *PLAN], tmp_path, pythonpath=installed)
    assert not list(tmp_path.iterdir()), "help and plan write nothing"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["checkout", "elsewhere"])
def test_console_script_runs(place: str, tmp_path: Path) -> None:
    script = str(Path(sys.executable).parent / "gptlab")
    assert "relu" in run([script, *PLAN], cwd=ROOT if place == "checkout" else tmp_path)
    assert not list(tmp_path.iterdir()), "plan writes nothing"
