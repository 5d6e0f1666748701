"""From overrides to a checked Config: nothing global changes, and every mistake is one short sentence."""

from __future__ import annotations

import os
from pathlib import Path

import hydra
import pytest
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.version import VersionBase

from gptlab.composition import Composer, compose, sources
from gptlab.composition.overrides import short_key, slug
from gptlab.config import ModelConfig, delta
from gptlab.errors import ConfigError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with no folders of configs announced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.ENVIRONMENT, raising=False)
    return tmp_path


def add_ablation(folder: Path, name: str, body: str, header: str = "# @package _global_\n") -> None:
    (folder / "ablation").mkdir(parents=True, exist_ok=True)
    (folder / "ablation" / f"{name}.yaml").write_text(header + body)


def refusal(*overrides: str) -> str:
    """The message for a config that cannot be; short, and without a traceback."""
    with pytest.raises(ConfigError) as caught:
        compose(overrides)
    message = str(caught.value)
    assert len(message.splitlines()) <= 3
    assert "Traceback" not in message and "HYDRA_FULL_ERROR" not in message
    return message


def test_default_is_the_book_s_124m(here: Path) -> None:
    config = compose()
    assert config.model == ModelConfig()
    assert (config.seed, config.label, config.experiment.name) == (123, "baseline", "runs")


def test_ablations_stack_on_a_model(here: Path) -> None:
    base, config = compose(["model=tiny"]), compose(["model=tiny", "ablation=[relu,post_ln]"])
    assert delta(base, config) == {
        "model.norm_placement": ("pre", "post"),
        "model.activation": ("gelu_tanh", "relu"),
    }
    assert config.label == "relu+post_ln"


@pytest.mark.parametrize(
    ("overrides", "label"),
    [
        ([], "baseline"),
        (["model=tiny", "data=random_tokens", "seed=3", "output_dir=x"], "baseline"),
        (["ablation=none"], "baseline"),
        (["ablation=relu"], "relu"),
        (["model=tiny", "ablation=[post_ln,relu]", "model.n_layers=3"], "post_ln+relu+n_layers=3"),
        (["model.options.norm.eps=0.1", "rng=global"], "norm.eps=0.1+rng=global"),
        (["model=tiny", "model={n_layers:1,emb_dim:16}"], "n_layers=1+emb_dim=16"),
        (["probes.gradients.context=8"], "gradients.context=8"),
        (["ablation=relu", "label=mine"], "mine"),
    ],
)
def test_labels(here: Path, overrides: list[str], label: str) -> None:
    assert compose(overrides).label == label


def test_short_keys_stay_unambiguous() -> None:
    assert short_key("model.activation") == "activation"
    assert short_key("data.prompt") == "data.prompt"  # the generation probe has one too
    assert short_key("probes.generation.prompt") == "generation.prompt"
    assert short_key("rng") == "rng"


def test_slugs_are_file_names() -> None:
    assert slug("relu+norm.eps=1e-05") == "relu+norm.eps=1e-05"
    assert slug("prompt='a/b ../c' 💥") == "prompt=-a-b-..-c"
    assert slug("../..") == "run"
    assert len(slug("x" * 500)) == 80


def test_options_of_a_component_need_no_plus(here: Path) -> None:
    for prefix in ("", "+", "++"):
        assert compose([f"{prefix}model.options.norm.eps=0.5"]).model.options == {"norm": {"eps": 0.5}}


def test_nothing_global_changes(here: Path) -> None:
    before = {kind: id(one) for kind, one in Singleton._instances.items()}
    environ, folder, base = dict(os.environ), Path.cwd(), VersionBase.instance().getbase()
    compose(["model=tiny"])
    with pytest.raises(ConfigError):
        compose(["model=tiny", "seed=-1"])
    assert not GlobalHydra.instance().is_initialized()
    assert (dict(os.environ), Path.cwd(), VersionBase.instance().getbase()) == (environ, folder, base)
    assert {kind: id(Singleton._instances[kind]) for kind in before} == before


def test_works_inside_another_hydra_application(here: Path) -> None:
    (here / "other").mkdir()
    (here / "other" / "app.yaml").write_text("port: 80\n")
    with hydra.initialize_config_dir(str(here / "other"), version_base="1.2"):
        assert compose(["model=tiny", "ablation=relu"]).model.activation == "relu"
        assert hydra.compose("app", ["port=81"]) == {"port": 81}


def test_search_path_of_another_application_is_left_alone(here: Path) -> None:
    (here / "conf").mkdir()
    Plugins.instance().register(sources.UserFolders)
    mine = create_config_search_path(str(sources.CONF_DIR))
    other = create_config_search_path(str(here))
    assert str(here / "conf") in [item.path for item in mine.get_path()]
    assert str(here / "conf") not in [item.path for item in other.get_path()]


