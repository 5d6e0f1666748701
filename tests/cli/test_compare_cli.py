from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import gptlab
from gptlab.cli import dispatch, main
from gptlab.errors import ConfigError
from tests.comparing.test_compare import arms, values
from tests.support.refusals import refused_command
from tests.support.seeded import Arm, make_seeded

DOCS = Path(__file__).parents[2] / "docs"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["compare", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_table_and_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_seeded(tmp_path, arms(-0.5, curve=[0, 10, 20]))
    text = printed(capsys, folder)
    assert re.search(r"final_loss \(nats/token, lower is better, primary metric\)", text)
    assert "better" in text
    assert "worse" in printed(capsys, folder, "--baseline", "relu", "--metric=final_loss")
    assert "equivalent within margin" in printed(capsys, folder, "--margin=50%")
    assert "validation_loss" in printed(capsys, folder, "--by", "step")
    assert json.loads(printed(capsys, folder, "--format", "json"))["baseline"] == "none"
    assert printed(capsys, folder, "--format=csv").startswith("metric,variant,")


@pytest.mark.parametrize(("terminal", "times"), [(True, 1), (False, 2)])
def test_a_warning_in_latex_is_said_once_to_a_reader_and_again_beside_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, times: int
) -> None:
    folder = make_seeded(tmp_path, [Arm("none", values(0)), Arm("x", values(1), {"n_layers": 3}, states={2: "failed"})])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert main(["compare", str(folder), "--format", "latex"]) == 0
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count("seed 2 failed") == times


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ([], "compare-names-nothing", {}),
        (["--formt", "md"], "unknown-name", {"key": "option", "value": "--formt", "suggestion": "--format"}),
        (["--format", "xlsx"], "unknown-name", {"key": "--format", "value": "xlsx"}),
        (["--baseline", "a", "--baseline", "b"], "option-value", {"key": "--baseline"}),
        (["--metric"], "option-value", {"key": "--metric"}),
        (["--margin=-1"], "margin-not-positive", {"key": "--margin", "value": "-1"}),
        (["--diff"], "diff-takes-two-runs", {}),
        (["nowhere"], "compare-no-such-folder", {"value": Path("nowhere")}),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], options: list[str], code: str, facts: dict[str, Any]
) -> None:
    folder = ["x"] if options and "--m" in options[0] else []
    refused_command(capsys, "compare", *folder, *options, code=code, **facts)


@pytest.mark.parametrize(
    ("words", "option", "suggestion"),
    [
        (["compare", "STUDY", "--by", "stp"], "--by", "step"),
        (["compare", "STUDY", "--by", "step"], "--by", None),  # nothing was trained
        (["compare", "STUDY", "--margin", "x"], "--margin", None),
        (["compare", "STUDY", "--baseline", "rel"], "--baseline", "relu"),
        (["compare", "STUDY", "--metric", "final_los"], "--metric", "final_loss"),
        (["compare", "STUDY", "--metric", "grad_norm_last"], "--metric", None),  # measured in none of them
        (["compare", "STUDY", "--columns", "verdit"], "--columns", "verdict"),
        (["compare", "STUDY", "--format", "markdwn"], "--format", None),
        (["report", "STUDY", "--margin", "x"], "--margin", None),
        (["figures", "--study", "STUDY", "--only", "heatmp"], "--only", "heatmap"),
        (["figures", "--study", "STUDY", "--format", "pdff"], "--format", "pdf"),
        (["ls", "STUDY", "--sort", "final_los"], "--sort", "final_loss"),
        (["ls", "STUDY", "--where", "final_los"], "--where", "final_loss"),
        (["ls", "STUDY", "--columns", "final_los"], "--columns", "final_loss"),
        (["ls", "STUDY", "--top", "ten"], "--top", None),
        (["gc", "STUDY", "--state", "finishd"], "--state", "finished"),
        (["audit", "STUDY", "--format", "jsn"], "--format", "json"),
        (["reproduce", "--only", "gelus"], "--only", "gelu"),
    ],
)
def test_a_wrong_option_is_named_as_it_was_typed(
    tmp_path: Path, words: list[str], option: str, suggestion: str | None
) -> None:
    folder = make_seeded(tmp_path, arms(-0.5))
    with pytest.raises(ConfigError) as refused:
        dispatch([str(folder) if word == "STUDY" else word for word in words])
    said = f"{refused.value}"
    assert said.startswith((f"{option}: ", f"{option} ")) and "\n" not in said
    assert (refused.value.key, refused.value.facts.get("suggestion")) == (option, suggestion)


