"""The Python API: what it gives, and that a notebook does not notice it."""

from __future__ import annotations

import logging
import os
import random
import re
import shlex
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytest
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from torch import nn

import gptlab
from gptlab.config import Config
from gptlab.errors import ConfigError
from gptlab.identity import identity
from tests.support.probes import put_probe
from tests.support.refusals import refused

TINY = ["model=tiny", "ablation=[relu,post_ln]"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_as_the_packages_docstring_says(here: Path) -> None:
    cfg = gptlab.compose(TINY)
    assert (cfg.model.emb_dim, cfg.model.activation, cfg.model.norm_placement) == (32, "relu", "post")
    model = gptlab.build(cfg)
    logits = model(torch.zeros(2, 5, dtype=torch.long))
    assert isinstance(model, nn.Module)
    assert not model.training
    assert logits.shape == (2, 5, 256)
    run = gptlab.run(cfg)
    assert run.result["state"] == "finished"
    assert run.result["id"] == identity(cfg)
    assert run.folder.resolve().is_relative_to(here / "outputs")
    assert run.metrics["parameters"] == sum(p.numel() for p in model.parameters())
    assert set(run.layers.columns) == {"step", "layer", "part", "metric", "value"}
    assert list(run.tensors["name"]) == [name for name, _ in model.named_parameters()]
    assert run.shapes["output_shape"].iloc[-1] == "(2, 4, 256)"
    assert run.generation["prompt"] == "Hello, I am"
    assert len(run.generation["token_ids"]) == 10


def test_twice_in_a_row_is_twice_the_same(here: Path) -> None:
    runs = [gptlab.run(gptlab.compose(TINY)) for _ in range(2)]
    assert runs[0].folder != runs[1].folder
    assert runs[0].metrics == runs[1].metrics
    assert runs[0].layers.equals(runs[1].layers)
    assert runs[0].generation == runs[1].generation


def test_a_folder_of_ones_own(here: Path) -> None:
    cfg = gptlab.compose(TINY)
    assert gptlab.run(cfg, "mine").folder == Path("mine")
    assert gptlab.run(cfg, here / "a" / "b").folder == here / "a" / "b"
    assert {path.name for path in here.iterdir()} == {"mine", "a"}
    cfg.output_dir = "elsewhere"
    assert gptlab.run(cfg).folder.parts[:2] == ("elsewhere", "python")


@pytest.mark.parametrize("label", ["../../up", "a/b", "/etc", "..", ""])
def test_a_label_is_no_path(here: Path, label: str) -> None:
    cfg = gptlab.compose(["model=tiny", "probes=counting"])
    cfg.label = label
    folder = gptlab.run(cfg).folder
    assert folder.resolve().parent.parent == here / "outputs" / "python"
    assert len(folder.parts) == 4


def test_a_changed_config_is_settled_and_checked_again(here: Path) -> None:
    cfg = gptlab.compose(["model=tiny"])
    assert cfg.probes.gradients is not None
    assert cfg.probes.generation is not None
    cfg.seed, cfg.probes.gradients.context, cfg.probes.generation.max_new_tokens = 7, None, 2
    run = gptlab.run(cfg)
    assert run.result["seed"] == 7
    assert "context: 64" in (run.folder / "config.yaml").read_text()
    cfg.model.n_heads = 7
    with refused("heads-divide", key="model.n_heads", value=7, emb_dim=32, suggestion=8):
        gptlab.run(cfg)
    cfg.model.n_heads, cfg.probes.generation.prompt = 4, ""
    with refused("prompt-empty", key="probes.generation.prompt", value="''"):
        gptlab.run(cfg)


def test_mistakes_are_errors_of_gptlabs_own() -> None:
    with refused("unknown-name", key="ablation=rleu", value="rleu", suggestion="relu", file="conf/ablation/rleu.yaml"):
        gptlab.compose(["ablation=rleu"])
    with refused("unknown-name", key="model.emb_dmi=32", value="emb_dmi", suggestion="emb_dim"):
        gptlab.compose(["model.emb_dmi=32"])
    assert issubclass(gptlab.ConfigError, ValueError)


def test_a_variant_that_fails_is_a_result_and_its_tables_say_why(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no luck")

    put_probe(monkeypatch, "gradients", fail)
    run = gptlab.run(gptlab.compose(TINY))
    assert (run.result["state"], run.result["error"]) == ("failed", "RuntimeError: no luck")
    assert run.metrics["parameters"] > 0
    with refused("artifact-not-there", path=run.folder / "layers.csv"):
        _ = run.layers
    with refused("artifact-not-there", path=run.folder / "generation.json"):
        _ = run.generation


@pytest.mark.parametrize(
    ("model", "shape"), [("dummy", (1, 3, 50257)), ("toy_lesson", (1, 3, 12)), ("tiny", (1, 3, 256))]
)
def test_ids_in_logits_out(model: str, shape: tuple[int, ...]) -> None:
    built = gptlab.build(gptlab.compose([f"model={model}"]))
    assert built(torch.zeros(1, 3, dtype=torch.long)).shape == shape
    assert torch.is_grad_enabled()
    assert all(parameter.requires_grad for parameter in built.parameters())


def test_a_built_model_trains_as_any_other() -> None:
    model = gptlab.build(gptlab.compose(TINY)).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.arange(48).view(2, 24) % 7

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    with torch.random.fork_rng():  # dropout draws on torch's stream, as in any model
        first = loss()
        for _ in range(20):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        assert loss() < first - 0.5
    assert "tok_emb.weight" in model.state_dict()


def global_state() -> dict[str, Any]:
    """What a notebook would notice."""
    return {
        "torch rng": torch.get_rng_state().tolist(),
        "python rng": random.getstate(),
        "numpy rng": str(np.random.get_state()),  # noqa: NPY002 - the legacy state is the global one
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "argv": list(sys.argv),
        "path": list(sys.path),
        "hydra": GlobalHydra.instance().hydra,
        "hydra version": hydra.version.VersionBase.instance().getbase(),
        "handlers": {name: list(logging.getLogger(name).handlers) for name in (None, "hydra", "gptlab")},
        "levels": {name: logging.getLogger(name).level for name in (None, "hydra", "gptlab")},
        "warnings": list(warnings.filters),
        "recursion": sys.getrecursionlimit(),
        "hooks": (sys.excepthook, threading.excepthook, sys.stdout, sys.stderr),
    }


def test_no_global_state_changes(here: Path) -> None:
    gptlab.compose(["model=tiny"])  # imports are the one thing that stays
    before = global_state()
    cfg = gptlab.compose(TINY)
    gptlab.build(cfg)
    gptlab.run(cfg)
    with pytest.raises(ConfigError):
        gptlab.compose(["ablation=nothing"])
    after = global_state()
    assert {key for key in before if before[key] != after[key]} == set()


def test_the_first_call_of_a_process_changes_none_either(here: Path) -> None:
    script = """
import logging, os, sys, warnings
import torch
state = lambda: (torch.get_rng_state().tolist(), os.getcwd(), dict(os.environ), logging.root.handlers[:],
                 logging.root.level, list(sys.argv), torch.get_num_threads())
before = state()
import gptlab
gptlab.run(gptlab.compose(["model=tiny", "probes.generation.max_new_tokens=1"]))
assert state() == before, (state(), before)
from hydra.core.global_hydra import GlobalHydra
assert not GlobalHydra.instance().is_initialized()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def hydra_application(tmp_path: Path) -> Iterator[Config]:
    """A Hydra application of somebody else, initialised, with a schema in the store."""
    state = Singleton.get_state()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.yaml").write_text("lr: 0.5\n")
    with hydra.initialize_config_dir(str(tmp_path / "theirs"), version_base="1.2"):
        yield hydra.compose("config")
    Singleton.set_state(state)


def test_inside_an_initialised_hydra_application(here: Path, hydra_application: Any) -> None:
    before = GlobalHydra.instance().hydra
    assert gptlab.compose(TINY) == gptlab.compose(TINY)
    assert gptlab.run(gptlab.compose(TINY)).result["state"] == "finished"
    assert GlobalHydra.instance().hydra is before
    assert str(hydra.version.VersionBase.instance().getbase()) == "1.2"
    assert hydra.compose("config", overrides=["lr=2"]).lr == 2
    assert "gptlab_schema.yaml" in ConfigStore.instance().repo  # the one thing that is added, under gptlab's own name


def test_in_threads(here: Path) -> None:
    found: list[Any] = []
    expected = gptlab.run(gptlab.compose(TINY), "expected").metrics

    def work(number: int) -> None:
        try:
            found.append(gptlab.run(gptlab.compose(TINY), f"run{number}").metrics)
        except BaseException as error:
            found.append(error)

    one = threading.Thread(target=work, args=(0,))  # a notebook's or a server's: not the main one
    one.start()
    one.join()
    assert found == [expected]


def test_the_names_that_the_package_offers() -> None:
    lazy = {"Run", "Sweep", "build", "compare", "compose", "generate", "load", "run", "sweep", "trained"}
    lazy |= {"export", "inspect", "load_weights"}
    assert set(gptlab.__all__) <= {*dir(gptlab), *lazy}
    assert all(getattr(gptlab, name) for name in gptlab.__all__)
    with pytest.raises(AttributeError, match="no attribute 'comopse'"):
        _ = gptlab.comopse


def code_blocks(document: str, language: str) -> str:
    text = (Path(__file__).parents[1] / document).read_text()
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("document", ["docs/python-api.md", "docs/randomness.md", "README.md"])
@pytest.mark.usefixtures("here", "scratch_registry", "capsys")
def test_the_documents_python_works_as_pasted(document: str) -> None:
    code = code_blocks(document, "python")
    assert code
    exec(compile(code, document, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("document", ["docs/probes.md", "docs/randomness.md"])
def test_the_documents_commands_plan(document: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gptlab.cli import main

    lines = code_blocks(document, "sh").splitlines()
    commands = [words for line in lines if (words := shlex.split(line, comments=True))]
    assert commands
    for program, *arguments in commands:
        assert program == "gptlab"
        assert main(["plan", *(word for word in arguments if word != "plan")]) == 0, capsys.readouterr().err


def test_a_sweep_is_the_study_of_the_command_line(here: Path) -> None:
    words = ["model=tiny", "probes=counting", "experiment.name=swept"]
    study = gptlab.sweep(words, ablation=["relu", ["relu", "post_ln"]], seed=range(1, 3))
    assert study.folder.resolve() == (here / "outputs" / "swept").resolve()
    assert study.states == ("finished",) * 6
    frame = study.frame().set_index(["label", "seed"])
    assert frame.loc[("relu+post_ln", 2), "model.norm_placement"] == "post"
    assert frame.loc[("baseline", 1), "model.activation"] == "gelu_tanh"
    assert "model.emb_dim" not in frame.columns and frame["parameters"].notna().all()
    assert [row.label for row in study.compare().rows] == ["baseline", "relu", "relu+post_ln"]
    assert study.report().name == "report.html"
    before = {path: path.stat().st_mtime_ns for path in study.folder.glob("*/result.json")}
    again = gptlab.sweep(words, ablation=["relu", ["relu", "post_ln"]], seed=range(1, 3))
    assert again.states == study.states  # and nothing was run anew
    assert {path: path.stat().st_mtime_ns for path in study.folder.glob("*/result.json")} == before


def test_a_sweep_that_cannot_run_starts_nothing(here: Path) -> None:
    with pytest.raises(gptlab.ConfigError) as caught:
        gptlab.sweep(["model=tiny"], ablation=["relu", "reluu"])
    assert caught.value.facts["suggestion"] == "relu"
    assert not (here / "outputs").exists()


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("relu,post_ln", "relu,post_ln"), (["relu", ["relu", "post_ln"]], "relu,[relu,post_ln]"), (range(2), "0,1"),
        (None, "null"), (True, "true"), (1e-3, "0.001"), ({"period": 4}, "{period:4}"),
        (["Hello, I am", 'a "b"'], '"Hello, I am","a \\"b\\""'),
    ],
)  # fmt: skip
def test_values_of_a_sweep_are_written_as_on_the_line(value: object, word: str) -> None:
    from gptlab.sweeping import _written

    assert _written(value) == word


def test_texts_of_a_sweep_are_whole(here: Path) -> None:
    words = ["model=tiny", "data=string", f"data.text={'abc ' * 50}", "data.tokenizer=byte"]
    study = gptlab.sweep(words, **{"data.prompt": ["a, b", "b a"]})
    assert sorted({run.config.data.prompt for run in study.plan.runs}) == ["a, b", "b a"]
