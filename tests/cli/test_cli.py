"""The command line: exit codes, one short message for each mistake, and the way out of every run."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlab.cli import COMMANDS, main
from gptlab.declare import sources
from gptlab.running import queue
from gptlab.store import atomic
from tests.support.refusals import refused_command

ROOT = Path(__file__).resolve().parents[2]
FAST = ["model=tiny", "probes=counting"]
Refused = Callable[..., None]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, no folders of configs announced, and a module path that is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.ENVIRONMENT, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must be refused: as `refused_command`, with nothing on disk."""

    def run(*arguments: str, code: str, **facts: object) -> None:
        error = refused_command(capsys, *arguments, code=code, **facts)
        assert "HYDRA_FULL_ERROR" not in f"{error}" and not Path("outputs").exists()

    return run


def python_m(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gptlab", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), **environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def plans(folder: Path = Path("outputs")) -> list[dict[str, object]]:
    return [json.loads(file.read_text()) for file in sorted(folder.rglob("plan.json"))]


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (
            ["model.emb_dmi=32"],
            "unknown-name",
            {"key": "model.emb_dmi=32", "value": "emb_dmi", "suggestion": "emb_dim"},
        ),
        (
            ["+model.emb_dmi=32"],
            "unknown-name",
            {"key": "model.emb_dmi=32", "value": "emb_dmi", "suggestion": "emb_dim"},
        ),
        (["ablation=rleu"], "unknown-name", {"key": "ablation=rleu", "value": "rleu", "suggestion": "relu"}),
        (["model.n_heads=7"], "heads-divide", {"key": "model.n_heads", "value": 7, "emb_dim": 768, "suggestion": 6}),
        (["model.activation=gleu"], "unknown-name", {"key": "model.activation", "value": "gleu", "suggestion": "gelu"}),
        (["seed=-1"], "out-of-range", {"key": "seed", "value": -1, "low": 0}),
        (["model.context_length=0"], "out-of-range", {"key": "model.context_length", "value": 0, "low": 1}),
        (["plugins=[gptlab_no_such_plugin]"], "no-such-module", {"key": "plugins", "value": "gptlab_no_such_plugin"}),
        (
            ["ablation=glob(pots*)"],
            "glob-matches-nothing",
            {"override": "ablation=glob(pots*)", "suggestion": "post_ln"},
        ),
        (["hydra/launcher=joblib"], "hydra-setting", {"override": "hydra/launcher=joblib"}),
        (["--config-dir", "nowhere", "model=tiny"], "config-dir-missing", {"key": "config dir", "value": "nowhere"}),
        (["--config-dir"], "option-value", {"key": "--config-dir"}),
        (["--confg-dir", "x"], "unknown-name", {"key": "option", "value": "--confg-dir", "suggestion": "--config-dir"}),
        (["--cfg", "jbo"], "unknown-name", {"key": "--cfg", "value": "jbo", "suggestion": "job"}),
        (
            ["--cfg", "job", "ablation=rleu"],
            "unknown-name",
            {"key": "ablation=rleu", "value": "rleu", "suggestion": "relu"},
        ),
        (
            ["--cfg", "job", "model.emb_dmi=32"],
            "unknown-name",
            {"key": "model.emb_dmi=32", "value": "emb_dmi", "suggestion": "emb_dim"},
        ),
        (["pln"], "unknown-command-near", {"value": "pln", "suggestion": "plan"}),
        (["chapter4"], "no-equals-sign", {"suggestion": "experiment=chapter4"}),
        (["plan", "ablation=rleu"], "unknown-name", {"key": "ablation=rleu", "value": "rleu", "suggestion": "relu"}),
        (["plan", "--format", "jsn"], "unknown-name", {"key": "--format", "value": "jsn", "suggestion": "json"}),
        (["components", "nrom"], "unknown-name", {"key": "slot", "value": "nrom", "suggestion": "norm"}),
        (["components", "model=tiny"], "components-takes-plugins", {"value": "model=tiny"}),
        (["ls", "nowhere"], "no-such-folder", {"value": "nowhere"}),
        (["explain-id", "model=tiny 'x"], "explain-id-quote", {"value": "model=tiny 'x"}),
        (
            ["model=tiny", "experiment.baseline=relu"],
            "baseline-without-ablation",
            {"key": "experiment.baseline", "value": "relu"},
        ),
        (["model={layers:{0:{norm:identity}}}"], "free-key-by-full-name", {"key": "model.layers.0"}),
        (["ls", "a", "b"], "one-folder-at-a-time", {"value": ["a", "b"]}),
    ],
)
def test_mistakes(refused: Refused, arguments: list[str], code: str, facts: dict[str, object]) -> None:
    refused(*arguments, code=code, **facts)


