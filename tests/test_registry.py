"""The registry: what a component declares, how its options are typed, and how outside modules join."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gptlab
from gptlab import registry
from gptlab.config import Config, flatten
from gptlab.errors import GptlabError
from gptlab.model.block import Block
from gptlab.registry import Option, register
from tests.support.generated_pages import PAGES
from tests.support.refusals import check_refusal, refused

pytestmark = pytest.mark.usefixtures("scratch_registry")

HEADER = "from torch import nn\nfrom gptlab import register\n\n"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def refusal(*plugins: str) -> GptlabError:
    with pytest.raises(GptlabError) as caught:
        registry.load_plugins(plugins)
    return caught.value


# --- what a signature declares


def test_signature_is_the_declaration() -> None:
    @register("norm", "test_norm")
    class Norm(nn.Module):
        """First line.

        More.
        """

        def __init__(self, dim: int, layer: int | None, gain: float = 1.0, mode: str | None = None) -> None:
            super().__init__()

    found = registry.get("norm", "test_norm")
    assert found.factory is Norm
    assert found.inputs == ("dim", "layer")
    assert found.options == (Option("gain", float, 1.0), Option("mode", str | None, None))
    assert found.summary == "First line."


def test_star_arguments_declare_nothing() -> None:
    @register("activation", "test_stars")
    def stars(*args: object, **kwargs: object) -> nn.Module:
        return nn.ReLU()

    assert registry.get("activation", "test_stars").inputs == registry.get("activation", "test_stars").options == ()


def test_what_a_component_cannot_be_given_is_refused_with_the_inputs_listed() -> None:
    with refused("component-needs-unknown", kind="activation", name="test_width", parameter="dim") as caught:

        @register("activation", "test_width")
        def width(dim: int) -> nn.Module:
            return nn.ReLU()

    given = caught.value.facts["allowed"]
    assert {"emb_dim", "n_layers", "layer", "norm", "activation"} <= set(given)
    assert "options" not in given and "dim" not in given
    assert "test_width" not in registry.components("activation")


def test_unknown_slot_and_unknown_name_are_refused_with_the_closest() -> None:
    with refused("unknown-name", key="slot", value="nrom", suggestion="norm"):
        register("nrom", "x")(nn.Identity)
    with refused("unknown-name", key="slot", value="nrom", suggestion="norm"):
        registry.components("nrom")
    with refused("unknown-name", key="model.norm", value="layernrom", suggestion="layernorm"):
        registry.get("norm", "layernrom")
    with refused("unknown-name", key="model.here", value="x", allowed=sorted(registry.components("norm"))):
        registry.get("norm", "x", where="model.here")


def test_a_taken_name_is_refused_and_names_both_modules() -> None:
    def relu() -> nn.Module:
        return nn.ReLU()

    before = registry.get("activation", "relu")
    taken = {"kind": "activation", "name": "relu", "module": "gptlab.model.activations", "other": __name__}
    with refused("component-registered-twice", **taken):
        register("activation", "relu")(relu)
    assert registry.get("activation", "relu") is before


def test_two_components_of_one_module_cannot_share_a_name() -> None:
    register("activation", "test_twice")(nn.Tanh)
    with refused("component-registered-twice", name="test_twice", module="torch.nn.modules.activation"):
        register("activation", "test_twice")(nn.Sigmoid)


def test_a_module_may_be_reloaded(modules: Path) -> None:
    file = modules / "test_reloaded.py"
    text = (
        HEADER + '@register("activation", "test_again")\ndef again(slope: float = 1.0) -> nn.Module: return nn.ReLU()\n'
    )
    file.write_text(text)
    registry.load_plugins(["test_reloaded"])
    file.write_text(text.replace("1.0", "0.25"))
    importlib.reload(sys.modules["test_reloaded"])
    assert registry.get("activation", "test_again").options[0].default == 0.25


def test_every_component_of_gptlab_has_a_summary_and_typed_options() -> None:
    for slot in registry.SLOTS:
        found = [part for part in registry.components(slot).values() if part.module.startswith("gptlab.")]
        assert found
        for component in found:
            assert component.summary.endswith((".", ")")), component
            assert all(option.type is not typing.Any for option in component.options)


# --- options


@pytest.fixture
def component() -> registry.Component:
    @register("attention", "test_options")
    class Attention(nn.Module):
        """Options of every type."""

        def __init__(
            self,
            emb_dim: int,
            scale: float = 0.5,
            window: int = 4,
            mode: str = "full",
            bias: bool = False,
            cap: float | None = None,
            sizes: list[int] = [1, 2],  # noqa: B006
            free=7,
        ) -> None:
            super().__init__()

    return registry.get("attention", "test_options")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("scale", 2, 2.0),
        ("scale", "1e-6", 1e-6),
        ("window", 8, 8),
        ("mode", "local", "local"),
        ("bias", True, True),
        ("cap", 30, 30.0),
        ("cap", None, None),
        ("sizes", [3], [3]),
        ("free", "anything", "anything"),
    ],
)
def test_options_take_their_declared_type(
    component: registry.Component, name: str, given: object, value: object
) -> None:
    options = component.checked_options({name: given})
    assert options == {name: value}
    assert type(options[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("scale", "wide"),
        ("window", 2.5),
        ("bias", "maybe"),
        ("scale", None),
        ("scale", [1.0]),
        ("sizes", 3),
        ("sizes", ["x"]),
    ],
)
def test_options_of_a_wrong_type_are_refused_by_key_and_value(
    component: registry.Component, name: str, given: object
) -> None:
    with refused("wrong-type", key=f"model.options.attention.{name}"):
        component.checked_options({"mode": "full", name: given})


def test_unknown_option_is_refused_with_the_closest(component: registry.Component) -> None:
    where = {
        "key": "model.options.attention (attention=test_options)",
        "allowed": ["bias", "cap", "free", "mode", "scale", "sizes", "window"],
    }
    with refused("unknown-name", value="scael", suggestion="scale", **where):
        component.checked_options({"scael": 1})
    with refused("unknown-name", value="emb_dim", **where):
        component.checked_options({"emb_dim": 3})  # an input, set by model.emb_dim


def test_no_options_are_no_options(component: registry.Component) -> None:
    assert component.checked_options({}) == {}


# --- plugins


def test_missing_plugin(modules: Path) -> None:
    code, folder = "no-such-module", os.getcwd()
    check_refusal(error := refusal("test_nowhere"), code, key="plugins", value="test_nowhere", module="test_nowhere")
    assert folder in error.facts["searched"]
    check_refusal(refusal("test_nowhere.inner"), code, value="test_nowhere", module="test_nowhere.inner")
    (modules / "test_package").mkdir()
    (modules / "test_package" / "__init__.py").write_text("")
    check_refusal(refusal("test_package.inner"), code, value="test_package.inner", module="test_package.inner")


def test_plugin_whose_own_dependency_is_missing(modules: Path) -> None:
    (modules / "test_needy.py").write_text("import test_not_installed\n")
    check_refusal(refusal("test_needy"), "no-such-module", value="test_not_installed", module="test_needy")


@pytest.mark.parametrize(
    ("text", "raised", "words"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError", "no luck"),
        ("1/0", "ZeroDivisionError", "division by zero"),
        ("import sys; sys.exit(3)", "SystemExit", "3"),
        ("def broken(:", "SyntaxError", "invalid syntax (test_raises.py, line 1)"),
        ("from gptlab import nothing", "ImportError", "cannot import name 'nothing' from 'gptlab'"),
    ],
)
def test_plugin_that_raises_on_import(modules: Path, text: str, raised: str, words: str) -> None:
    """What the user's own code says reaches the user."""
    (modules / "test_raises.py").write_text(text)
    check_refusal(error := refusal("test_raises"), "plugin-raised", module="test_raises", raised=raised)
    assert words in f"{error}"


