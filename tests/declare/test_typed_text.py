"""Text is text, on the command line and in files: what is typed arrives, or the refusal has the line that works."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gptlab.declare import sources
from gptlab.declare.composer import Composer, compose
from gptlab.declare.option_texts import quoted
from gptlab.declare.typed_text import as_typed, free_texts, in_quotes
from gptlab.errors import ConfigError
from gptlab.identity import identity
from gptlab.planning.plan import expand
from tests.support.refusals import refused

TINY = ["model=tiny", "data=random_tokens"]
NASTY = [
    "Hello, I am", "a,b", "range(3)", "choice(a)", "glob(*)", "[a,b]", "{a:1}", "off", "no", "010", "12:30", "1.10",
    "1e3", "+5", " leading", "trailing ", "~/x", "it's", 'say "hi"', "a=b", "a # b", "null ", "true", "\\", "\\\\",
    'a\\"b', "ä→", "%x", "one\ntwo", "\t", "'", '"', "''", "a: b", "- a", "*a", "&a", "!a", "@a", "`a`", "x\\,y",
    "1_000", "NaN", "inf", "Hello\\n",
]  # fmt: skip
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=20), st.text("ab,'\"\\ ()[]{}=:#~+-01eE.$\n", max_size=12))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.ENVIRONMENT, raising=False)


def line_value(override: str) -> str | None:
    """What one override sets, and that it is one run."""
    (parsed,) = _composer().parse([override])
    assert not parsed.is_sweep_override()
    value = parsed.value()
    assert isinstance(value, str | None)
    return value


@cache
def _composer() -> Composer:
    return Composer()


def is_plain(text: str) -> bool:
    """Not in quotes as a whole, which would be taken off, and without a ${: those have tests of their own."""
    return "${" not in text and as_typed(f"label={text}") == f"label={in_quotes(text)}" and text.strip("'\"") != "???"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts.filter(bool), key=st.sampled_from(sorted(free_texts())))
def test_the_line_keeps_a_text_as_it_is(text: str, key: str) -> None:
    try:
        plain = is_plain(text)
    except ConfigError:
        return
    if plain and text != "null":
        assert line_value(f"{key}={text}") == text
    if "${" not in text and text != "???":  # quoted it is the same text, whatever it looks like, and so again
        assert line_value(f"{key}={in_quotes(text)}") == text
        assert as_typed(as_typed(f"{key}={text}")) == as_typed(f"{key}={text}")


@pytest.mark.parametrize("text", [text for text in NASTY if text not in ("''", '""')])
def test_a_composed_text_is_the_typed_one(text: str) -> None:
    loaded = _composer().load([as_typed(f"label={text}")])
    assert OmegaConf.to_container(loaded, resolve=True)["label"] == text  # type: ignore[index, call-overload]


@pytest.mark.parametrize("text", ["off", "no", "010", "12:30", "1.10", "1e3", "+5", "true", "0x10", "2026-01-31"])
def test_a_plain_text_in_a_file_is_what_is_written(text: str) -> None:
    folder = Path("conf/ablation")
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        f"# @package _global_\nlabel: {text}\nexperiment:\n  question: {text}\nmodel: {{activation: relu}}\n"
    )
    config = compose([*TINY, "ablation=mine"])
    assert (config.label, config.experiment.question) == (text, text)
    assert compose([*TINY, f"label={text}"]).label == text


def test_a_sweep_in_a_file_takes_texts_and_numbers_as_they_are_written() -> None:
    folder = Path("conf/experiment")
    folder.mkdir(parents=True)
    body = (
        "# @package _global_\ndefaults: [override /model: tiny, override /data: random_tokens]\n"
        "hydra: {sweeper: {params: {experiment.question: 'Hello, I am', train.learning_rate: 1e-3, model.causal: off,"
        " seed: 7}}}\nexperiment: {name: mine}\ntrain: {budget: 2}\n"
    )
    (folder / "mine.yaml").write_text(body)
    (run,) = expand(["experiment=mine"]).runs
    assert run.config.experiment.question == "Hello, I am"
    assert (run.seed, run.config.model.causal, run.config.train.learning_rate) == (7, False, 1e-3)


def test_a_name_in_a_file_is_what_is_written() -> None:
    folder = Path("conf/ablation")
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("# @package _global_\nmodel:\n  activation: no\n")
    with refused("unknown-name", key="model.activation", value="no", file="conf/ablation/mine.yaml", line=3):
        compose([*TINY, "ablation=mine"])


@pytest.mark.parametrize("value", ["1e3", "+5", "True", "1.10"])
def test_a_name_is_quoted_back_as_typed(value: str) -> None:
    with refused("unknown-name", key="model.norm", value=value):
        compose([*TINY, f"model.norm={value}"])


def test_a_text_sweeps_where_every_member_is_quoted() -> None:
    runs = expand(
        [*TINY, 'output_dir="a,b"', 'experiment.question="Is it, then?"', "model.norm=rmsnorm,layernorm"]
    ).runs
    assert [run.config.experiment.question for run in runs] == ["Is it, then?"] * 2
    (override,) = _composer().parse(['data.prompt="Hello, I am", "Once"'])
    assert _composer().sweep_values(override) == ['"Hello, I am"', '"Once"']
    (override,) = _composer().parse(['data.prompt=choice("a,b","c")'])
    assert _composer().sweep_values(override) == ['"a,b"', '"c"']
    assert line_value('data.prompt="a",b') == '"a",b'


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("seed=010", "seed=10"),
        ("seed=0x10", "seed=16"),
        ("train.budget=0b11", "train.budget=3"),
        ("model.options.attention.window=08", "model.options.attention.window=8"),
        ("seed=1,02", "seed=2"),
    ],
)
def test_a_number_is_decimal(override: str, line: str) -> None:
    with refused("not-a-plain-decimal", suggestion=line):
        _composer().parse([override])
    _composer().parse([line])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("010", "model.n_layers=10"),
        ("12:30", None),
        ("0x10", "model.n_layers=16"),
        ("0o17", "model.n_layers=15"),
        ("1:02:03", None),
    ],
)
def test_a_number_in_a_file_is_decimal(text: str, line: str | None) -> None:
    folder = Path("conf/ablation")
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(f"# @package _global_\nmodel:\n  n_layers: {text}\n")
    if text == "0o17":  # text in YAML, and a number in Python
        with refused("wrong-type", key="model.n_layers", value=text, file="conf/ablation/mine.yaml", line=3):
            compose([*TINY, "ablation=mine"])
    else:
        place = "conf/ablation/mine.yaml, line 3: "
        with refused("not-a-plain-decimal", place=place, name="model.n_layers", value=text, suggestion=line):
            compose([*TINY, "ablation=mine"])
    with refused("not-a-plain-decimal", name="model.n_layers", value=text, suggestion=line):
        compose([*TINY, f"model.n_layers={text}"])


def test_an_open_interpolation_is_refused_with_the_line_that_works() -> None:
    with refused("interpolation-unreadable", key="label") as caught:
        _composer().parse(["label=costs ${5"])
    loaded = _composer().load([as_typed(f"label={caught.value.facts['literal']}")])
    assert OmegaConf.to_container(loaded, resolve=True)["label"] == "costs ${5"  # type: ignore[index, call-overload]


def test_an_interpolation_in_a_text_stays() -> None:
    assert compose([*TINY, "experiment.question=Is ${model.norm}, then, needed?"]).experiment.question == (
        "Is layernorm, then, needed?"
    )


def test_a_missing_mark_is_refused() -> None:
    with refused("question-marks"):
        _composer().parse(["label=???"])


def test_text_in_braces_has_quotes() -> None:
    with refused("text-in-braces", where="experiment.question"):
        _composer().parse(["experiment={question: 1e3}"])
    (override,) = _composer().parse(['experiment={question: "1e3"}'])
    assert override.value() == {"question": "1e3"}


def test_a_path_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert compose([*TINY, "output_dir=~/x"]).output_dir == "/somewhere/x"


@pytest.mark.parametrize("key", sorted(free_texts()))
def test_which_keys_hold_free_text(key: str) -> None:
    assert line_value(f"{key}=a, b [c] = d") == "a, b [c] = d"


@pytest.fixture
def texty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch_registry: None) -> str:
    """A plugin of each kind that has options, each with an option that holds text."""
    (tmp_path / "texty_plugin.py").write_text(
        "from torch import nn\n"
        "from gptlab.registry import register\n"
        "@register('norm', 'texty')\n"
        "class Texty(nn.Module):\n"
        "    'A norm with a word.'\n"
        "    def __init__(self, dim: int, word: str = 'a', eps: float = 1e-5, maybe: str | None = 'b') -> None:\n"
        "        super().__init__()\n"
        "    def forward(self, x):\n"
        "        return x\n"
        "@register('optimizer', 'texty')\n"
        "def optimizer(groups, word: str = 'a'):\n"
        "    'An optimizer with a word.'\n"
        "@register('data', 'texty', tokenizers=())\n"
        "def data(vocab_size, word: str = 'a', number: float = 1.0):\n"
        "    'Data with a word.'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "texty_plugin", raising=False)
    return "texty_plugin"


ODD = ["1e3", "1.10", "+5", "7", "true", "False", "inf", "nan", "1_000", "-1e-3"]


@pytest.mark.parametrize("text", [*ODD, "null", "off", "plain"])
def test_an_option_that_holds_text_keeps_it(texty: str, text: str) -> None:
    words = [*TINY, f"plugins=[{texty}]", "model.norm=texty", f"model.options.norm.word={text}"]
    config = compose(words)
    assert config.model.options["norm"]["word"] == text
    assert config.label == f"norm=texty+norm.word={text}"
    again = compose([*words[:-1], f"model.options.norm.word={in_quotes(text)}"])
    assert identity(again) == identity(config)


def test_what_is_no_text_is_read_as_ever(texty: str) -> None:
    words = [*TINY, f"plugins=[{texty}]", "model.norm=texty"]
    assert compose([*words, "model.options.norm.eps=1e-3"]).model.options == {"norm": {"eps": 1e-3}}
    assert compose([*words, "model.options.norm.maybe=null"]).model.options == {"norm": {"maybe": None}}
    assert compose([*words, "model.options.norm.maybe=1e3"]).model.options == {"norm": {"maybe": "1e3"}}
    with pytest.raises(ConfigError) as caught:
        compose([*words, "model.options.norm.wrod=1e3"])
    assert caught.value.code == "unknown-name"


@pytest.mark.parametrize("sweep", ["1e3,2e3,true", "choice(1e3,2e3,true)", "1e3, 2e3, true", "'1e3','2e3','true'"])
def test_a_sweep_over_texts_of_an_option(texty: str, sweep: str) -> None:
    words = [*TINY, f"plugins=[{texty}]", "model.norm=texty", f"model.options.norm.word={sweep}"]
    runs = expand(words).runs
    assert [run.config.model.options["norm"]["word"] for run in runs] == ["1e3", "2e3", "true"]
    assert [run.config.label for run in runs] == ["norm.word=1e3", "norm.word=2e3", "norm.word=true"]


def test_numbers_of_an_option_sweep_as_numbers(texty: str) -> None:
    words = [*TINY, f"plugins=[{texty}]", "model.norm=texty", "model.options.norm.eps=1e-3,1e-2"]
    assert [run.config.model.options["norm"]["eps"] for run in expand(words).runs] == [1e-3, 1e-2]


@pytest.mark.parametrize("text", [text for text in ODD if text != "1_000"] + ["off", "no"])
def test_a_file_keeps_the_text_of_an_option(texty: str, text: str) -> None:
    folder = Path("conf/ablation")
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "# @package _global_\n"
        f"model:\n  norm: texty\n  options: {{norm: {{word: {text}, eps: 1e-3}}}}\n"
        f"  layers: {{0: {{options: {{norm: {{word: '{text}x'}}}}}}}}\n"
    )
    config = compose([*TINY, f"plugins=[{texty}]", "ablation=mine"])
    assert config.model.options == {"norm": {"word": text, "eps": 1e-3}}
    over = compose([*TINY, f"plugins=[{texty}]", "ablation=mine", "model.options.norm.word=other"])
    assert over.model.options == {"norm": {"word": "other", "eps": 1e-3}}


def test_options_of_a_layer_and_of_the_optimizer_are_text_too(texty: str) -> None:
    words = [*TINY, f"plugins=[{texty}]", "model.norm=texty", "model.layers.0.options.norm.word=1e3"]
    words += ["train=small", "train.optimizer=texty", "train.options.optimizer.word=1e3"]
    config = compose(words)
    assert config.model.layers == {"0": {"options": {"norm": {"word": "1e3"}}}}
    assert config.train.options == {"optimizer": {"word": "1e3"}}


@pytest.mark.parametrize(
    ("override", "kept"),
    [
        ("++data.options.word=1e3", '++data.options.word="1e3"'),
        ("++data.options.number=1e3", "++data.options.number=1e3"),
        ("++data.options.other=1e3", "++data.options.other=1e3"),
        ("++train.options.optimizer.word=on", "++train.options.optimizer.word=on"),  # Hydra reads text there
        ("++train.options.optimizer.word=true", '++train.options.optimizer.word="true"'),
        ("++train.options.schedule.word=true", "++train.options.schedule.word=true"),
        ("++model.layers.0-1.options.norm.word=7", '++model.layers.0-1.options.norm.word="7"'),
        ("++model.options.position.word=7", "++model.options.position.word=7"),
        ("model.n_layers=7", "model.n_layers=7"),
    ],
)
def test_only_the_text_of_the_chosen_component_gets_quotes(texty: str, override: str, kept: str) -> None:
    composed = {
        "plugins": [texty],
        "data": {"source": "texty"},
        "train": {"optimizer": "texty", "schedule": "cosine"},
        "model": {"norm": "texty"},
    }
    assert quoted([override], composed) == (kept,)
    assert quoted([kept], composed) == (kept,)
