"""The schema on its own: types, ranges, flattening, what changed, and what a run's identity depends on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gptlab import identity as identity_of
from gptlab.config import (
    Config,
    DataConfig,
    GenerationProbe,
    GradientsProbe,
    ModelConfig,
    ProbesConfig,
    check_fields,
    flatten,
)
from gptlab.declare import to_config
from gptlab.declare.one_spelling import settle
from gptlab.identity import NOT_IDENTITY, delta, identity
from tests.support.refusals import refused

TINY = ModelConfig(vocab_size=256, context_length=64, emb_dim=32, n_heads=4, n_layers=2)


def fields_of(node: Any, path: str = "") -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
    """(dotted key, dataclass that holds it, field) of every leaf of the schema."""
    for field in dataclasses.fields(node):
        where, value = f"{path}.{field.name}" if path else field.name, getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, where)
        else:
            yield where, node, field


FIELDS = {where: (node, field) for where, node, field in fields_of(Config())}


def with_value(config: Any, key: str, value: Any) -> Any:
    """A copy of a dataclass tree with one dotted key set."""
    first, _, rest = key.partition(".")
    return replace(config, **{first: with_value(getattr(config, first), rest, value) if rest else value})


def another(where: str) -> Any:
    """A legal value for a key that is not its default."""
    node, field = FIELDS[where]
    now, rules = getattr(node, field.name), field.metadata
    special = {"layer_sizes": [3, 1], "inputs": [[1.0]], "targets": [[0.0]], "options": {"norm": {"eps": 0.5}}}
    if field.name in special:
        return special[field.name]
    if field.name == "labels":
        return {"relu": "ReLU"}
    if field.name == "launcher_options":
        return {"timeout_min": 5}
    if field.name == "kernels":
        return {"linear": "onednn"}
    if field.name == "layers":
        return {"0": {"norm": "identity"}}
    if field.name == "pattern":
        return {"kinds": {"bare": {"norm": "identity"}}, "order": ["bare"]}
    if "choices" in rules:
        return next(choice for choice in rules["choices"] if choice != now)
    if isinstance(now, bool):
        return not now
    if isinstance(now, list):
        return [7] if "int" in str(field.type) else ["another"]
    kind = str(field.type).split(" ")[0]
    if kind == "str":
        return f"{now}x"
    more = (now or 0) + {"int": 1, "float": 0.25}[kind]
    return more if more <= rules.get("high", more) else now / 2


# --- defaults and identity


def test_the_first_seven_keys_are_the_books() -> None:
    book = {"vocab_size": 50257, "context_length": 1024, "emb_dim": 768, "n_heads": 12, "n_layers": 12}
    first = list(flatten(ModelConfig()).items())[:7]
    assert dict(first) == book | {"drop_rate": 0.1, "qkv_bias": False}


# A stored run is found again by its identity. Whoever changes one of these also raises SCHEMA_VERSION.
@pytest.mark.parametrize(
    ("config", "golden"),
    [
        (Config(), "fc7c30c8d300d978f703bfd4319036fed7eed29649fa853c865c415df70c2273"),
        (
            Config(model=ModelConfig(activation="relu")),
            "098cba1ed956f51fa121bad6d0c680581b7f9cdbe43034d5af5cdf43c2c56d58",
        ),
        (
            Config(model=TINY, data=DataConfig("random_tokens", prompt="0 1"), seed=7, rng="global"),
            "345ef6736a640f3c8420022609ddc5a8c25f5599ae197d5bd975ef080cc39cc9",
        ),
    ],
    ids=["default", "relu", "tiny"],
)
def test_golden_identities(config: Config, golden: str) -> None:
    assert identity(settle(config)) == golden


@pytest.mark.parametrize("where", FIELDS)
def test_a_key_counts_for_identity_unless_it_cannot_change_a_result(where: str) -> None:
    changed = with_value(Config(), where, another(where))
    check_fields(changed)
    same = where in NOT_IDENTITY or where.split(".")[0] in NOT_IDENTITY
    assert (identity(changed) == identity(Config())) is same
    assert bool(delta(Config(), changed)) is not same


def test_identity_depends_on_the_schema_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(Config())
    monkeypatch.setattr(identity_of, "SCHEMA_VERSION", identity_of.SCHEMA_VERSION + 1)
    assert identity(Config()) != before


def shuffled(tree: dict[str, Any], draw: Callable[..., Any]) -> dict[str, Any]:
    keys = draw(st.permutations(sorted(tree)))
    return {k: shuffled(tree[k], draw) if isinstance(tree[k], dict) else tree[k] for k in keys}


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_identity_does_not_depend_on_the_order_of_keys(data: st.DataObject) -> None:
    plain = {
        "model": {"norm": "rmsnorm", "n_layers": 1, "options": {"norm": {"eps": 1e-6}, "init": {"tied_std": 1.0}}},
        "seed": 3,
        "rng": "global",
    }
    ordered, mixed = (merged(tree) for tree in (plain, shuffled(plain, data.draw)))
    assert identity(ordered) == identity(mixed)


def merged(tree: dict[str, Any]) -> Config:
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), tree))
    assert isinstance(config, Config)
    return config


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1000))
def test_a_whole_number_is_one_declaration_however_it_is_written(number: int) -> None:
    for key in ("expansion", "drop_rate"):
        forms = [merged({"model": {key: form}}) for form in (number, float(number), str(number), f"{number}.0")]
        assert len({identity(config) for config in forms}) == 1
        assert not delta(forms[0], forms[1])


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_seeds_have_identities_of_their_own(one: int, two: int) -> None:
    assert (identity(Config(seed=one)) == identity(Config(seed=two))) is (one == two)


def test_an_empty_options_node_is_none() -> None:
    empty, none = (Config(model=ModelConfig(options=options)) for options in ({"norm": {}}, {}))
    assert identity(empty) == identity(none)
    assert delta(empty, none) == {}


# --- flatten and delta


def test_flatten_names_leaves_by_their_dotted_keys() -> None:
    flat = flatten({"a": {"b": 1, "c": [{"d": 2}]}, "e": {}, "f": None})
    assert flat == {"a.b": 1, "a.c": [{"d": 2}], "e": {}, "f": None}
    assert set(flatten(Config())) == set(FIELDS)


def test_delta_is_what_changed_in_the_order_of_the_schema() -> None:
    variant = Config(model=ModelConfig(norm="rmsnorm", emb_dim=24, options={"norm": {"eps": 0.5}}), label="x")
    assert list(delta(Config(), variant).items()) == [
        ("model.emb_dim", (768, 24)),
        ("model.norm", ("layernorm", "rmsnorm")),
        ("model.options.norm.eps", (None, 0.5)),
    ]
    assert delta(variant, Config())["model.options.norm.eps"] == (0.5, None)


def test_delta_shows_a_probe_that_was_left_out() -> None:
    without = Config(probes=ProbesConfig(generation=None))
    changed = delta(Config(), without)
    inside = {f"probes.generation.{f.name}" for f in dataclasses.fields(GenerationProbe)}
    assert set(changed) == {"probes.generation", *inside}


# --- types


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"model": {"n_layers": 2.7}}, "model.n_layers"),
        ({"model": {"n_layers": "two"}}, "model.n_layers"),
        ({"model": {"n_layers": None}}, "model.n_layers"),
        ({"model": {"expansion": "wide"}}, "model.expansion"),
        ({"model": {"causal": "maybe"}}, "model.causal"),
        ({"model": {"layer_sizes": 3}}, "model.layer_sizes"),
        ({"model": {"layer_sizes": [3, "x"]}}, "model.layer_sizes[1]"),
        ({"model": {"options": {"norm": 3}}}, "model.options.norm"),
        ({"seed": True}, "seed"),
        ({"seed": None}, "seed"),
        ({"plugins": "my_module"}, "plugins"),
        ({"model": {"options": {"norm": {"eps": "???"}}}}, "model.options.norm.eps"),
    ],
    ids=str,
)
def test_a_wrong_type_is_refused_by_its_key(tree: dict[str, Any], key: str) -> None:
    missing = "???" in str(tree)
    with refused("value-missing" if missing else "wrong-type", key=key):
        to_config.from_omegaconf(tree)


@pytest.mark.parametrize("tree", [{"model": 3}, {"probes": {"gradients": 3}}], ids=str)
def test_a_value_for_a_whole_section_is_refused(tree: dict[str, Any]) -> None:
    with refused("wrong-type", key="model" if "model" in tree else "probes.gradients", value="3"):
        to_config.from_omegaconf(tree)


# --- ranges and choices


@pytest.mark.parametrize("where", [w for w, (_, f) in FIELDS.items() if {"low", "high", "above"} & f.metadata.keys()])
def test_every_range_is_enforced_at_its_edges(where: str) -> None:
    field = FIELDS[where][1]
    rules = field.metadata
    step = 1 if "int" in str(field.type) else 1e-9
    as_list = "list" in str(field.type)

    def check(value: float) -> None:
        check_fields(with_value(Config(), where, [value] if as_list else value))

    outside = [rules["low"] - step] if "low" in rules else []
    outside += [rules["high"] + step] if "high" in rules else []
    outside += [rules["above"], rules["above"] - step] if "above" in rules else []
    for value in outside:
        with refused("out-of-range", key=f"{where}[0]" if as_list else where, value=value):
            check(value)
    for edge in ("low", "high"):
        if edge in rules:
            check(rules[edge])


@pytest.mark.parametrize("where", [w for w, (_, f) in FIELDS.items() if "choices" in f.metadata])
def test_every_choice_is_enforced_and_the_closest_named(where: str) -> None:
    choices = FIELDS[where][1].metadata["choices"]
    for choice in choices:
        check_fields(with_value(Config(), where, choice))
    wrong = choices[0] + "x"
    with refused("unknown-name", key=where, value=wrong, suggestion=choices[0], allowed=sorted(choices)):
        check_fields(with_value(Config(), where, wrong))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "where", [w for w, (_, f) in FIELDS.items() if "float" in str(f.type) and "list" not in f.type]
)
def test_numbers_are_finite(where: str, value: float) -> None:
    with refused("not-finite", key=where):
        check_fields(with_value(Config(), where, value))


@pytest.mark.parametrize("value", [math.nan, [1.0, math.inf]], ids=str)
def test_numbers_of_options_are_finite(value: object) -> None:
    config = Config(model=ModelConfig(options={"norm": {"eps": value}}))
    with refused("not-finite", key="model.options.norm.eps"):
        check_fields(config)


@pytest.mark.parametrize(
    ("config", "code", "facts"),
    [
        (Config(seed=-1), "out-of-range", {"key": "seed", "value": -1, "low": 0, "high": 9223372036854775807}),
        (
            Config(seed=2**63),
            "out-of-range",
            {"key": "seed", "value": 9223372036854775808, "low": 0, "high": 9223372036854775807},
        ),
        (
            Config(model=ModelConfig(context_length=0)),
            "out-of-range",
            {"key": "model.context_length", "value": 0, "low": 1},
        ),
        (
            Config(model=ModelConfig(expansion=0.0)),
            "out-of-range",
            {"key": "model.expansion", "value": 0.0, "above": 0.0},
        ),
        (
            Config(model=ModelConfig(expansion=-1.0)),
            "out-of-range",
            {"key": "model.expansion", "value": -1.0, "above": 0.0},
        ),
        (Config(model=ModelConfig(expansion=math.nan)), "not-finite", {"key": "model.expansion"}),
        (
            Config(model=ModelConfig(drop_embedding=1.5)),
            "out-of-range",
            {"key": "model.drop_embedding", "value": 1.5, "low": 0.0, "high": 1.0},
        ),
        (
            Config(model=ModelConfig(layer_sizes=[3, 0])),
            "out-of-range",
            {"key": "model.layer_sizes[1]", "value": 0, "low": 1},
        ),
        (
            Config(probes=ProbesConfig(gradients=GradientsProbe(batch_size=0))),
            "out-of-range",
            {"key": "probes.gradients.batch_size", "value": 0, "low": 1},
        ),
        (
            Config(probes=ProbesConfig(generation=GenerationProbe(max_new_tokens=0))),
            "out-of-range",
            {"key": "probes.generation.max_new_tokens", "value": 0, "low": 1},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_messages_of_ranges(config: Config, code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        check_fields(config)