def test_user_folders_add_options(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_ablation(here / "conf", "beside", "model: {n_layers: 1}\n")
    add_ablation(here / "one", "announced", "model: {n_layers: 2}\n")
    add_ablation(here / "two", "given", "model: {n_layers: 3}\n")
    monkeypatch.setenv(sources.ENVIRONMENT, os.pathsep.join(["one", ""]))
    layers = [
        compose([f"ablation={name}"], config_dirs=["two"]).model.n_layers for name in ("beside", "announced", "given")
    ]
    assert layers == [1, 2, 3]
    assert {"beside", "announced", "given", "relu"} <= set(Composer(["two"]).groups["ablation"])


def test_a_folder_that_was_named_must_exist(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"config dir: there is no folder 'nowhere'"):
        compose(config_dirs=["nowhere"])
    monkeypatch.setenv(sources.ENVIRONMENT, "gone")
    with pytest.raises(ConfigError, match=rf"{sources.ENVIRONMENT}: there is no folder 'gone'"):
        compose()


def test_a_file_that_is_passed_over_is_named(here: Path) -> None:
    add_ablation(here / "conf", "relu", "model: {activation: silu}\n")
    with pytest.warns(UserWarning, match=r"ablation/relu.yaml \(used: .*conf/ablation/relu.yaml\)"):
        assert compose(["ablation=relu"]).model.activation == "relu"


def test_a_copy_of_gptlab_s_own_files_is_no_cause_for_a_warning(here: Path) -> None:
    own = (sources.CONF_DIR / "ablation" / "relu.yaml").read_text()
    add_ablation(here / "conf", "relu", own, header="")
    compose(["ablation=relu"])  # a warning would be an error here


def test_keys_that_nothing_reads_are_refused(here: Path) -> None:
    assert "model.norm=rmsnorm" in refusal("model.norm=rmsnorm", "model.norm_placement=none")
    assert "model.norm=rmsnorm" in refusal("ablation=[no_norm,rmsnorm]")
    compose(["model.norm_placement=none"])  # the preset's own norm is not the user's doing


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_unknown_key_in_an_override(here: Path, prefix: str) -> None:
    message = refusal(f"{prefix}model.emb_dmi=32")
    assert message.startswith("model.emb_dmi=32: 'emb_dmi' does not exist. Did you mean 'emb_dim'?")


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["ablation=rleu"], ["ablation=rleu", "Did you mean 'relu'?", "post_ln"]),
        (["modle=tiny"], ["modle=tiny", "Did you mean 'model'?"]),
        (["model.n_layers=many"], ["model.n_layers=many", "could not be converted to Integer"]),
        (["model.options.norm.esp=1"], ["model.options.norm", "Did you mean 'eps'?"]),
        (["model={emb_dmi:3}"], ["emb_dmi", "Did you mean 'emb_dim'?"]),
        (["relu"], ["KEY=VALUE", "Did you mean ablation=relu?"]),
        (["ablation=relu,silu"], ["ablation=relu,silu", "loop", "[a,b]"]),
        (["ablation=[relu,relu]"], ["ablation=[relu,relu]", "relu is given twice"]),
        (["ablation=null"], ["ablation=null", "null"]),
        (["model=[tiny,dummy]"], ["model=[tiny,dummy]", "only ablations stack"]),
        (["seed=1", "seed=2"], ["seed=1", "seed=2", "twice"]),
        (["~model.norm"], ["~model.norm", "cannot be removed"]),
        (["hydra.run.dir=x"], ["hydra.run.dir=x", "output_dir"]),
        (["model.norm=[a"], ["model.norm=[a"]),
    ],
)
def test_bad_overrides(here: Path, overrides: list[str], parts: list[str]) -> None:
    message = refusal(*overrides)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("header", "body", "parts"),
    [
        ("# @package _global_\n", "model:\n\tn_layers: 3\n", ["bad.yaml, line 3", "tab"]),
        ("# @package _global_\n", "seed: 1\nseed: 2\n", ["bad.yaml, line 3", "duplicate key seed"]),
        ("# @package _global_\n", "model: [1\n", ["bad.yaml, line 3", "expected ',' or ']'"]),
        ("", "model: {n_layers: 3}\n", ["ablation/bad.yaml", "# @package _global_"]),
        ("# @package _global_\n", "model: {emb_dmi: 3}\n", ["ablation/bad", "Did you mean 'emb_dim'?"]),
        ("# @package _global_\n", "model: {n_layers: many}\n", ["ablation/bad", "model.n_layers", "'many'"]),
        ("# @package _global_\n", "model: {n_layers: '${model.nope}'}\n", ["model.n_layers", "model.nope"]),
    ],
)  # fmt: skip
def test_bad_files(here: Path, header: str, body: str, parts: list[str]) -> None:
    add_ablation(here / "conf", "bad", body, header)
    message = refusal("ablation=bad")
    assert all(part in message for part in parts), message


def test_a_file_that_is_no_text_is_named(here: Path) -> None:
    add_ablation(here / "conf", "bad", "")
    (here / "conf" / "ablation" / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    assert "ablation=bad" in refusal("ablation=bad")


def test_a_missing_mandatory_value_is_named(here: Path) -> None:
    (here / "conf" / "model").mkdir(parents=True)
    (here / "conf" / "model" / "open.yaml").write_text("n_layers: ???\n")
    assert compose(["model=open"]).model.n_layers == 12  # the schema's default stands
    add_ablation(here / "conf", "asks", "data: {source: string, text: '???'}\n")
    assert "data.text" in refusal("ablation=asks")


def test_hydra_s_own_error_on_request(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(HydraException):
        compose(["ablation=rleu"])


def test_every_shipped_option_composes(here: Path) -> None:
    groups = Composer().groups
    assert set(groups) == {"ablation", "data", "experiment", "model", "probes", "train"}
    for group in ("model", "train", "ablation", "probes", "experiment"):
        for option in groups[group]:
            compose([f"{group}={option}"])