def test_a_tab_in_a_file_of_the_user_s(here: Path, refused: Refused) -> None:
    (here / "conf" / "ablation").mkdir(parents=True)
    (here / "conf" / "ablation" / "tab.yaml").write_text("# @package _global_\nmodel:\n\tn_layers: 3\n")
    refused("ablation=tab", code="yaml", file="conf/ablation/tab.yaml", line=3, cause="tab")


def test_a_plugin_that_raises(here: Path, refused: Refused) -> None:
    (here / "plugin_that_raises.py").write_text("raise RuntimeError('no luck')\n")
    refused("plugins=[plugin_that_raises]", code="plugin-raised", module="plugin_that_raises", raised="RuntimeError")


def test_outputs_that_cannot_be_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "outputs").write_text("a file stands where the folder should be")
    refused_command(capsys, *FAST, code="output-dir-not-writable", key="output_dir", value=Path("outputs"))


def test_a_file_system_that_refuses_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the command: here a run that cannot be removed."""
    assert main(FAST) == 0
    capsys.readouterr()

    def refuse(operation: str, path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(atomic, "hook", refuse)
    assert main(["gc", "--state", "finished", "--yes"]) == 2
    err = capsys.readouterr().err
    assert err == f"gptlab: {Path('outputs', 'runs', '.claims')}: Read-only file system.\n"


def test_a_folder_that_is_gone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    try:
        refused_command(capsys, "ls", code="working-folder-gone")
    finally:
        os.chdir(here)


def test_own_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(Exception, match="rleu"):
        main(["ablation=rleu"])


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: gptlab {command}" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.split("Groups")[0]
    assert [command for command in COMMANDS if f"gptlab {command} " not in listed] == []


def test_help_is_useful_and_needs_no_torch(here: Path) -> None:
    script = (
        "import sys; from gptlab.cli import main; code = main(['--help']); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for part in (
        "usage: gptlab",
        "gptlab plan",
        "gptlab ls",
        "gptlab components",
        "post_ln",
        "gpt2_124m",
        "Exit codes",
    ):
        assert part in done.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gptlab ")


def test_the_composed_config_can_be_printed(here: Path) -> None:
    done = python_m("--cfg", "job", "model=tiny", "model.options.norm.eps=0.5", folder=here)
    assert done.returncode == 0 and done.stderr == ""
    assert "eps: 0.5" in done.stdout and "hydra:" not in done.stdout


def test_plan_names_each_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ablation=relu,tied", "model.drop_rate=0.2"]) == 0
    out, err = capsys.readouterr()
    assert "163,009,536" in out and "-38,597,376" in out and "model.activation: gelu_tanh -> relu" in out
    assert "added" in err and not Path("outputs").exists()


@pytest.mark.parametrize("parts", [[], ["--parts"]])
def test_the_plan_s_tables_follow_columns_and_end_where_their_words_end(
    parts: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["plan", "model=tiny", "ablation=post_ln,partial_rope", *parts]) == 0
        return capsys.readouterr().out.splitlines()

    narrow, wide = lines(120), lines(300)
    assert [line for line in (*narrow, *wide) if line != line.rstrip()] == []
    rows = [line for line in narrow if line.startswith(" ")]
    assert max(map(len, rows)) <= 120 < max(map(len, wide))
    assert any("43,712" in line for line in rows), "no number is cut"


def test_plan_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "model=gpt3_175b", "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["cost"]["parameters"] == 174_604_259_328
    assert run["cost"]["peak_mib"] > 2 * run["cost"]["mib"] > 0


def test_plan_without_the_gradient_probe_has_no_peak(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *FAST, "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["cost"]["peak_mib"] is None


def test_components(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plugin_for_the_listing.py").write_text(
        "from gptlab import register\n\n@register('activation', 'test_listing')\n"
        "def make(slope: float = 0.25):\n    'A bent line.'\n"
    )
    assert main(["components", "activation", "plugins=[plugin_for_the_listing]"]) == 0
    out = capsys.readouterr().out
    assert "gelu_tanh" in out and "rmsnorm" not in out
    assert "A bent line.  [slope=0.25]" in out
    assert main(["components"]) == 0
    assert "rmsnorm" in capsys.readouterr().out


def test_run_writes_the_plan_and_shows_the_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAST, "ablation=relu", "-m"]) == 0
    out, err = capsys.readouterr()
    assert "relu" in out and "running" not in err  # progress is for terminals
    (plan,) = plans()
    assert plan["command"] == ["gptlab", *FAST, "ablation=relu", "-m"]
    assert len(list(Path("outputs").rglob("result.json"))) == 2
    assert main(["ls"]) == 0
    assert "2 finished" in capsys.readouterr().out


def test_a_failing_variant_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gptlab.running import execute

    original = execute._measure

    def fails_for_relu(config, *rest):  # type: ignore[no-untyped-def]
        if config.model.activation == "relu":
            raise ValueError("no such luck")
        return original(config, *rest)

    monkeypatch.setattr(execute, "_measure", fails_for_relu)
    assert main([*FAST, "ablation=relu,silu"]) == 1
    out = capsys.readouterr().out
    assert "ValueError: no such luck" in out
    states = [json.loads(file.read_text())["state"] for file in Path("outputs").rglob("result.json")]
    assert sorted(states) == ["failed", "finished", "finished"]


def test_a_folder_that_is_taken_away_costs_its_run_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocked(plan, command=()):  # type: ignore[no-untyped-def]
        study, plan = original(plan, command)
        (study / plan.runs[0].folder).write_text("a file stands here")
        return study, plan

    original = queue.open_study
    monkeypatch.setattr("gptlab.running.stages.open_study", blocked)
    assert main([*FAST, "ablation=relu"]) == 1
    assert len(list(Path("outputs").rglob("result.json"))) == 1


def test_interrupt_in_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from gptlab.running import execute

    original = execute._measure

    def interrupted_at_relu(config, *rest):  # type: ignore[no-untyped-def]
        if config.model.activation == "relu":
            raise KeyboardInterrupt
        return original(config, *rest)

    monkeypatch.setattr(execute, "_measure", interrupted_at_relu)
    assert main([*FAST, "ablation=relu,silu"]) == 130
    out, err = capsys.readouterr()
    assert "1 of 3 runs finished" in err
    assert "baseline" in out and "interrupted" in out and "planned" in out


def test_works_from_any_folder(here: Path) -> None:
    done = python_m(*FAST, folder=here)
    assert done.returncode == 0 and done.stderr.startswith("gptlab: [1/1] baseline")  # a log has a line per run
    assert len(plans(here / "outputs")) == 1


def test_a_closed_pipe_is_no_error(here: Path) -> None:
    command = f"{sys.executable} -m gptlab components | head -n 1"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], cwd=here, env=environ, capture_output=True, text=True, check=False)
    assert done.stderr == "" and len(done.stdout.splitlines()) == 1


@pytest.mark.slow
def test_ctrl_c_in_the_middle(here: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gptlab", "model=tiny", "seed=range(0,80)"],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(here.rglob("result.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 80 runs finished" in err and "Traceback" not in err
    assert "of 80 runs" in out and "Traceback" not in out
    assert 1 <= len(list(here.rglob("result.json"))) < 80