def test_the_differences_of_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"host": "two", "data_sha256": "e" * 64, "git": {"commit": "b" * 40}, "packages": {"torch": "2.6.0"}}
    folder = make_seeded(
        tmp_path, [Arm("none", values(0, [1])), Arm("x", values(1, [1]), {"n_layers": 9}, manifest=other)]
    )
    one, two = sorted(
        (path for path in folder.iterdir() if path.is_dir()), key=lambda p: "9" in (p / "config.yaml").read_text()
    )
    text = printed(capsys, "--diff", one, two)
    for line in (
        "model.n_layers  2 -> 9",
        f"git.commit +{'a' * 40} -> {'b' * 40}",
        "host +one -> two",
        "packages.torch +2.13.0 -> 2.6.0",
        f"data_sha256 +{'d' * 64} -> {'e' * 64}",
        "final_loss +[0-9.]+ -> [0-9.]+",
    ):
        assert re.search(line, text), line
    keys = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert len(keys) == len(set(keys))
    found = json.loads(printed(capsys, "--diff", one, two, "--format", "json"))
    assert found["config"] == {"model.n_layers": [2, 9]}
    assert list(found["data"]) == ["data_sha256"]
    same = printed(capsys, "--diff", one, f"{one}/")
    assert same.count("the same") == 5
    refused_command(capsys, "compare", "--diff", folder, one, code="diff-not-a-run", folder=folder)


def test_each_difference_is_said_once_under_its_heading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"config": {"model": {"n_layers": 9}}, "id": "b", "error": "no", "earlier_starts": ["x"]}
    own |= {"installed": ["torch==2.6.0", "einops==1.0"], "code": {"gptlab": "c" * 64, "torch": "2.6.0"}}
    other = {**own, "packages": {"torch": "2.6.0"}, "git": {"commit": "b" * 40, "untracked": ["x.py"]}}
    base = {"config": {"model": {"n_layers": 2}}, "installed": ["torch==2.13.0", "einops==0.9"]}
    base |= {"code": {"gptlab": "d" * 64, "torch": "2.13.0"}}
    folder = make_seeded(
        tmp_path,
        [Arm("none", values(0, [1]), manifest=base), Arm("x", values(1, [1]), {"n_layers": 9}, manifest=other)],
    )
    one, two = sorted(
        (path for path in folder.iterdir() if path.is_dir()), key=lambda p: "9" in (p / "config.yaml").read_text()
    )
    found = json.loads(printed(capsys, "--diff", one, two, "--format", "json"))
    assert list(found["config"]) == ["model.n_layers"]
    code = {"code.gptlab", "git.commit", "git.dirty", "git.diff_sha256", "git.untracked", "packages.gptlab"}
    assert set(found["code"]) == code
    assert set(found["environment"]) == {"installed.einops", "packages.numpy", "packages.torch"}


