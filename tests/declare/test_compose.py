"""From overrides to a checked Config: nothing global changes, and every mistake is one short sentence."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.version import VersionBase

import gptlab
from gptlab.cli import dispatch
from gptlab.config import ModelConfig, stored
from gptlab.declare import sources
from gptlab.declare.composer import Composer, compose
from gptlab.declare.overrides import short_key, slug
from gptlab.errors import ConfigError, GptlabError
from gptlab.identity import delta, identity
from gptlab.model import build
from gptlab.model.per_layer import BLOCK_KEYS
from gptlab.planning.plan import expand
from gptlab.store.config_file import read_config
from gptlab.values import say
from tests.support.refusals import check_refusal, refused


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with no folders of configs announced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.ENVIRONMENT, raising=False)
    return tmp_path


def add_ablation(folder: Path, name: str, body: str, header: str = "# @package _global_\n") -> None:
    path = folder / "ablation" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(header + body)


def refusal(*overrides: str) -> GptlabError:
    """The error of a config that cannot be."""
    with pytest.raises(GptlabError) as caught:
        compose(overrides)
    assert "HYDRA_FULL_ERROR" not in f"{caught.value}"
    return caught.value


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
    with refused("config-dir-missing", key="config dir", value="nowhere"):
        compose(config_dirs=["nowhere"])
    monkeypatch.setenv(sources.ENVIRONMENT, "gone")
    with refused("config-dir-missing", key="GPTLAB_CONF_PATH", value="gone"):
        compose()


def test_a_file_that_is_passed_over_is_named_and_refused_when_it_is_asked_for(here: Path) -> None:
    add_ablation(here / "conf", "relu", "model: {activation: silu}\n")
    with pytest.warns(UserWarning, match=r"ablation/relu.yaml \(used: .*conf/ablation/relu.yaml\)"):
        compose(["ablation=silu"])
    files = [str(sources.CONF_DIR / "ablation" / "relu.yaml"), "conf/ablation/relu.yaml"]
    two = refused("two-files-of-one-name", key="ablation", value="relu", files=files)
    with pytest.warns(UserWarning, match="not used"), two:
        compose(["ablation=[silu,relu]"])


def test_two_folders_of_the_user_s_may_not_have_one_name_either(here: Path) -> None:
    add_ablation(here / "one", "mine", "model: {n_layers: 1}\n")
    add_ablation(here / "two", "mine", "model: {n_layers: 2}\n")
    with (
        pytest.warns(UserWarning, match="not used"),
        refused(
            "two-files-of-one-name",
            key="ablation",
            value="mine",
            files=["one/ablation/mine.yaml", "two/ablation/mine.yaml"],
        ),
    ):
        compose(["ablation=mine"], config_dirs=["one", "two"])


def test_a_copy_of_gptlab_s_own_files_is_no_cause_for_a_warning(here: Path) -> None:
    own = (sources.CONF_DIR / "ablation" / "relu.yaml").read_text()
    add_ablation(here / "conf", "relu", own, header="")
    compose(["ablation=relu"])  # a warning would be an error here


def test_keys_that_nothing_reads_are_refused(here: Path) -> None:
    check_refusal(
        refusal("model.norm=rmsnorm", "model.norm_placement=none"),
        "model-key-unread",
        key="model.norm",
        value="rmsnorm",
    )
    check_refusal(refusal("ablation=[no_norm,rmsnorm]"), "model-key-unread", key="model.norm", value="rmsnorm")
    compose(["model.norm_placement=none"])  # the preset's own norm is not the user's doing


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_unknown_key_in_an_override(here: Path, prefix: str) -> None:
    facts = {"key": "model.emb_dmi=32", "value": "emb_dmi", "suggestion": "emb_dim"}
    check_refusal(refusal(f"{prefix}model.emb_dmi=32"), "unknown-name", **facts)


@pytest.mark.parametrize(
    ("overrides", "code", "facts"),
    [
        (
            ["ablation=rleu"],
            "unknown-name",
            {"key": "ablation=rleu", "value": "rleu", "suggestion": "relu", "file": "conf/ablation/rleu.yaml"},
        ),
        (["modle=tiny"], "unknown-name", {"key": "modle=tiny", "value": "modle", "suggestion": "model"}),
        (["model.n_layers=many"], "wrong-type", {"key": "model.n_layers", "value": "many"}),
        (["model.n_layers=2.5"], "wrong-type", {"key": "model.n_layers", "value": "2.5"}),
        (["model.n_layers=null"], "wrong-type", {"key": "model.n_layers", "value": "null"}),
        (["seed=abc"], "wrong-type", {"key": "seed", "value": "abc"}),
        (["seed="], "wrong-type", {"key": "seed", "value": ""}),
        (["train.budget=abc"], "wrong-type", {"key": "train.budget", "value": "abc"}),
        (["model.causal=maybe"], "wrong-type", {"key": "model.causal", "value": "maybe"}),
        (["model.causal=3"], "wrong-type", {"key": "model.causal", "value": "3"}),
        (["model.norm={a:1}"], "wrong-type", {"key": "model.norm", "value": "{a:1}"}),
        (["plugins=mine"], "wrong-type", {"key": "plugins", "value": "mine"}),
        (["model.layer_sizes=[a]"], "wrong-type", {"key": "model.layer_sizes", "value": "[a]"}),
        (["model.options=3"], "wrong-type", {"key": "model.options", "value": "3"}),
        (["model.options.norm=3"], "wrong-type", {"key": "model.options.norm", "value": "3"}),
        (["model.layers=3"], "layers-not-said", {"key": "model.layers", "value": 3}),
        (["init=gpt2"], "key-stands-deeper", {"override": "init=gpt2", "command": "model.init=gpt2"}),
        (["probes.gradients=3"], "wrong-type", {"key": "probes.gradients", "value": "3"}),
        (
            ["data.prompt=${model.nrom}"],
            "interpolation",
            {"key": "data.prompt", "value": "${model.nrom}", "cause": "no-such-key", "suggestion": "model.norm"},
        ),
        (["seed=${seed}"], "interpolation", {"key": "seed", "value": "${seed}", "cause": "circle"}),
        (
            ["model.n_layers=${model.norm}"],
            "interpolation",
            {"key": "model.n_layers", "value": "${model.norm}", "cause": "does-not-fit"},
        ),
        (["label=${nope:1}"], "interpolation", {"key": "label", "value": "${nope:1}", "cause": "no-such-function"}),
        (
            ["train=3"],
            "unknown-name",
            {"key": "train=3", "value": "3", "allowed": ["none", "small", "toy"], "file": "conf/train/3.yaml"},
        ),
        (["ablation={a:1}"], "group-without-option", {"override": "ablation={a:1}"}),
        (["+seed=1"], "key-added-twice", {"override": "seed=1"}),
        (["model@x=tiny"], "group-with-package", {"override": "model@x=tiny"}),
        (["=3"], "override-without-key", {"override": "=3"}),
        (
            ["experiment.baseline=rleu"],
            "unknown-name",
            {
                "key": "experiment.baseline=rleu",
                "value": "rleu",
                "suggestion": "relu",
                "file": "conf/ablation/rleu.yaml",
            },
        ),
        (
            ["experiment.primary_metric=los"],
            "unknown-name",
            {"key": "experiment.primary_metric", "value": "los", "suggestion": "loss"},
        ),
        (
            ["model.options.norm.esp=1"],
            "unknown-name",
            {"key": "model.options.norm (norm=layernorm)", "value": "esp", "suggestion": "eps"},
        ),
        (["model={emb_dmi:3}"], "unknown-name", {"key": "model", "value": "emb_dmi", "suggestion": "emb_dim"}),
        (["relu"], "no-equals-sign", {"suggestion": "ablation=relu"}),
        (["ablation=relu,silu"], "sweep-where-one-is-wanted", {"override": "ablation=relu,silu"}),
        (["ablation=[relu,relu]"], "ablation-twice", {"override": "ablation=[relu,relu]", "twice": "relu"}),
        (["ablation=null"], "group-without-option", {"override": "ablation=null"}),
        (["model=[tiny,dummy]"], "only-ablations-stack", {"override": "model=[tiny,dummy]"}),
        (["seed=1", "seed=2"], "key-given-twice", {"key_or_group": "seed", "override": "seed=2"}),
        (["~model.norm"], "key-removed", {"override": "~model.norm"}),
        (["hydra.run.dir=x"], "hydra-setting", {"override": "hydra.run.dir=x"}),
        (["model.norm=[a"], "override-grammar", {"override": "model.norm=[a", "cause": "brackets"}),
        (["model.n_layers = 3"], "override-grammar", {"override": "model.n_layers = 3", "cause": "spaces"}),
        (["ablation=relu seed=1"], "override-grammar", {"override": "ablation=relu seed=1", "cause": "two-overrides"}),
        (["model.n_layers=1,,2"], "override-grammar", {"override": "model.n_layers=1,,2", "cause": "comma"}),
        (["model..norm=a"], "override-grammar", {"override": "model..norm=a", "cause": "key"}),
        (["seed=range(a,b)"], "override-grammar", {"override": "seed=range(a,b)", "cause": "arguments"}),
        (["seed=choice()"], "override-grammar", {"override": "seed=choice()", "cause": "arguments"}),
        (["seed=foo(1)"], "override-grammar", {"override": "seed=foo(1)", "cause": "no-such-function"}),
    ],
)
def test_bad_overrides(here: Path, overrides: list[str], code: str, facts: dict[str, Any]) -> None:
    check_refusal(refusal(*overrides), code, **facts)


HEADER = "# @package _global_\n"
RAW = (
    "OmegaConf", "ListConfig", "DictConfig", "Merge error", "not Optional", "Integer", "codec", "hydra.cc", "subclass",
    "viable", "Lexer", "Interpolation", "incompatible", "Config search path",
)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "facts"),
    [
        (HEADER + "model:\n\tn_layers: 3\n", "yaml", {"file": "conf/ablation/bad.yaml", "line": 3, "cause": "tab"}),
        (HEADER + "seed: 1\nseed: 2\n", "yaml", {"file": "conf/ablation/bad.yaml", "line": 3, "cause": "twice"}),
        (HEADER + "model: [1\n", "yaml", {"file": "conf/ablation/bad.yaml", "line": 3, "cause": "bracket"}),
        (HEADER + "- relu\n", "file-holds-no-keys", {"line": 2}),
        (HEADER + "relu\n", "file-holds-no-keys", {"line": 2}),
        (
            HEADER + "model: relu\n",
            "wrong-type",
            {"key": "model", "value": "relu", "file": "conf/ablation/bad.yaml", "line": 2},
        ),
        (
            HEADER + "model: [1, 2]\n",
            "wrong-type",
            {"key": "model", "value": "[1, 2]", "file": "conf/ablation/bad.yaml", "line": 2},
        ),
        (HEADER + "model: null\n", "yaml-indentation", {"file": "conf/ablation/bad.yaml", "line": 2, "key": "model"}),
        (
            HEADER + "model:\n  emb_dmi: 3\n",
            "unknown-name",
            {
                "key": "model.emb_dmi",
                "value": "emb_dmi",
                "suggestion": "emb_dim",
                "file": "conf/ablation/bad.yaml",
                "line": 3,
            },
        ),
        (
            HEADER + "modle: {n_layers: 3}\n",
            "unknown-name",
            {"key": "modle", "value": "modle", "suggestion": "model", "file": "conf/ablation/bad.yaml", "line": 2},
        ),
        (
            HEADER + "model.norm: rmsnorm\n",
            "key-with-dots",
            {"suggestion": "model: {norm: rmsnorm}", "key": "model.norm", "file": "conf/ablation/bad.yaml", "line": 2},
        ),
        (
            HEADER + "model: {1: 3}\n",
            "unknown-name",
            {"key": "model.1", "value": "1", "file": "conf/ablation/bad.yaml", "line": 2},
        ),
        (
            HEADER + "model:\n  n_layers: many\n",
            "wrong-type",
            {"key": "model.n_layers", "value": "many", "file": "conf/ablation/bad.yaml", "line": 3},
        ),
        (
            HEADER + "model:\n  n_layers: null\n",
            "wrong-type",
            {"key": "model.n_layers", "value": "null", "file": "conf/ablation/bad.yaml", "line": 3},
        ),
        (
            HEADER + "model:\n  n_layers: 2.5\n",
            "wrong-type",
            {"key": "model.n_layers", "value": "2.5", "file": "conf/ablation/bad.yaml", "line": 3},
        ),
        (
            HEADER + "model:\n  causal: 2\n",
            "wrong-type",
            {"key": "model.causal", "value": "2", "file": "conf/ablation/bad.yaml", "line": 3},
        ),
        (
            HEADER + "model: {options: {norm: 3}}\n",
            "wrong-type",
            {"key": "model.options.norm", "value": "3", "file": "conf/ablation/bad.yaml", "line": 2},
        ),
        (
            HEADER + "plugins: mine\n",
            "wrong-type",
            {"key": "plugins", "value": "mine", "file": "conf/ablation/bad.yaml", "line": 2},
        ),
        (
            HEADER + "data: {source: vectors, inputs: [[1, a]]}\n",
            "wrong-type",
            {"key": "data.inputs[0][1]", "value": "a", "file": "conf/ablation/bad.yaml", "line": 2},
        ),
        (
            HEADER + "model:\n  n_layers: -1\n",
            "out-of-range",
            {"key": "model.n_layers", "value": -1, "low": 0, "file": "conf/ablation/bad.yaml", "line": 3},
        ),
        (
            HEADER + "model:\n  n_layers: ${model.nope}\n",
            "interpolation",
            {"key": "model.n_layers", "cause": "no-such-key", "file": "conf/ablation/bad.yaml", "line": 3},
        ),
        (HEADER + "model:\n  n_layers: '${model.'\n", "interpolation-open", {"line": 3}),
        (
            HEADER + "model:\n  n_layers: ${model.n_layers}\n",
            "interpolation",
            {"key": "model.n_layers", "cause": "circle", "file": "conf/ablation/bad.yaml", "line": 3},
        ),
        (
            HEADER + "model: {n_layers: !!python/object/apply:os.getcwd []}\n",
            "yaml",
            {"file": "conf/ablation/bad.yaml", "line": 2, "cause": "tag"},
        ),
        (
            HEADER + "---\nseed: 1\n---\nseed: 2\n",
            "yaml",
            {"file": "conf/ablation/bad.yaml", "line": 4, "cause": "document"},
        ),
        (HEADER + "defaults: relu\n", "defaults-not-a-list", {"place": "conf/ablation/bad.yaml"}),
        (
            HEADER + "defaults: [nope]\n",
            "defaults-names-no-file",
            {"where": "ablation/bad.yaml", "group": "ablation", "name": "nope"},
        ),
        (
            HEADER + "defaults:\n  - override /model: tiny\n",
            "ablation-chooses-presets",
            {"place": "conf/ablation/bad.yaml", "line": 3},
        ),
        (
            HEADER + "defaults:\n  - /ablation: relu\n",
            "ablation-chooses-presets",
            {"place": "conf/ablation/bad.yaml", "line": 3},
        ),
        (
            "model: {n_layers: 3}\n",
            "package-header-missing",
            {"place": "conf/ablation/bad.yaml", "header": "# @package _global_"},
        ),
        (
            "# @package nowhere\nmodel: {n_layers: 3}\n",
            "package-header-missing",
            {"place": "conf/ablation/bad.yaml", "header": "# @package _global_"},
        ),
        (
            "# @package model\nn_layers: 3\n",
            "package-header-missing",
            {"place": "conf/ablation/bad.yaml", "header": "# @package _global_"},
        ),
        ("", "package-header-missing", {"place": "conf/ablation/bad.yaml", "header": "# @package _global_"}),
        (
            "model: {n_layers: 3}\n# @package _global_\n",
            "package-header-missing",
            {"place": "conf/ablation/bad.yaml", "header": "# @package _global_"},
        ),
        (
            "# What and why\n# @package _global_\n",
            "package-header-missing",
            {"place": "conf/ablation/bad.yaml", "header": "# @package _global_"},
        ),  # as Hydra has it
    ],
)
def test_bad_files(here: Path, body: str, code: str, facts: dict[str, Any]) -> None:
    """One sentence with the file, the line where there is one, and no word of the libraries beneath."""
    add_ablation(here / "conf", "bad", body, header="")
    check_refusal(error := refusal("model=tiny", "ablation=bad"), code, **facts)
    assert "ablation/bad.yaml" in f"{error}" and not any(word in f"{error}" for word in RAW)


@pytest.mark.parametrize(
    ("name", "body", "code", "facts"),
    [
        (
            "model/bad",
            "n_layers: 3\nmodel: {n_layers: 2}\n",
            "unknown-name",
            {"key": "model.model", "value": "model", "file": "conf/model/bad.yaml", "line": 2},
        ),
        ("model/bad", "relu\n", "file-holds-no-keys", {"file": "conf/model/bad.yaml", "line": 1}),
        (
            "model/bad",
            "# @package nowhere\nn_layers: 3\n",
            "package-of-no-place",
            {"place": "conf/model/bad.yaml", "package": "nowhere"},
        ),
        (
            "model/bad",
            HEADER + "model: {n_layers: a}\n",
            "wrong-type",
            {"key": "model.n_layers", "value": "a", "file": "conf/model/bad.yaml", "line": 2},
        ),
        (
            "train/bad",
            "budget: [1]\n",
            "wrong-type",
            {"key": "train.budget", "value": "[1]", "file": "conf/train/bad.yaml", "line": 1},
        ),
        (
            "experiment/bad",
            HEADER + "experiment: zzz\n",
            "wrong-type",
            {"key": "experiment", "value": "zzz", "file": "conf/experiment/bad.yaml", "line": 2},
        ),
        (
            "experiment/bad",
            HEADER + "hydra: {run: {dir: x}}\n",
            "file-sets-hydra",
            {"where": "conf/experiment/bad.yaml, line 2"},
        ),
        (
            "experiment/bad",
            HEADER + "hydra: {sweeper: {params: a}}\n",
            "sweep-params-not-keys",
            {"where": "conf/experiment/bad.yaml, line 2"},
        ),
    ],
)
def test_bad_files_of_other_groups(here: Path, name: str, body: str, code: str, facts: dict[str, Any]) -> None:
    group, _, option = name.partition("/")
    (here / "conf" / group).mkdir(parents=True)
    (here / "conf" / f"{name}.yaml").write_text(body)
    check_refusal(error := refusal(f"{group}={option}"), code, **facts)
    assert f"{error}".startswith(f"conf/{name}.yaml")


def test_a_file_that_cannot_be_read_is_named(here: Path) -> None:
    add_ablation(here / "conf", "bad", "")
    (here / "conf" / "ablation" / "bad.yaml").write_bytes(b"# @package _global_\nlabel: \xff\xfe\x00\n")
    check_refusal(refusal("ablation=bad"), "file-not-utf8", place="conf/ablation/bad.yaml", line=2)
    (here / "conf" / "ablation" / "bad.yaml").rename(here / "conf" / "ablation" / "short.yml")
    check_refusal(refusal("ablation=short"), "yml-not-read", file="conf/ablation/short.yml")
    (here / "conf" / "ablation" / "lost.yaml").symlink_to("nowhere.yaml")
    check_refusal(refusal("ablation=lost"), "dead-link", file="conf/ablation/lost.yaml")


def test_a_file_that_is_in_order_stays_so(here: Path) -> None:
    """What is looked at is refused for a reason only: comments, stacks, interpolations and packages are fine."""
    add_ablation(here / "conf", "one", "# why\nmodel: {n_layers: '3', expansion: 2, causal: no}\n")
    add_ablation(here / "conf", "two", "defaults: [one, _self_]\nmodel: {emb_dim: '${model.n_heads}'}\n")
    (here / "conf" / "model").mkdir()
    (here / "conf" / "model" / "mine.yaml").write_text(HEADER + "model: {n_heads: 4}\n")
    model = compose(["model=mine", "ablation=two"]).model
    assert (model.n_layers, model.expansion, model.causal, model.emb_dim, model.n_heads) == (3, 2.0, False, 4, 4)


def test_options_in_folders_of_their_own(here: Path) -> None:
    """Hydra goes by the group that is chosen from: `model=mine/small` sets keys of `model`."""
    (here / "conf" / "model" / "mine").mkdir(parents=True)
    (here / "conf" / "model" / "mine" / "small.yaml").write_text("n_layers: 1\n")
    add_ablation(here / "conf", "norms/rms", "model: {norm: rmsnorm}\n")
    model = compose(["model=mine/small", "ablation=norms/rms"]).model
    assert (model.n_layers, model.norm) == (1, "rmsnorm")
    add_ablation(here / "conf", "norms/bad", "model: {norm: rmsnorm}\n", header="")
    check_refusal(
        refusal("ablation=norms/bad"),
        "package-header-missing",
        place="conf/ablation/norms/bad.yaml",
        header="# @package _global_",
    )
    add_ablation(here / "conf", "norms/more", "defaults:\n  - override /model: tiny\n")
    check_refusal(
        refusal("ablation=norms/more"), "ablation-chooses-presets", place="conf/ablation/norms/more.yaml", line=3
    )


def test_what_is_said_can_be_typed(here: Path) -> None:
    check_refusal(error := refusal("model.layers=foo"), "layers-not-said", key="model.layers", value="foo")
    assert compose([error.facts["suggestion"]]).model.layers == {"0": {"norm": "identity"}}
    assert compose(["experiment.baseline=[relu,rmsnorm]"]).experiment.baseline == "[relu,rmsnorm]"
    check_refusal(refusal("gradients=null"), "key-stands-deeper", command="probes.gradients=null")
    check_refusal(refusal("name=x"), "key-stands-deeper", command="experiment.name=x")


def test_a_missing_mandatory_value_is_named(here: Path) -> None:
    (here / "conf" / "model").mkdir(parents=True)
    (here / "conf" / "model" / "open.yaml").write_text("n_layers: ???\n")
    assert compose(["model=open"]).model.n_layers == 12  # the schema's default stands
    add_ablation(here / "conf", "asks", "data: {source: string, text: '???'}\n")
    check_refusal(refusal("ablation=asks"), "data-key-needed", name="text", source="string")


def test_hydra_s_own_error_on_request(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(HydraException):
        compose(["seed=abc"])


@pytest.mark.usefixtures("bf16_here")
def test_every_shipped_option_composes(here: Path) -> None:
    groups = Composer().groups
    assert set(groups) == {"ablation", "data", "experiment", "match", "model", "probes", "train", "tune"}
    for group in ("model", "train", "ablation", "probes", "experiment"):  # a match needs a baseline: planning
        for option in groups[group]:
            compose([f"{group}={option}"])


@pytest.mark.parametrize(
    ("overrides", "key", "line"),
    [
        (["model=deep_mlp", "model.n_layers=12"], "model.n_layers", "model.layer_sizes=[3,3,3,3,3,3,3,3,3,3,3,3,1]"),
        (["model=deep_mlp", "model.n_layers=6"], "model.n_layers", "model.layer_sizes=[3,3,3,3,3,3,1]"),
        (["model=deep_mlp", "model.emb_dim=768"], "model.emb_dim", "model.layer_sizes=[3,768,768,768,768,1]"),
        (["model=tiny", "model.layer_sizes=null"], "model.layer_sizes", "model=deep_mlp"),
        (["model=tiny", "model.attention=identity", "model.n_kv_heads=12"], "model.n_kv_heads", None),
        (["model=tiny", "model={attention:identity,n_kv_heads:4}"], "model.n_kv_heads", None),
    ],
)
def test_a_typed_key_that_nothing_reads_is_refused_at_its_default_too(
    here: Path, overrides: list[str], key: str, line: str | None
) -> None:
    data = "data=five_layer_input" if "model=deep_mlp" in overrides else "data=random_tokens"
    with refused("model-key-unread", key=key, command=line) as caught:
        compose([*overrides, data])
    typed = overrides[-1].partition("=")[2]
    assert say(caught.value.facts["value"]) == typed or "{" in typed
    if line:  # what is told to be typed is itself accepted
        compose(["model=deep_mlp", "data=five_layer_input"] + [line] * ("sizes" in line))


def test_config_yaml_has_no_key_that_its_architecture_does_not_read(here: Path) -> None:
    deep = compose(["model=deep_mlp", "data=five_layer_input"])
    assert set(stored(deep)["model"]) == {"architecture", "layer_sizes", "activation", "shortcut", "init", "options"}
    gpt = compose(["model=tiny", "data=random_tokens"])
    assert "layer_sizes" not in stored(gpt)["model"]
    for config in (deep, gpt):
        assert identity(stored(config)) == identity(config) == identity(dataclasses.asdict(config))


def test_options_of_a_layer_are_settled(here: Path) -> None:
    base = ["model=tiny", "data=random_tokens"]
    plain = compose(base)
    window = compose([*base, "model.layers.1.options.attention.window=8"])
    assert window.model.layers == {"1": {"options": {"attention": {"window": 8}}}}
    (run,) = expand([*base, "model.layers.1={options: {attention: {window: 8}}}"]).runs
    assert identity(run.config) == identity(window)
    at_default = compose([*base, "model.layers.1.options.norm.eps=1e-5", "model.layers.0.options={}"])
    assert identity(at_default) == identity(plain)
    back = compose([*base, "model.options.norm.eps=1", "model.layers.1.options.norm.eps=1e-5"])
    assert back.model.layers == {"1": {"options": {"norm": {"eps": 1e-5}}}}  # it undoes what the model says
    again = compose([*base, "model.options.norm.eps=1", "model.layers.1.options.norm.eps=1"])
    assert identity(again) == identity(compose([*base, "model.options.norm.eps=1"]))


BLOCK_VALUES = {
    "norm": "rmsnorm", "norm_placement": "post", "layout": "parallel", "activation": "relu", "feed_forward": "swiglu",
    "expansion": "2", "hidden_dim": "24", "hidden_multiple": "7", "feed_forward_bias": "false",
    "attention": "identity", "causal": "false", "n_heads": "2", "n_kv_heads": "1", "head_dim": "5",
    "qkv_bias": "true", "attention_bias": "false", "shortcut": "scaled", "shortcut_attention": "none",
    "shortcut_feed_forward": "none", "drop_rate": "0.2", "drop_attention": "0.2", "drop_shortcut": "0.2",
    "drop_feed_forward": "0.2", "position": "rope", "options": "{norm: {eps: 0.1}}", "skip": "first_embeddings",
}  # fmt: skip


@pytest.mark.parametrize("span", ["1", "0-1"])
@pytest.mark.parametrize("key", BLOCK_KEYS)
def test_every_key_of_a_block_settles_for_one_layer(here: Path, key: str, span: str) -> None:
    words = ["model=tiny", "data=random_tokens", f"model.layers.{span}.{key}={BLOCK_VALUES[key]}"]
    (run,) = expand(words).runs
    layer = run.config.model.layers[span]
    assert list(layer) == [key]
    assert identity(compose(words)) == run.id
    assert f"layers.{span}." in run.label and f"layers.{span}." in run.folder
    build(run.config)


@pytest.mark.slow
@pytest.mark.parametrize("key", BLOCK_KEYS)
def test_every_key_of_a_block_runs_for_one_layer(here: Path, key: str) -> None:
    """Of a layer and of a span: what was run reads back as what was asked for."""
    for span in ("1", "0-1"):
        config = compose(["model=tiny", "data=random_tokens", f"model.layers.{span}.{key}={BLOCK_VALUES[key]}"])
        folder = gptlab.run(config).folder
        assert json.loads((folder / "result.json").read_text())["state"] == "finished"
        assert identity(read_config(folder)) == identity(config)


@pytest.mark.slow
def test_a_span_runs_and_grows_as_commands(here: Path) -> None:
    words = ["model=tiny", "data=random_tokens", "probes=counting"]
    assert dispatch([*words, "model.layers.0-1.norm=rmsnorm,identity"]) == 0
    assert dispatch(["add", "outputs/runs", "model.layers.0-1.norm=scalenorm"]) == 0
    found = [read_config(path.parent)["model"]["layers"] for path in Path("outputs").rglob("result.json")]
    assert {layers["0-1"]["norm"] for layers in found} == {"rmsnorm", "identity", "scalenorm"}


def test_a_span_on_the_command_line(here: Path) -> None:
    base = ["model=tiny", "data=random_tokens"]
    span = compose([*base, "model.layers.0-1.norm=rmsnorm", "model.layers.0-1.options.norm.eps=0.1"])
    assert span.model.layers == {"0-1": {"norm": "rmsnorm", "options": {"norm": {"eps": 0.1}}}}
    in_braces = compose([*base, "model.layers.0-1={norm: rmsnorm, options: {norm: {eps: 0.1}}}"])
    assert identity(in_braces) == identity(span)
    runs = expand([*base, "model.layers.0-1.norm=rmsnorm,scalenorm"]).runs  # it sweeps
    assert [run.label for run in runs] == ["layers.0-1.norm=rmsnorm", "layers.0-1.norm=scalenorm"]
    assert list(runs[1].delta) == ["model.layers.0-1.norm"]
    apart = expand([*base, "model.layers.0.options.norm.eps=0.1,0.2", "model.layers.1.options.norm.eps=0.1,0.2"]).runs
    assert len({run.label for run in apart}) == 4


@pytest.mark.parametrize(
    ("setting", "code", "said"),
    [
        ("model.layers.0-1.nrm=x", "unknown-name", "model.layers.0-1"),
        ("model.layers.1-0.norm=rmsnorm", "layer-span-backwards", "model.layers.1-0"),
        ("model.layers.0-2.norm=rmsnorm", "layer-out-of-range", "model.layers.0-2"),
        ("model.layers.0-1.norm=[", "override-grammar", "model.layers.0-1.norm=["),
        ("model.layers.0-1.expansion=010", "not-a-plain-decimal", "model.layers.0-1.expansion=010"),
    ],
)
def test_what_is_wrong_with_a_span_is_said_of_what_was_typed(here: Path, setting: str, code: str, said: str) -> None:
    with refused(code) as caught:
        compose(["model=tiny", "data=random_tokens", setting])
    assert f"{caught.value}".startswith(f"{said}: ")


def test_a_file_and_the_command_line_may_both_speak_of_one_layer(here: Path) -> None:
    """In a file a layer is a number, on the command line a text; neither is lost."""
    base = ["model=tiny", "data=random_tokens", "ablation=no_norm_first_block"]
    both = compose([*base, "model.layers.0.activation=relu"])
    assert both.model.layers == {"0": {"norm": "identity", "activation": "relu"}}
    Path("conf/ablation").mkdir(parents=True)
    text = "# @package _global_\nmodel: {layers: {0-1: {norm: identity, options: {feed_forward: {}}}}}\n"
    Path("conf/ablation/mine.yaml").write_text(text)
    later = compose([*base[:2], "ablation=mine", "model.layers.0-1.norm=rmsnorm", "model.layers.0-1.expansion=2"])
    assert later.model.layers == {"0-1": {"norm": "rmsnorm", "expansion": 2.0, "options": {"feed_forward": {}}}}
