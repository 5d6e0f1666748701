"""Equal configs have equal ids, on any machine; different configs never do."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlab import compose
from gptlab import identity as hashing
from gptlab.config import NEW, Config, flatten
from gptlab.identity import NOT_IDENTITY, defaults_of_new, delta, has_identity, identity, identity_keys
from tests.support.refusals import refused

GOLDEN = Path(__file__).with_name("golden_ids.json")
ROOT = Path(__file__).parents[2]

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
keys = st.text(st.characters(exclude_characters="."), min_size=1)
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner, min_size=1), max_leaves=5)


def with_option(value: Any) -> Config:
    config = Config()
    config.model.options = {"norm": {"eps": value}}
    return config


def exact(value: Any) -> Any:
    """`value` such that == tells 1, 1.0 and True apart, and does not see the order of keys."""
    if isinstance(value, dict):
        return frozenset((key, exact(item)) for key, item in value.items())
    if isinstance(value, list):
        return ("list", *map(exact, value))
    return (type(value).__name__, repr(value))


@pytest.mark.parametrize("words", json.loads(GOLDEN.read_text()))
def test_golden_ids(words: str) -> None:
    """A changed id makes every stored run of this config a different run. Where a key or a default was meant to change,
    write the new ids with `python tests/planning/test_identity.py`."""
    assert identity(compose(words.split())) == json.loads(GOLDEN.read_text())[words]


def test_the_hash_itself_is_pinned() -> None:
    """What no new key can change: the same nested dict has this id for ever, by schema version."""
    plain = {"model": {"emb_dim": 32, "options": {"norm": {"eps": 1e-05}}}, "seed": 1, "label": "left out", "é": None}
    assert identity(plain, 1) == "ac67d57c591c7c591de2fd262d9286271c09801c8fd6dfaf919834f954b1f7bd"
    assert identity(plain, 2) == "4993d3e1a705a16e6bb418e67cf1f33977d03f26db1e255d1f1fb70ad2b427e5"


def test_ids_do_not_depend_on_the_process() -> None:
    code = "from gptlab.config import Config; from gptlab.identity import identity; print(identity(Config()))"
    environ = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == identity(Config())


@settings(deadline=None)
@given(values, values)
def test_two_values_have_one_id_only_if_they_are_the_same(one: Any, other: Any) -> None:
    same = identity(with_option(one)) == identity(with_option(other))
    assert same == (exact(one) == exact(other))


@settings(deadline=None)
@given(st.dictionaries(keys, values, min_size=1), st.randoms())
def test_the_order_of_keys_does_not_count(options: dict[str, Any], random: Any) -> None:
    shuffled = list(options.items())
    random.shuffle(shuffled)
    assert identity(with_option(options)) == identity(with_option(dict(shuffled)))


@settings(deadline=None)
@given(values)
def test_a_stored_config_keeps_its_id(value: Any) -> None:
    config = with_option(value)
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    assert identity(stored) == identity(config)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (1, "1"), (0, False), (0, None), (None, "null"), ("", None), ([], {}), ([1, 2], [2, 1]),
     ([1], 1), ({"a": {"b": 1}}, {"a": {"b": [1]}}), ("1e-3", 1e-3), ({}, None)],
)  # fmt: skip
def test_lookalikes_differ(one: Any, other: Any) -> None:
    assert identity(with_option(one)) != identity(with_option(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["model.options.norm.eps=1e-3"], ["model.options.norm.eps=0.001"]),
        (["model.expansion=4"], ["model.expansion=4.0"]),
        (["model.emb_dim=64", "seed=1"], ["seed=1", "model.emb_dim=64"]),
        (["probes.generation.prompt=Hello", "data.prompt=Hello"], ["data.prompt=Hello"]),
        (["label=a", "output_dir=b", "workers=3", "threads=2", "experiment.name=x"], []),
        (["model.options.norm={}"], []),
    ],
)
def test_two_spellings_of_one_config(one: list[str], other: list[str]) -> None:
    assert identity(compose(["model=tiny", *one])) == identity(compose(["model=tiny", *other]))


def test_what_is_left_open_differs_from_what_is_left_out() -> None:
    ids = {identity(compose(["model=tiny", *words])) for words in ([], ["probes.gradients=null"], ["seed=1"])}
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({1: "a"}, "key-not-canonical", {"where": "model.options.norm.eps", "name": 1}),
        ({"a.b": 1}, "key-not-canonical", {"where": "model.options.norm.eps", "name": "a.b"}),
        ({"a": float("nan")}, "not-finite", {"key": "model.options.norm.eps.a"}),
        ({"a": [{"b": float("inf")}]}, "not-finite", {"key": "model.options.norm.eps.a[0].b"}),
        ({"a": [{2: 1}]}, "key-not-canonical", {"where": "model.options.norm.eps.a[0]", "name": 2}),
    ],
)
def test_what_would_be_mixed_up_is_refused(options: dict[Any, Any], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        identity(with_option(options))


def test_a_default_is_part_of_the_identity() -> None:
    """Hashing only what differs from the defaults would reuse old results after a default has changed."""
    assert identity_keys(Config())["model.emb_dim"] == 768
    assert set(identity_keys(Config())) | set(NOT_IDENTITY) >= {key.split(".")[0] for key in flatten(Config())} - {
        "model", "data", "probes", "train", "evaluation",
    }  # fmt: skip


def test_every_key_that_is_left_out_exists_and_says_why() -> None:
    keys = flatten(Config())
    assert all(any(k == key or k.startswith(f"{key}.") for k in keys) and why for key, why in NOT_IDENTITY.items())


def test_a_difference_is_a_difference_of_ids() -> None:
    one, other = with_option(1), with_option(1.0)
    assert delta(one, other) == {"model.options.norm.eps": (1, 1.0)}
    assert delta(one, one) == {}


@dataclasses.dataclass
class Later:
    """A group that came whole."""

    depth: int = 3
    names: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Grown:
    """A schema to which keys were added."""

    old: int = 1
    key: float = dataclasses.field(default=0.5, metadata=NEW)
    group: Later = dataclasses.field(default_factory=Later, metadata=NEW)
    left_out: Later | None = dataclasses.field(default=None, metadata=NEW)


def test_the_keys_of_a_schema_that_are_new() -> None:
    assert defaults_of_new(Grown) == {"key": 0.5, "group.depth": 3, "group.names": [], "left_out": None}


def test_a_new_key_gives_no_old_run_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dataclasses.asdict(Config())
    monkeypatch.setattr(hashing, "defaults_of_new", lambda _: {"model.later": 0.5, "later.names": []})

    def grown(value: Any, names: list[str]) -> dict[str, Any]:
        return before | {"model": before["model"] | {"later": value}, "later": {"names": names}}

    assert identity(grown(0.5, [])) == identity(before)
    assert len({identity(grown(0.5, ["a"])), identity(grown(0.25, [])), identity(before)}) == 3
    assert identity_keys(grown(0.25, []))["model.later"] == 0.25


def test_a_run_of_an_older_schema_keeps_the_id_that_it_records() -> None:
    stored = dataclasses.asdict(Config())
    assert has_identity(stored, identity(stored, version=1)) and has_identity(stored, identity(stored))
    assert not has_identity(stored | {"seed": 1}, identity(stored, version=1))


if __name__ == "__main__":
    CONFIGS = ["", "model=tiny", "model=tiny ablation=[relu,post_ln] seed=7", "model=deep_mlp", "model=toy_lesson",
               "model=tiny probes=counting rng=global model.options.norm.eps=0.001"]  # fmt: skip
    GOLDEN.write_text(json.dumps({words: identity(compose(words.split())) for words in CONFIGS}, indent=1) + "\n")
