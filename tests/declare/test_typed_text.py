"""Text is text, on the command line and in files: what is typed arrives, or the refusal has the line that works."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gptlab.declare import sources
from gptlab.declare.composer import Composer, compose
from gptlab.declare.typed_text import as_typed, free_texts, in_quotes
from gptlab.errors import ConfigError
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
