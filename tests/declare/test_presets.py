"""Every shipped YAML is a test case: it composes, builds, runs a step, and its comment tells the truth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

from gptlab.config import Config, flatten
from gptlab.declare import sources
from gptlab.declare.composer import Composer
from gptlab.identity import delta, identity
from gptlab.model import build, skeleton
from gptlab.probes.parameters import count

CONF = sources.CONF_DIR
GROUPS = ("model", "ablation", "data", "probes", "match", "tune", "experiment")
FILES = [path for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
MODELS, ABLATIONS = ([path.stem for path in FILES if path.parent.name == group] for group in ("model", "ablation"))
VARIANTS = [name for name in ABLATIONS if name != "none"]
# Ablations that take back what a preset declares, and the preset.
BASES = {"untied": ("model=toy_lesson",), "learned_positions": ("model=toy_lesson",)}
NEEDS = {"data/text": "data.path='TEXT'", "data/string": "data.text='Every effort moves you'"}
PACKAGE = "# @package _global_"
SMALL = 2_000_000
# A number with thousands separators, and what it counts: `1,234 parameters`, `1,234 tied`, `1,234 parameters untied`.
CLAIM = re.compile(r"\b(\d{1,3}(?:,\d{3})+)\b(?: parameters)?(?: (tied|untied|active))?")


def path_id(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@cache
def composer() -> Composer:
    return Composer()


@cache
def compose(*overrides: str) -> Config:
    return composer().job(overrides).config


@cache
def counts(*overrides: str) -> Mapping[str, float]:
    return count(compose(*overrides, "probes=counting"))


def comment(path: Path) -> str:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line != PACKAGE]
    start = next(i for i, line in enumerate([*lines, ""]) if not line.startswith("#"))
    return " ".join(line.removeprefix("#").strip() for line in lines[:start])


def step(config: Config) -> tuple[Tensor, nn.Module]:
    """The loss of one forward and backward pass of the built model, and the model with its gradients."""
    model = build(config)
    if config.model.architecture == "gpt":
        length = min(8, config.model.context_length)
        ids = torch.arange(2 * (length + 1)).view(2, length + 1) % config.model.vocab_size
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    else:
        inputs, targets = torch.tensor(config.data.inputs), torch.tensor(config.data.targets)
        loss = F.mse_loss(model(inputs), targets)
    loss.backward()
    return loss, model


def check_step(config: Config) -> None:
    loss, model = step(config)
    assert loss.isfinite()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert gradients
    for name, gradient in gradients.items():
        assert gradient is not None and gradient.isfinite().all(), f"{name} takes no part"
    assert any(gradient.abs().sum() > 0 for gradient in gradients.values())


# --- every file


def test_names_are_flat() -> None:
    assert {path.parent.name for path in FILES} == set(GROUPS)
    nested = [path for group in GROUPS for path in (CONF / group).rglob("*") if path.parent != CONF / group]
    assert not nested
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*\.yaml", path.name) for path in FILES)
    assert all(path in FILES for group in GROUPS for path in (CONF / group).iterdir())


@pytest.mark.parametrize("path", FILES, ids=path_id)
def test_a_file_starts_with_what_it_is_about(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    # Hydra takes the package from a first line only.
    assert (lines[0] == PACKAGE) is (path.parent.name in ("ablation", "experiment"))
    assert re.match(r"[A-Z].*[.?]( |$)", comment(path)), "a sentence, first of all"
    assert not any("\t" in line for line in lines)


@pytest.mark.usefixtures("bf16_here")
@pytest.mark.parametrize("path", [path for path in FILES if path_id(path) != "data/hf"], ids=path_id)
def test_a_file_composes(path: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Every effort moves you. " * 50)
    overrides = [f"{path.parent.name}={path.stem}"]
    needs = NEEDS.get(path_id(path))
    overrides += [needs.replace("TEXT", str(tmp_path / "text.txt"))] if needs else []
    if path.parent.name == "probes":
        overrides.append("model=tiny")
    if path_id(path) == "data/five_layer_input":
        overrides.append("model=deep_mlp")
    if path_id(path) == "data/string":
        overrides += ["probes.gradients.batch_size=1", "probes.gradients.context=2", "probes.activations=null"]
    assert len(identity(composer().job(overrides).config)) == 64


# --- models


@pytest.mark.parametrize("name", MODELS)
def test_a_model_builds_and_learns(name: str) -> None:
    config = compose(f"model={name}", "probes=counting")
    assert counts(f"model={name}")["parameters"] == sum(p.numel() for p in skeleton(config.model).parameters())
    if counts(f"model={name}")["parameters"] > SMALL:
        n_layers = 8 if config.model.layers else 2  # a pattern has to be filled
        config = compose(f"model={name}", f"model.n_layers={n_layers}", "probes=counting")
        sizes = {"vocab_size": 64, "context_length": 32, "emb_dim": 16, "n_heads": 4, "n_kv_heads": None}
        sizes |= {"head_dim": 40, "hidden_dim": None}  # of which any preset's fraction is whole pairs
        config = replace(config, model=replace(config.model, **sizes))
    check_step(config)


def test_a_model_declares_only_what_differs_from_the_default() -> None:
    base = compose("model=gpt2_124m", "probes=counting").model
    sizes = {"emb_dim", "n_heads", "n_layers"}  # the rows of a paper's table are kept whole
    for name in MODELS:
        body = yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text()) or {}
        repeated = {key for key, value in body.items() if key != "defaults" and getattr(base, key) == value} - sizes
        assert repeated == (set(list(flatten(base))[:7]) - sizes if name == "gpt2_124m" else set()), name


# --- ablations


def test_none_changes_nothing() -> None:
    assert delta(compose(), compose("ablation=none")) == {}


@pytest.mark.parametrize("name", VARIANTS)
def test_an_ablation_changes_the_model_and_nothing_else(name: str) -> None:
    assert composer().ablation_keys(name)
    assert all(key.startswith("model.") for key in composer().ablation_keys(name))
    changed = delta(compose(*BASES.get(name, ())), compose(*BASES.get(name, ()), f"ablation={name}"))
    assert changed and all(key.startswith("model.") for key in changed)
    keys = {"model.layers" if key.startswith("model.pattern") else key for key in composer().ablation_keys(name)}
    found = {"model.layers" if "model.layers" in keys and key.startswith("model.layers") else key for key in changed}
    assert keys == found, "every key of the file changes something"


def test_no_two_ablations_declare_the_same() -> None:
    seen: dict[str, str] = {}
    for name in sorted(set(ABLATIONS) - set(BASES)):
        other = seen.setdefault(repr(delta(compose(), compose(f"ablation={name}"))), name)
        assert other == name, f"{other} and {name} are the same"


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_runs_on_tiny(name: str) -> None:
    check_step(compose("model=tiny", f"ablation={name}"))


def test_an_experiment_names_ablations_that_exist() -> None:
    for path in (CONF / "experiment").glob("*.yaml"):
        body = yaml.safe_load(path.read_text()) or {}
        swept = body.get("hydra", {}).get("sweeper", {}).get("params", {}).get("ablation", "")
        names = re.findall(r"\w+", swept)
        assert set(names) <= set(ABLATIONS)
        assert len(names) == len(set(names)) or "[" in swept


# --- what the comments and docs/models.md say


def claims(path: Path) -> list[tuple[int, str]]:
    """(number, metric that it should equal) for each count in the comment of a file."""
    return [
        (int(number.replace(",", "")), f"parameters_{kind}" if kind else "parameters")
        for number, kind in CLAIM.findall(comment(path))
    ]


@pytest.mark.parametrize("path", [path for path in FILES if claims(path)], ids=path_id)
def test_counts_in_comments_are_those_of_the_built_thing(path: Path) -> None:
    found = counts(f"{path.parent.name}={path.stem}")
    assert {number: found[metric] for number, metric in claims(path)} == {number: number for number, _ in claims(path)}


def test_counts_in_comments_are_found() -> None:
    stating = {path_id(path) for path in FILES if claims(path)}
    assert stating >= {"model/gpt2_124m", "model/gpt2_xl", "model/tiny", "model/toy_lesson", "ablation/as_released"}
    assert claims(CONF / "model" / "gpt2_xl.yaml") == [
        (1_637_792_000, "parameters_untied"),
        (1_557_380_800, "parameters_tied"),
    ]


def test_docs_list_every_model_with_its_size() -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    table = {row[0].split("`")[1]: row[1:] for row in rows if "model=" not in row[0]}
    assert sorted(table) == MODELS
    for name, cells in table.items():
        model = compose(f"model={name}", "probes=counting").model
        if model.architecture == "gpt":
            sizes = [model.n_layers, model.emb_dim, model.n_heads, model.context_length]
            expected = [*map(str, sizes), "tied" if model.tie_weights else "untied"]
        else:
            assert model.layer_sizes is not None
            expected = [str(len(model.layer_sizes) - 1), str(model.layer_sizes[0]), "", "", ""]
        assert cells == [*expected, f"{counts(f'model={name}')['parameters']:,}"], name
    prose = text.split("**GPT-2.**")[1]
    assert f"{counts('ablation=tied')['parameters']:,}" in prose
    assert f"{counts('ablation=as_released')['parameters']:,}" in prose