@pytest.mark.parametrize("name", ["", ".relative"])
def test_plugin_that_is_no_module_name(name: str) -> None:
    check_refusal(refusal(name), "plugin-raised", module=name)


def test_plugin_that_registers_nothing(modules: Path) -> None:
    register("norm", "test_of_torch")(nn.Identity)  # does not make everyone who imports torch one who registers
    (modules / "test_idle.py").write_text("from torch import nn\n\nclass Mine(nn.Module): pass\n")
    check_refusal(refusal("test_idle"), "plugin-registers-nothing", module="test_idle")
    check_refusal(refusal("test_idle"), "plugin-registers-nothing", module="test_idle")  # imported already, too
    (modules / "test_idle.py").write_text(
        HEADER + "@register('norm', 'test_mended')\nclass Mine(nn.Module):\n    def __init__(self, dim: int): ...\n"
    )
    importlib.invalidate_caches()
    importlib.reload(sys.modules["test_idle"])
    registry.load_plugins(["test_idle"])


@pytest.mark.parametrize("line", ["import test_core", "from test_core import Mine", "from test_core import *"])
def test_plugin_that_imports_one_that_was_loaded_before(modules: Path, line: str) -> None:
    (modules / "test_core.py").write_text(
        HEADER + "@register('norm', 'test_core')\nclass Mine(nn.Module):\n    def __init__(self, dim: int): ...\n"
    )
    (modules / "test_all.py").write_text(f"{line}\n")
    registry.load_plugins(["test_core", "test_all"])
    registry.load_plugins(["test_core", "test_all"])


