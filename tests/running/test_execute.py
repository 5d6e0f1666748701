"""One run: what it records, in which order, and what it does when something goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gptlab import compose, probes
from gptlab.config import Config, DataConfig, GenerationProbe, ModelConfig, ProbesConfig
from gptlab.declare.one_spelling import settle
from gptlab.declare.to_config import from_omegaconf
from gptlab.errors import GptlabError
from gptlab.identity import identity
from gptlab.running.execute import execute
from gptlab.store import files
from tests.support.faults import hooked
from tests.support.probes import put_probe

SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=2)
ALL = {"config.yaml", "manifest.json", "layers.csv", "tensors.csv", "shapes.csv", "generation.json", "result.json"}


def config_of(prompt: str = "1 2 3", seed: int = 123, **changes: object) -> Config:
    found = ProbesConfig(generation=GenerationProbe(prompt=prompt, max_new_tokens=3))
    return settle(
        Config(
            model=replace(SMALL, **changes),
            data=DataConfig(source="random_tokens", prompt=prompt),
            probes=found,
            seed=seed,
            label="a label",
        )
    )


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"code.patch"}  # there where the checkout has changes


def break_probe(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    put_probe(monkeypatch, name, fail)


def test_a_finished_run(tmp_path: Path) -> None:
    config = config_of()
    result = execute(config, tmp_path / "deep" / "run", overrides=["model=tiny", "seed=123"])
    folder = tmp_path / "deep" / "run"
    assert names(folder) == ALL
    assert files.read_json(folder / "result.json") == result
    assert (result["schema"], result["id"], result["label"], result["seed"]) == (1, identity(config), "a label", 123)
    assert (result["state"], result["error"], result["traceback"]) == ("finished", None, None)
    assert result["seconds"] > 0
    assert {"parameters", "loss", "grad_norm", "mib", "parameters/attention"} <= set(result["metrics"])
    manifest = files.read_json(folder / "manifest.json")
    assert manifest["overrides"] == ["model=tiny", "seed=123"]
    assert (manifest["seed"], manifest["rng"], manifest["state"]) == (123, "paired", "finished")
    assert manifest["start"] < manifest["stop"]
    assert len(manifest["data_sha256"]) == 64
    assert manifest["packages"]["torch"]


def test_the_size_of_a_history_is_recorded(tmp_path: Path) -> None:
    """`gptlab ls` tells by it whether the file was cut."""
    config = compose(["model=toy_lesson", "data=sentences", "probes=counting", "train.budget=2"])
    synced: list[str] = []
    with hooked(lambda operation, path: synced.append(path.name) if operation == "fsync" else None):
        result = execute(config, tmp_path / "run")
    assert result["history_bytes"] == (tmp_path / "run" / "metrics.jsonl").stat().st_size > 0
    assert synced.index("metrics.jsonl") < synced.index("result.json")  # or a power cut leaves less than it says


def test_artifacts_carry_their_hashes(tmp_path: Path) -> None:
    result = execute(config_of(), tmp_path)
    assert set(result["artifacts"]) - {"code.patch"} == ALL - {"result.json"}
    for name, digest in result["artifacts"].items():
        assert sha256((tmp_path / name).read_bytes()).hexdigest() == digest


def test_it_says_early_what_it_is_and_the_result_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    write = files.write_bytes
    monkeypatch.setattr(
        files, "write_bytes", lambda path, content, **how: (order.append(path.name), write(path, content, **how))
    )
    execute(config_of(), tmp_path)
    assert order[:2] == ["config.yaml", "manifest.json"]
    assert order[-2:] == ["manifest.json", "result.json"]
    assert order.count("result.json") == 1


def test_an_error_is_recorded_and_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_probe(monkeypatch, "gradients", ValueError("the middle broke"))
    result = execute(config_of(), tmp_path)
    assert files.read_json(tmp_path / "result.json") == result
    assert (result["state"], result["error"]) == ("failed", "ValueError: the middle broke")
    assert "in fail" in result["traceback"]
    assert "parameters" in result["metrics"]  # what was measured before stays
    assert "loss" not in result["metrics"]
    assert names(tmp_path) == ALL - {"layers.csv", "tensors.csv", "generation.json"}


def test_a_users_error_needs_no_class_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_probe(monkeypatch, "shapes", GptlabError("said in words", code="test"))
    assert execute(config_of(), tmp_path)["error"] == "said in words"
    assert execute(config_of(n_heads=7), tmp_path)["error"].startswith("model.n_heads=7")


def test_an_interrupt_is_recorded_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_probe(monkeypatch, "gradients", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        execute(config_of(), tmp_path)
    result = files.read_json(tmp_path / "result.json")
    assert result["state"] == "interrupted"
    assert set(result["artifacts"]) - {"code.patch"} == names(tmp_path) - {"result.json"}
    assert files.read_json(tmp_path / "manifest.json")["state"] == "interrupted"


def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        execute(config_of(), tmp_path / "file" / "run")


def test_running_again_clears_what_the_old_run_wrote_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(config_of(), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "layers.csv").write_text("mine")
    config = config_of()
    config.probes.gradients = config.probes.activations = config.probes.generation = None
    for _ in range(2):  # the second time would take what the first one took for its own
        result = execute(config, tmp_path)
        assert names(tmp_path) == {"config.yaml", "manifest.json", "shapes.csv", "result.json", "notes.txt", "mine"}
        assert set(result["artifacts"]) - {"code.patch"} == {"config.yaml", "manifest.json", "shapes.csv"}
    assert (tmp_path / "mine" / "layers.csv").exists()


def test_running_again_clears_what_a_killed_run_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """As by SIGKILL: nothing is recorded."""

    with monkeypatch.context() as patch:
        break_probe(patch, "generation", Killed())
        with pytest.raises(Killed):
            execute(config_of(), tmp_path)
    assert names(tmp_path) == ALL - {"generation.json", "result.json"}
    config = config_of()
    config.probes.gradients = config.probes.activations = None
    execute(config, tmp_path)
    assert names(tmp_path) == ALL - {"layers.csv", "tensors.csv"}


def test_while_it_runs_again_the_old_result_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(config_of(), tmp_path)
    there: list[bool] = []

    def look(_: object) -> probes.Measurement:
        there.append((tmp_path / "result.json").exists())
        return probes.Measurement()

    put_probe(monkeypatch, "parameters", look)
    execute(config_of(), tmp_path)
    assert there == [False]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"files": 3}', '{"files": ["../keep.txt", null]}'])
def test_a_damaged_manifest_does_no_harm(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "keep.txt").write_text("")
    (folder / "manifest.json").write_text(content)
    assert execute(config_of(), folder)["state"] == "finished"
    assert (tmp_path / "keep.txt").exists()


@pytest.mark.parametrize("off", ["parameters", "shapes", "gradients", "generation"])
def test_a_probe_that_is_off_leaves_out_what_is_its(tmp_path: Path, off: str) -> None:
    config = config_of()
    setattr(config.probes, off, None)
    result = execute(config, tmp_path)
    missing = {
        "parameters": set(),
        "shapes": {"shapes.csv"},
        "gradients": {"tensors.csv"},
        "generation": {"generation.json"},
    }
    assert names(tmp_path) == ALL - missing[off]
    assert ("parameters" in result["metrics"]) is (off != "parameters")
    assert ("loss" in result["metrics"]) is (off != "gradients")
    assert result["notes"] == []


def test_counting_alone_reads_no_data_and_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptlab.probes.subject.build", lambda _: pytest.fail("built"))
    config = config_of()
    config.probes.gradients = config.probes.activations = config.probes.generation = None
    assert execute(config, tmp_path)["state"] == "finished"
    assert files.read_json(tmp_path / "manifest.json")["data_sha256"] is None


def test_what_does_not_apply_is_noted(tmp_path: Path) -> None:
    data = DataConfig(source="vectors", inputs=[[1.0, 0.0, -1.0]], targets=[[0.0]])
    model = ModelConfig(architecture="deep_mlp", layer_sizes=[3, 3, 1])
    result = execute(settle(Config(model=model, data=data)), tmp_path)
    assert result["state"] == "finished"
    assert result["notes"] == ["generation: does not apply to architecture=deep_mlp"]
    assert names(tmp_path) == ALL - {"generation.json"}


def test_warnings_reach_the_result(tmp_path: Path) -> None:
    options = {"init": {"tied_std": 1.0}}
    result = execute(config_of(emb_dim=96, tie_weights=True, options=options), tmp_path)
    assert any("ln(vocab_size)" in warning for warning in result["warnings"])


def test_too_large_for_this_machine_is_said_and_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptlab.probes.subject.build", lambda _: pytest.fail("built"))
    sizes = {"emb_dim": 12288, "n_heads": 96, "n_layers": 96, "vocab_size": 50257}
    config = config_of(**sizes)
    result = execute(config, tmp_path)
    assert result["state"] == "failed"
    assert "weights and gradients need 1," in result["error"]
    assert "probes=counting" in result["error"]
    assert result["metrics"]["parameters"] > 1.7e11
    config.probes.gradients = None
    assert execute(config, tmp_path)["error"].startswith("weights need 6")


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "${model.emb_dim}",
        "a ${b c} d",
        "${",
        "\\${x}",
        "\\\\${x} \\",
        "$ { } ${${a}}",
        "null",
        "3e5",
        "a: b\n- c",
        "Größe 語",
        " ",
    ],
)
def test_the_stored_config_is_the_config(tmp_path: Path, text: str) -> None:
    config = config_of(options={"init": {"embedding_std": 3e-05}})
    assert config.probes.generation is not None
    config.probes.generation = None
    config.data = DataConfig(source="string", tokenizer="byte", text=text * 300, prompt=text)
    config.model.vocab_size = 256
    config = settle(config)
    execute(config, tmp_path)
    again = from_omegaconf(OmegaConf.load(tmp_path / "config.yaml"))
    assert again == config
    assert identity(again) == identity(config)


def test_no_secret_of_the_environment_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "sesame-2b61c0")
    monkeypatch.setenv("sesame-2b61c0_NAME", "1")
    execute(config_of(), tmp_path)
    assert not [path.name for path in tmp_path.iterdir() if b"sesame-2b61c0" in path.read_bytes()]


def without_times(folder: Path) -> dict[str, Any]:
    """All that must not change between two runs of one config."""
    result = files.read_json(folder / "result.json")
    kept = {key: result[key] for key in ("id", "state", "metrics", "notes", "warnings")}
    return kept | {name: (folder / name).read_bytes() for name in ALL - {"manifest.json", "result.json"}}


def test_the_same_config_gives_the_same_bits(tmp_path: Path) -> None:
    for name in ("a", "b"):
        execute(config_of(), tmp_path / name)
    execute(config_of(seed=124), tmp_path / "c")
    assert without_times(tmp_path / "a") == without_times(tmp_path / "b")
    assert (tmp_path / "a" / "tensors.csv").read_bytes() != (tmp_path / "c" / "tensors.csv").read_bytes()


@pytest.mark.slow
def test_the_same_config_gives_the_same_bits_in_another_process(tmp_path: Path) -> None:
    execute(config_of(), tmp_path / "a")
    script = (
        "import sys; from pathlib import Path; from omegaconf import OmegaConf; from gptlab.declare.to_config import "
        "from_omegaconf; from gptlab.running.execute import execute; "
        "config = from_omegaconf(OmegaConf.load(sys.argv[1])); execute(config, Path(sys.argv[2]))"
    )
    arguments = [str(tmp_path / "a" / "config.yaml"), str(tmp_path / "b")]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run(
        [sys.executable, "-c", script, *arguments], check=True, env=environment, cwd=Path(__file__).parents[2]
    )
    assert without_times(tmp_path / "a") == without_times(tmp_path / "b")


def test_numbers_that_are_none_are_words_in_json_and_in_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = probes.Measurement(metrics={"loss": float("nan")}, tables={"layers": [{"value": float("inf")}]})
    put_probe(monkeypatch, "gradients", lambda _: found)
    execute(config_of(), tmp_path)
    text = (tmp_path / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["metrics"]["loss"] == "nan"
    assert (tmp_path / "layers.csv").read_text().splitlines()[:2] == ["value", "inf"]