@pytest.mark.parametrize("command", ["compare", "report"])
@pytest.mark.parametrize(
    ("name", "share", "words"),
    [
        ("result.json", 0.0, "relu: seed 7 damaged: result.json: not valid JSON"),
        ("metrics.jsonl", 0.5, "relu: seed 7 damaged: metrics.jsonl: not as the run wrote it"),
        ("metrics.jsonl", None, "relu: seed 7 damaged: metrics.jsonl is missing"),
        ("config.yaml", None, "relu: seed 7 damaged: config.yaml is missing"),
        ("result.json", None, "relu: seed 7 crashed: result.json is missing"),
    ],
)
def test_a_damaged_file_is_named_in_one_line_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, share: float | None, words: str
) -> None:
    folder = make_seeded(tmp_path, arms(-0.5, curve=[0, 10, 20]))
    run = json.loads((folder / "plan.json").read_text())["runs"][16]
    assert (run["label"], run["seed"]) == ("relu", 7)
    path = folder / run["folder"] / name
    content = path.read_bytes()
    path.unlink()
    if share is not None:
        path.write_bytes(content[: int(share * len(content))])
    assert main([command, str(folder)]) == 0
    captured = capsys.readouterr()
    said = " ".join((captured.out if command == "compare" else captured.err).split())
    assert said.count(words) == 1
    rest = captured.out if command == "compare" else (folder / "report.html").read_text(encoding="utf-8")
    assert re.search("9 of 10(:|,) 1 missing", rest)
    assert "better" in rest


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff"])
def test_without_its_plan_a_study_is_what_its_folders_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    folder = make_seeded(tmp_path, arms(-0.5))
    other = make_seeded(tmp_path, arms(-0.3, range(11, 16)), name="other")
    for run in other.iterdir():  # what an earlier plan left, under the same label
        if run.is_dir():
            text = (run / "config.yaml").read_text().replace("n_layers: 2", "n_layers: 3")
            result = json.loads((run / "result.json").read_text())
            (run / "config.yaml").write_text(text)
            result["artifacts"].pop("config.yaml")
            (run / "result.json").write_text(json.dumps(result))
            run.rename(folder / f"earlier-{run.name}")
    (folder / "plan.json").unlink()
    if content is not None:
        (folder / "plan.json").write_bytes(content)
    text = " ".join(printed(capsys, folder, "--format", "md").split())
    assert text.count("plan.json could not be used") == 1
    assert "10 of 10" in text
    assert re.search(r"relu \\?#\d", text)
    assert main(["report", str(folder)]) == 0
    assert "plan.json could not be used" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from gptlab.cli import main; main(['compare', '--help']); "
        "sys.exit(str({'pandas', 'matplotlib', 'torch', 'numpy', 'scipy', 'rich'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert "usage: gptlab compare" in done.stdout


def test_from_python(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, arms(-0.5, curve=[0, 10]))
    study = gptlab.load(folder)
    assert [len(frame) for frame in (study.runs, study.steps, study.layers, study.generations)] == [20, 40, 0, 0]
    comparison = gptlab.compare(folder, metric="final_loss", margin=0.01)
    frame = comparison.frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["verdict"].fillna("")) == ["", "better"]
    assert frame.loc[1, "difference"] == comparison.row("relu").cell("final_loss").difference
    assert "<table" in comparison._repr_html_()
    assert len(comparison.runs) == 20
    assert set(comparison.training_steps["metric"]) == {"validation_loss", "train_loss"}


@pytest.mark.slow
def test_the_notebook_works_as_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "notebook.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert {language for language, _ in blocks} == {"sh", "python"}
    monkeypatch.chdir(tmp_path)
    for line in (line for language, block in blocks if language == "sh" for line in block.splitlines()):
        words = line.split()
        assert words[0] == "gptlab"
        assert main(words[1:]) == 0
    names: dict[str, object] = {}
    for language, block in blocks:
        if language == "python":
            exec(compile(block, "notebook.md", "exec"), names)
    assert isinstance(names["table"], pd.DataFrame)


def test_a_folder_of_studies_names_them(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new")):
        (tmp_path / "outputs" / name).mkdir(parents=True)
        (tmp_path / "outputs" / name / "plan.json").write_text("{}")
        os.utime(tmp_path / "outputs" / name / "plan.json", (number, number))
    with pytest.raises(ConfigError) as caught:
        dispatch(["compare", str(tmp_path / "outputs")])
    studies = [str(tmp_path / "outputs" / name) for name in ("new", "old")]
    assert (caught.value.code, caught.value.facts["allowed"]) == ("compare-holds-studies", studies)
    assert caught.value.facts["command"] == f"gptlab compare {studies[0]}"