@pytest.mark.parametrize(
    "body",
    [
        "from gptlab.analyses import Findings, register_analysis\n"
        "@register_analysis('test_only')\ndef only(variants): return Findings()\n",
        "from gptlab.data.kinds import register_data\n@register_data('test_only')\ndef only(vocab_size: int): ...\n",
        "import test_only_inner\n",
    ],
)
def test_plugin_that_registers_anything_will_do(modules: Path, body: str) -> None:
    (modules / "test_only.py").write_text(body)
    (modules / "test_only_inner.py").write_text(
        HEADER + '@register("norm", "test_only")\nclass Mine(nn.Module): pass\n'
    )
    registry.load_plugins(["test_only"])


def test_plugin_that_takes_a_name(modules: Path) -> None:
    (modules / "test_taker.py").write_text(HEADER + '@register("norm", "rmsnorm")\nclass Mine(nn.Module): pass\n')
    check_refusal(refusal("test_taker"), "plugin-refused", module="test_taker", cause="component-registered-twice")


PLUGIN = '''
import torch
from torch import nn
from gptlab import register

@register("norm", "test_centre")
class Centre(nn.Module):
    """x - mean(x), times a gain."""
    def __init__(self, dim: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
    def forward(self, x):
        return self.scale * (x - x.mean(-1, keepdim=True))

@register("activation", "test_leaky")
def leaky(slope: float = 0.1):
    """max(x, slope x)."""
    return nn.LeakyReLU(slope)
'''


