"""What one key means for another: refused pairs, one spelling for one model, and no key that is silently ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gptlab import registry, streams
from gptlab.config import (
    Config,
    DataConfig,
    GenerationProbe,
    GradientsProbe,
    ModelConfig,
    ParametersProbe,
    ProbesConfig,
    ShapesProbe,
    delta,
    identity,
)
from gptlab.declare import to_config
from gptlab.declare.one_spelling import GENERAL, settle
from gptlab.errors import ConfigError
from gptlab.model import build
from gptlab.model.gpt import GPT
from gptlab.probes.generation import greedy
from gptlab.registry import register

SMALL = ModelConfig(vocab_size=13, context_length=6, emb_dim=8, n_heads=2, n_layers=2)
DEEP = ModelConfig(architecture="deep_mlp", layer_sizes=[3, 3, 3, 2])
TOKENS = DataConfig("random_tokens", prompt="0 1 2")
VECTORS = DataConfig("vectors", inputs=[[1.0, 0.0, -1.0]], targets=[[0.0, 1.0]])


def probes(**changes: Any) -> ProbesConfig:
    # In a dataclass the prompt's default, ${data.prompt}, is not resolved.
    return replace(ProbesConfig(generation=GenerationProbe(TOKENS.prompt)), **changes)


def gpt(**changes: Any) -> Config:
    return Config(model=replace(SMALL, **changes), data=TOKENS, probes=probes())


def deep(**changes: Any) -> Config:
    return Config(model=replace(DEEP, **changes), data=VECTORS)


def settled(config: Config, *changed: str) -> Config:
    """`config` as a run gets it: settled and checked, where the user set the keys `changed`."""
    return to_config.settled_and_checked(config, frozenset(changed))


def refusal(config: Config, *changed: str) -> str:
    with pytest.raises(ConfigError) as caught:
        settled(config, *changed)
    message = str(caught.value)
    assert "\n" not in message and message.endswith((".", "]"))  # a line to type may stand last
    return message


def as_typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- nothing is silently ignored

MODELS = {
    "default": gpt(),
    "post": gpt(norm_placement="post"),
    "sandwich": gpt(norm_placement="sandwich"),
    "no_norm": gpt(norm_placement="none"),
    "identity_attention": gpt(attention="identity"),
    "identity_feed_forward": gpt(feed_forward="identity"),
    "dummy": gpt(attention="identity", feed_forward="identity", norm_placement="none", position="none"),
    "no_positions": gpt(position="none"),
    "sinusoidal": gpt(position="sinusoidal"),
    "tied": gpt(tie_weights=True),
    "gpt2_init": gpt(init="gpt2", qkv_bias=True),
    "no_shortcut": gpt(shortcut="none"),
    "own_shortcuts": gpt(shortcut_attention="scaled", shortcut_feed_forward="none"),
    "own_dropout": gpt(drop_embedding=0.0, drop_attention=0.2, drop_shortcut=0.3),
    "own_dropout_without_attention": gpt(attention="identity", drop_embedding=0.2, drop_shortcut=0.3),
    "no_blocks": gpt(n_layers=0),
    "no_blocks_post": gpt(n_layers=0, norm_placement="post"),
    "deep_mlp": deep(),
    "deep_mlp_no_shortcut": deep(shortcut="none", init="gpt2"),
}
SITES = {"drop_embedding": 0.5, "drop_attention": 0.5, "drop_shortcut": 0.5}


def builtin(slot: str) -> list[registry.Component]:
    mine = [component for component in registry.components(slot).values() if component.module.startswith("gptlab.")]
    return list({component.factory: component for component in reversed(mine)}.values())[::-1]  # synonyms once


def other_values(model: ModelConfig, key: str) -> list[Any]:
    """Legal values of a key that are not what it has, or would take, now. Every key of the schema has some."""
    now = getattr(model, key)
    rules = {field.name: field.metadata for field in dataclasses.fields(model)}[key]
    if key in ("shortcut_attention", "shortcut_feed_forward"):
        return [part.name for part in builtin("shortcut") if part.name != (now or model.shortcut)]
    slots = {registry.key_of(slot): slot for slot in registry.SLOTS}
    if key in slots:
        return [part.name for part in builtin(slots[key]) if part.name != now]
    if "choices" in rules:
        return [choice for choice in rules["choices"] if choice != now]
    if isinstance(now, bool):
        return [not now]
    if key in ("vocab_size", "context_length", "n_layers"):
        return [now + 1]
    known: dict[str, list[Any]] = {"emb_dim": [16, 6], "n_heads": [1], "drop_rate": [0.0, 0.5], "expansion": [2.0, 8.0]}
    known |= {site: [rate] for site, rate in SITES.items()} | {"layer_sizes": [[3, 3, 2]], "drop_feed_forward": [0.3]}
    known |= {"hidden_dim": [5], "hidden_multiple": [5], "head_dim": [6]}
    known |= {"n_kv_heads": [1], "layers": [{"0": {"shortcut": "scaled"}}, {"0-1": {"drop_shortcut": 0.4}}]}
    assert key in known, f"{key} is new: say here what else it can be"
    return known[key]


def evidence(config: Config) -> list[torch.Tensor]:
    """All that a model key can change: weights, what comes out in eval and in train mode, and what is generated."""
    model = build(config)
    found = [*model.state_dict().values()]
    if isinstance(model, GPT):
        length, vocab = config.model.context_length, config.model.vocab_size
        x = torch.arange(2 * length).view(2, length) % vocab
        with torch.no_grad():
            continued = greedy(model, list(range(10)), 3, length)
        found.append(torch.tensor(continued.margins))
    else:
        x = torch.tensor([[1.0, -2.0, 0.5], [0.1, 0.2, 0.3]])
    with torch.no_grad(), streams.forked(1, "dropout"):
        found += [model(x), model.train()(x)]
    return found


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, two, strict=True))


def refused(config: Config, key: str) -> str:
    """The message when the user may not set this key here; empty when they may."""
    try:
        settled(config, key)
    except ConfigError as error:
        return str(error)
    return ""


def exempt(model: ModelConfig, key: str) -> bool:
    # The sizes of the whole may be set for every variant of a sweep, also for one without attention.
    heads_unused = key == "n_heads" and (model.attention == "identity" or not model.n_layers)
    # Without blocks, pre and sandwich (a final norm) are alike, and so are post and none.
    return heads_unused or key == "norm_placement" and not model.n_layers


KEYS = [
    field.name for field in dataclasses.fields(ModelConfig) if field.name != "options"
]  # each option is tried below


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name, config in MODELS.items() for key in KEYS if not exempt(config.model, key)]
)
def test_a_key_changes_the_model_or_is_refused(name: str, key: str) -> None:
    config = MODELS[name]
    base = settled(config)
    for value in other_values(config.model, key):
        variant = replace(config, model=replace(config.model, **{key: value}))
        why = refused(variant, f"model.{key}")
        if why:  # and what is refused as unread is unread indeed
            assert "would be ignored" not in why or same(evidence(config), evidence(variant)), why
            continue
        ready = settled(variant)
        assert identity(ready) != identity(base)
        assert key in GENERAL or any(changed.startswith(f"model.{key}") for changed in delta(base, ready))
        assert not same(evidence(base), evidence(ready)), f"{key}={value} changes nothing, and nobody says so"


OTHER_OPTIONS: dict[str, Any] = {
    "attention.qk_norm": "rms", "attention.window": 2, "attention.scale": "inverse",
    "attention.implementation": "manual", "position.pairing": "interleaved", "init.base_width": 64, "norm.eps": 100.0,
}  # fmt: skip
FEED_FORWARDS = ", ".join(f"feed_forward={name}" for name in ("mlp", "glu", "geglu", "swiglu", "reglu", "bilinear"))


def all_options() -> Iterator[tuple[str, str, registry.Option]]:
    for slot in registry.SLOTS:
        for component in builtin(slot):
            for option in component.options:
                yield slot, component.name, option


@pytest.mark.parametrize(("slot", "name", "option"), list(all_options()), ids=lambda part: getattr(part, "name", part))
def test_an_option_changes_the_model(slot: str, name: str, option: registry.Option) -> None:
    now = option.default
    value = OTHER_OPTIONS.get(f"{slot}.{option.name}", (not now) if isinstance(now, bool) else None)
    value = (now or 0.0) * 2 + 0.25 if value is None else value
    base = gpt(**{slot: name}, tie_weights=option.name == "tied_std")
    variant = replace(base, model=replace(base.model, options={slot: {option.name: value}}))
    assert list(delta(settled(base), settled(variant))) == [f"model.options.{slot}.{option.name}"]
    # The two ways to compute attention differ in rounding at most, and that may be nothing.
    assert option.name == "implementation" or not same(evidence(base), evidence(variant))
    assert str(build(base)) != str(build(variant)) or option.name != "implementation"


# --- one spelling for one model


@pytest.mark.parametrize(
    "changes",
    [
        {"shortcut_attention": "add"},
        {"shortcut_feed_forward": "add"},
        {"drop_embedding": 0.1},
        {"drop_attention": 0.1, "drop_shortcut": 0.1},
        {"options": {"norm": {"eps": 1e-5}}},
        {"options": {"init": {"tied_std": None, "embedding_std": 1}, "norm": {}}},
    ],
    ids=str,
)
def test_what_holds_anyway_is_no_change(changes: dict[str, Any]) -> None:
    base, variant = settled(gpt()), settled(gpt(**changes), *(f"model.{key}" for key in changes))
    assert delta(base, variant) == {} and identity(base) == identity(variant)
    assert same(evidence(base), evidence(variant))


def test_options_are_stored_in_their_declared_type() -> None:
    whole, point = (settled(gpt(options={"norm": {"eps": eps}})) for eps in (1, 1.0))
    assert repr(whole.model.options) == "{'norm': {'eps': 1.0}}"
    assert identity(whole) == identity(point)


def test_settling_twice_is_settling_once_and_leaves_its_input_alone() -> None:
    config = gpt(options={"norm": {"eps": 1}, "init": {"tied_std": None}}, drop_attention=0.1)
    before = repr(config)
    once = settle(config)
    assert repr(config) == before
    assert settle(once) == once


def test_open_values_are_written_out() -> None:
    config = settled(Config(probes=probes()))
    assert config.probes.parameters == ParametersProbe(context=1024)
    assert config.probes.shapes == ShapesProbe(context=4)
    assert config.probes.gradients == GradientsProbe(context=64)
    assert config.data.tokenizer == "gpt2"
    short = settle(gpt(context_length=3))
    assert [getattr(short.probes, name).context for name in ("parameters", "shapes", "gradients")] == [3, 3, 3]
    assert short.data.tokenizer == "ids"


# --- names and sizes


@pytest.mark.parametrize("slot", registry.SLOTS)
def test_an_unknown_component_is_refused_with_the_closest(slot: str) -> None:
    name = next(iter(registry.components(slot)))
    key = registry.key_of(slot)
    words = f"model.{key}: {name[:-1]!r} does not exist. Did you mean {name!r}? Allowed: "
    assert refusal(gpt(**{key: name[:-1]})).startswith(words)
    # also in a place that this model does not have
    elsewhere = gpt(feed_forward="identity", norm_placement="none", n_layers=0) if slot != "feed_forward" else gpt()
    assert refusal(replace(elsewhere, model=replace(elsewhere.model, **{key: name[:-1]}))).startswith(words)


@pytest.mark.parametrize("key", ["shortcut_attention", "shortcut_feed_forward"])
def test_an_unknown_shortcut_is_named_by_its_own_key(key: str) -> None:
    assert refusal(gpt(**{key: "scalde"})).startswith(f"model.{key}: 'scalde' does not exist. Did you mean 'scaled'?")


@pytest.mark.parametrize(
    ("emb_dim", "n_heads", "near"), [(8, 3, 2), (8, 7, 8), (768, 7, 6), (768, 13, 12), (8, 100, 8), (7, 3, 1)]
)
def test_heads_must_divide_the_width(emb_dim: int, n_heads: int, near: int) -> None:
    assert refusal(gpt(emb_dim=emb_dim, n_heads=n_heads)) == (
        f"model.n_heads={n_heads}: model.emb_dim={emb_dim} is not divisible by it. "
        f"Allowed: divisors of {emb_dim}; the closest is {near}."
    )
    settled(gpt(emb_dim=emb_dim, n_heads=near))
    settled(gpt(emb_dim=emb_dim, n_heads=n_heads, attention="identity"))  # nobody divides


# --- keys that nothing would read


@pytest.mark.parametrize(
    ("config", "key", "why"),
    [
        (gpt(norm_placement="none", norm="rmsnorm"), "norm", "norm_placement=none leaves every norm out"),
        (gpt(n_layers=0, norm_placement="post", norm="rmsnorm"), "norm", "norm_placement=post leaves every norm out"),
        (gpt(feed_forward="identity", activation="relu"), "activation", "only feed_forward=mlp would read it"),
        (gpt(feed_forward="identity", expansion=2.0), "expansion", f"only {FEED_FORWARDS} would read it"),
        (
            gpt(attention="identity", causal=False),
            "causal",
            "only attention=multi_head, position=alibi would read it",
        ),
        (gpt(attention="identity", qkv_bias=True), "qkv_bias", "only attention=multi_head would read it"),
        (gpt(attention="identity", drop_attention=0.5), "drop_attention", "only attention=multi_head would read it"),
        (gpt(**SITES), "drop_rate", "every dropout site has its own rate"),
        (gpt(attention="identity", **SITES), "drop_rate", "every dropout site has its own rate"),
        (
            gpt(shortcut_attention="none", shortcut_feed_forward="scaled"),
            "shortcut",
            "shortcut_attention and shortcut_feed_forward are both set",
        ),
        (gpt(n_layers=0, attention="identity"), "attention", "n_layers=0 leaves no block"),
        (gpt(n_layers=0, shortcut="none"), "shortcut", "n_layers=0 leaves no block"),
        (gpt(n_layers=0, drop_shortcut=0.5), "drop_shortcut", "n_layers=0 leaves no block"),
    ],
    ids=lambda part: part if isinstance(part, str) and " " not in part else "",
)
def test_a_key_that_nothing_reads_is_refused_when_the_user_set_it(config: Config, key: str, why: str) -> None:
    value = as_typed(getattr(config.model, key))
    assert refusal(config, "model.emb_dim", f"model.{key}") == f"model.{key}={value}: would be ignored, because {why}."
    settled(config, "model.emb_dim")  # a preset may say more than one of its variants reads


@pytest.mark.parametrize(
    "key", ["n_heads", "emb_dim", "vocab_size", "norm", "attention", "causal", "drop_rate", "tie_weights", "position"]
)
def test_deep_mlp_reads_its_own_keys_only(key: str) -> None:
    assert f"model.{key}={as_typed(getattr(DEEP, key))}: would be ignored" in refusal(deep(), f"model.{key}")


def test_the_first_refused_key_does_not_depend_on_the_order_of_a_set() -> None:
    config = gpt(attention="identity", qkv_bias=True, causal=False)
    assert refusal(config, "model.qkv_bias", "model.causal").startswith("model.causal")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("probes.gradients.batch_size", "data.source=vectors has one fixed batch"),
        ("probes.gradients.context", "data.source=vectors has one fixed batch"),
        ("probes.parameters.context", "architecture=deep_mlp has no context"),
        ("probes.shapes.context", "architecture=deep_mlp has no context"),
        ("probes.generation.prompt", "architecture=deep_mlp has no tokens to continue"),
        ("probes.generation.max_new_tokens", "architecture=deep_mlp has no tokens to continue"),
    ],
)
def test_probes_of_vectors(key: str, words: str) -> None:
    assert refusal(deep(), key) == f"{key}: would be ignored, because {words}."
    settled(deep(), "probes.shapes.batch_size", "probes.gradients.dropout", "probes.generation")


def test_a_prompt_that_no_probe_continues_is_refused() -> None:
    without = replace(gpt(), probes=probes(generation=None))
    assert refusal(without, "data.prompt") == "data.prompt: would be ignored, because probes.generation is left out."
    own = replace(gpt(), probes=probes(generation=GenerationProbe(prompt="3")))
    assert refusal(own, "data.prompt") == "data.prompt: would be ignored, because probes.generation.prompt is set."
    settled(gpt(), "data.prompt")


# --- options


def test_options_of_an_unknown_slot() -> None:
    assert refusal(gpt(options={"nrom": {}})).startswith("model.options: 'nrom' does not exist.")
    assert refusal(gpt(options={"nrom": {"eps": 1.0}})).startswith(
        "model.options: 'nrom' does not exist. Did you mean 'n"
    )


@pytest.mark.parametrize(
    ("config", "slot", "option"),
    [
        (gpt(norm_placement="none"), "norm", "eps"),
        (gpt(n_layers=0, norm_placement="post"), "norm", "eps"),
        (gpt(feed_forward="identity"), "activation", "x"),
        (gpt(n_layers=0), "shortcut", "scale"),
        (deep(), "norm", "eps"),
        (deep(), "position", "base"),
    ],
)
def test_options_of_a_slot_that_the_model_lacks(config: Config, slot: str, option: str) -> None:
    config = replace(config, model=replace(config.model, options={slot: {option: 1.0}}))
    assert refusal(config) == f"model.options.{slot}: this model has no {slot}, so the options would be ignored."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm": {"esp": 1.0}}, "model.options.norm (norm=layernorm): 'esp' does not exist. Did you mean 'eps'? "),
        (
            {"shortcut": {"scale": 1.0}},
            "model.options.shortcut (shortcut=add): 'scale' does not exist. Allowed: nothing.",
        ),
        ({"norm": {"eps": "small"}}, "model.options.norm.eps=small: must be a number."),
        ({"init": {"scale_residual": True}}, "model.options.init (init=torch): 'scale_residual' does not exist. "),
    ],
    ids=str,
)
def test_options_that_the_component_does_not_take(changes: dict[str, dict[str, Any]], words: str) -> None:
    assert refusal(gpt(options=changes)).startswith(words)


@pytest.mark.usefixtures("scratch_registry")
def test_two_kinds_of_shortcut_share_one_options_node() -> None:
    @register("shortcut", "test_gated")
    class Gated(nn.Module):
        """x + gate * branch."""

        def __init__(self, gate: float = 0.0) -> None:
            super().__init__()
            self.gate = gate

        def forward(self, x: torch.Tensor, branch: torch.Tensor) -> torch.Tensor:
            return x + self.gate * branch

    both = gpt(shortcut_attention="test_gated", shortcut_feed_forward="scaled")
    both.model.options = {"shortcut": {"gate": 0.25, "scale": 2}}
    block = build(settled(both)).trf_blocks[0]
    assert (block.shortcut_att.gate, block.shortcut_ff.scale) == (0.25, 2.0)
    both.model.options = {"shortcut": {"gat": 0.25, "scale": 2}}
    assert "(shortcut=test_gated): 'gat' does not exist. Did you mean 'gate'?" in refusal(both)


def test_one_scaled_shortcut_takes_the_option() -> None:
    block = build(settled(gpt(shortcut_feed_forward="scaled", options={"shortcut": {"scale": 0.1}}))).trf_blocks[0]
    assert block.shortcut_ff.scale == 0.1


# --- models and their data


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (gpt(layer_sizes=[3, 2]), "model.layer_sizes: only architecture=deep_mlp reads it."),
        (
            deep(layer_sizes=None),
            "model.layer_sizes: architecture=deep_mlp needs at least an input and an output size.",
        ),
        (deep(layer_sizes=[3]), "model.layer_sizes: architecture=deep_mlp needs at least an input and an output size."),
        (
            replace(gpt(), data=VECTORS),
            "data.source=vectors: architecture=gpt takes token ids, not vectors.",
        ),
        (
            replace(deep(), data=TOKENS),
            "data.source=random_tokens: architecture=deep_mlp takes vectors; use data=five_layer_input.",
        ),
        (
            replace(deep(), data=replace(VECTORS, inputs=[[1.0]])),
            "data.inputs: rows must hold 3 numbers, as model.layer_sizes=[3, 3, 3, 2] says.",
        ),
        (
            replace(deep(), data=replace(VECTORS, targets=[[1.0]])),
            "data.targets: rows must hold 2 numbers, as model.layer_sizes=[3, 3, 3, 2] says.",
        ),
    ],
    ids=lambda part: "" if isinstance(part, Config) else part[:40],
)
def test_models_and_data_that_do_not_fit(config: Config, words: str) -> None:
    assert refusal(config) == words


@pytest.mark.parametrize("probe", ["parameters", "shapes", "gradients"])
def test_contexts_longer_than_the_model_takes(probe: str) -> None:
    kinds = {"parameters": ParametersProbe, "shapes": ShapesProbe, "gradients": GradientsProbe}
    config = replace(gpt(), probes=probes(**{probe: kinds[probe](context=7)}))
    assert refusal(config) == f"probes.{probe}.context=7: longer than model.context_length=6."
    settled(replace(gpt(), probes=probes(**{probe: kinds[probe](context=6)})))


# --- tokens


def text(tokenizer: str, words: str, prompt: str = "a", **model: Any) -> Config:
    config = Config(model=replace(SMALL, **model), data=DataConfig("string", tokenizer, prompt=prompt, text=words))
    return replace(config, probes=probes(generation=GenerationProbe(prompt)))


def test_an_empty_prompt() -> None:
    message = refusal(text("byte", "a" * 100, prompt="", vocab_size=256))
    assert message == "probes.generation.prompt='': is empty. A prompt needs at least one token."


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            text("byte", "\t" * 100, prompt="a"),
            "probes.generation.prompt='a': token id 97 (data.tokenizer=byte) is outside ",
        ),
        (text("byte", "a" * 100, prompt="\t"), "data.text: token id 97 (data.tokenizer=byte) is outside "),
        (
            text("char", "abcdefghijklmnop" * 9),
            "data.text: has 16 distinct characters (data.tokenizer=char), more than ",
        ),
    ],
    ids=["prompt", "text", "characters"],
)
def test_ids_outside_the_vocabulary(config: Config, words: str) -> None:
    message = refusal(config)
    assert message.startswith(words)
    assert "model.vocab_size=13" in message


def test_ids_outside_the_vocabulary_of_a_prompt_in_gpt2() -> None:
    config = text("gpt2", "unread", prompt="Hello")
    message = refusal(replace(config, probes=replace(config.probes, gradients=None, activations=None)))
    assert message.startswith("probes.generation.prompt='Hello': token id 15496 (data.tokenizer=gpt2) is outside ")


def test_random_tokens_have_prompts_of_ids() -> None:
    outside = replace(gpt(), probes=probes(generation=GenerationProbe("0 13")))
    assert refusal(outside).startswith("probes.generation.prompt='0 13': token id 13 (data.tokenizer=ids) is outside ")
    words = replace(gpt(), probes=probes(generation=GenerationProbe("Hello")))
    assert refusal(words).startswith("probes.generation.prompt='Hello': ")


def test_too_little_text() -> None:
    enough, short = ("ab" * 7)[: 2 * 6 + 1], ("ab" * 6)[: 2 * 6]
    settled(text("char", enough))
    assert refusal(text("char", short)).startswith("data.text: 12 tokens (data.tokenizer=char), but 13 are needed. ")
    unread = replace(
        text("char", short), probes=probes(gradients=None, activations=None, generation=GenerationProbe("a"))
    )
    settled(unread)


def test_a_missing_file_is_found_before_anything_runs(tmp_path: Path) -> None:
    config = replace(gpt(), data=DataConfig("file", "byte", prompt="a", path=str(tmp_path / "no.txt")))
    assert refusal(config).startswith(f"data.path={tmp_path}/no.txt: no such file.")


# --- from_omegaconf: keys at every level


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"sede": 1}, "config: 'sede' does not exist. Did you mean 'seed'? Nearest of "),
        ({"modle": {}}, "config: 'modle' does not exist. Did you mean 'model'? Nearest of "),
        ({"model": {"emb_dmi": 1}}, "model: 'emb_dmi' does not exist. Did you mean 'emb_dim'? Nearest of "),
        (
            {"probes": {"gradient": {}}},
            "probes: 'gradient' does not exist. Did you mean 'gradients'? Allowed: activations, generation, ",
        ),
        ({"probes": {"shapes": {"contxt": 1}}}, "probes.shapes: 'contxt' does not exist. Did you mean 'context'? "),
        (
            {"data": {"tokeniser": "byte"}},
            "data: 'tokeniser' does not exist. Did you mean 'tokenizer'? Allowed: inputs, ",
        ),
        (
            {"experiment": {"nmae": "x"}},
            "experiment: 'nmae' does not exist. Did you mean 'name'? Allowed: analysis, baseline, ",
        ),
        ({"zzz": 1}, "config: 'zzz' does not exist. There are "),
    ],
    ids=str,
)
def test_unknown_keys_are_refused_with_the_closest(tree: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        to_config.from_omegaconf(tree)
    assert str(caught.value).startswith(words)


def test_from_omegaconf_settles_and_checks() -> None:
    tree = {"model": {"attention": "identity", "qkv_bias": True}, "data": {"prompt": "Hello"}, "hydra": {"job": 1}}
    config = to_config.from_omegaconf(tree)
    assert config.probes.generation is not None and config.probes.generation.prompt == "Hello"
    assert config.data.tokenizer == "gpt2"
    with pytest.raises(ConfigError, match=r"^model\.qkv_bias=true: would be ignored"):
        to_config.from_omegaconf(tree, changed={"model.qkv_bias"})
    with pytest.raises(ConfigError, match=r"^plugins: no module named 'test_nowhere'"):
        to_config.from_omegaconf(tree | {"plugins": ["test_nowhere"]})


@pytest.mark.usefixtures("scratch_registry")
def test_what_a_plugin_asks_for_is_read() -> None:
    @register("attention", "test_activated")
    class Activated(nn.Module):
        """An activation in place of attention."""

        def __init__(self, emb_dim: int, activation: nn.Module, expansion: float) -> None:
            super().__init__()
            self.act = activation

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(x)

    config = gpt(attention="test_activated", feed_forward="identity", activation="relu", expansion=2.0)
    settled(config, "model.activation", "model.expansion")
    assert "attention=test_activated, feed_forward=mlp, feed_forward=glu" in refusal(
        gpt(attention="identity", feed_forward="identity", expansion=2.0), "model.expansion"
    )