def test_plugin_from_a_users_folder_composes_builds_and_runs(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(modules)
    (modules / "test_mine.py").write_text(PLUGIN)
    (modules / "conf" / "ablation").mkdir(parents=True)
    (modules / "conf" / "ablation" / "mine.yaml").write_text(
        "# @package _global_\nplugins: [test_mine]\nmodel:\n  norm: test_centre\n  activation: test_leaky\n"
        "  options: {activation: {slope: 1}}\n"
    )
    config = gptlab.compose(["model=tiny", "ablation=mine"])
    assert config.model.options == {"activation": {"slope": 1.0}}
    model = gptlab.build(config)
    assert [m.negative_slope for m in model.modules() if isinstance(m, nn.LeakyReLU)] == [1.0, 1.0]
    run = gptlab.run(config, modules / "run")
    assert run.result["state"] == "finished", run.result
    assert run.metrics["parameters/norm"] == 2 * 2 * 32
    assert run.metrics["parameters/final_norm"] == 32
    with refused(
        "unknown-name",
        key="model.options.activation (activation=test_leaky)",
        value="slop",
        suggestion="slope",
        file="conf/ablation/mine.yaml",
        line=6,
    ):
        gptlab.compose(["model=tiny", "ablation=mine", "model.options.activation.slop=2"])


def test_component_is_given_what_its_signature_names() -> None:
    seen: list[tuple[int, int | None, str]] = []

    @register("feed_forward", "test_asks")
    class Asks(nn.Module):
        """Takes a key, its layer and another slot, built."""

        def __init__(self, emb_dim: int, layer: int | None, activation: nn.Module) -> None:
            super().__init__()
            seen.append((emb_dim, layer, type(activation).__name__))

        def forward(self, x: Tensor) -> Tensor:
            return x

    gptlab.build(gptlab.compose(["model=tiny", "model.feed_forward=test_asks", "model.activation=silu"]))
    assert seen[-2:] == [(32, 0, "SiLU"), (32, 1, "SiLU")]  # built before too, when the config was checked


# --- entry points


def test_entry_points_of_installed_packages_are_loaded(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (modules / "test_installed.py").write_text(PLUGIN)
    entry = EntryPoint("mine", "test_installed:leaky", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == "gptlab.components" else [])
    registry.load_installed.cache_clear()
    assert registry.get("activation", "test_leaky").module == "test_installed"
    torch.testing.assert_close(
        registry.get("activation", "test_leaky").factory()(torch.tensor([-1.0])), torch.tensor([-0.1])
    )


def test_a_broken_entry_point_is_named(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "test_not_there", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    registry.load_installed.cache_clear()
    with refused("no-such-module", key="entry point 'mine'", value="test_not_there"):
        registry.components("norm")
    registry.load_installed.cache_clear()


def test_entry_points_as_a_package_declares_them(tmp_path: Path) -> None:
    (tmp_path / "test_installed.py").write_text(PLUGIN)
    info = tmp_path / "test_installed-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: test-installed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gptlab.components]\nmine = test_installed\n")
    script = "from gptlab import registry; print(registry.get('norm', 'test_centre').module)"
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("test_installed\n", "")


# --- the pages of docs/ that are made from the code

DOCS = Path(__file__).parent.parent / "docs"
COMPONENTS = (DOCS / "components.md").read_text(encoding="utf-8")


# Of every axis the page counts a model.
COUNTED = {"axes.md"}


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow if p in COUNTED else ()) for p in sorted(PAGES)]
)
def test_what_is_generated_is_current(page: str) -> None:
    # In a process of its own: what other tests register is none of the page's business.
    script = "import sys; from tests.support.generated_pages import renewed as r; " + (
        f"sys.stdout.buffer.write(r({page!r}).encode())"
    )
    made = subprocess.run([sys.executable, "-c", script], cwd=DOCS.parent, capture_output=True, check=True).stdout
    assert made.decode() == (DOCS / page).read_text(encoding="utf-8"), "`make pages` writes it anew"


def test_every_ablation_is_on_its_page_and_its_tests_are_there() -> None:
    page = (DOCS / "axes.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(
        p.stem for p in (DOCS.parent / "conf" / "ablation").glob("*.yaml") if p.stem != "none"
    )
    links = re.findall(r"\]\((\.\./tests/[^)]*)\)", page)
    assert len(links) > len(listed) and all((DOCS / link).is_file() for link in links)


def test_every_key_is_on_its_page() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \|", (DOCS / "keys.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(listed) == sorted(flatten(Config()))


def test_docs_show_the_diagrams_of_the_block() -> None:
    lines = [line.strip() for line in (Block.__doc__ or "").splitlines() if set(line) & set("┬┘")]
    assert len(lines) == 10
    drawn = COMPONENTS.split("## Where things stand")[1].split("A gated feed-forward")[0]
    assert lines == [line.strip() for line in drawn.splitlines() if set(line) & set("┬┘")]


def test_docs_choose_what_there_is() -> None:
    section = COMPONENTS.split("## Choosing")[1].split("\n## ")[0]
    commands = re.findall(r"^gptlab (model=.*)$", section, re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        gptlab.compose(shlex.split(command))


def test_links_between_pages_lead_somewhere() -> None:
    for page in sorted(DOCS.glob("*.md")):
        for name, anchor in re.findall(r"\]\((\w[\w-]*\.md)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8")):
            target = DOCS / name
            assert target.exists(), (page.name, name)
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not anchor or anchor in slugs, (page.name, name, anchor)
