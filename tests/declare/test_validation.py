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
from gptlab.check.case import Case
from gptlab.config import (
    Config,
    DataConfig,
    GenerationProbe,
    GradientsProbe,
    ModelConfig,
    ParametersProbe,
    ProbesConfig,
    ShapesProbe,
)
from gptlab.declare import to_config
from gptlab.declare.one_spelling import GENERAL, settle
from gptlab.errors import ConfigError, GptlabError
from gptlab.identity import delta, identity
from gptlab.model import build
from gptlab.model.gpt import GPT
from gptlab.probes.generation import greedy
from gptlab.registry import register
from tests.support.refusals import check_refusal, refused

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


def refusal(config: Config, *changed: str) -> GptlabError:
    with pytest.raises(GptlabError) as caught:
        settled(config, *changed)
    return caught.value


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
    known |= {"embedding_multiplier": [3.0], "loops": [2]}
    known |= {"pattern": [{"kinds": {"a": {"shortcut": "scaled"}}, "order": ["a"]}]}
    known |= {"n_kv_heads": [1], "layers": [{"0": {"shortcut": "scaled"}}, {"0-1": {"drop_shortcut": 0.4}}]}
    assert key in known, f"{key} is new: say here what else it can be"
    return known[key]


def evidence(config: Config) -> list[torch.Tensor]:
    """All that a model key can change: weights, outputs in eval and in train mode, the loss, and what is generated."""
    model = build(config)
    found = [*model.state_dict().values()]
    if isinstance(model, GPT):
        length, vocab = config.model.context_length, config.model.vocab_size
        x = torch.arange(2 * length).view(2, length) % vocab
        with torch.no_grad():
            continued = greedy(model, list(range(10)), 3, length)
        found += [torch.tensor(continued.margins), Case(config).loss(model, x).detach()]
    else:
        x = torch.tensor([[1.0, -2.0, 0.5], [0.1, 0.2, 0.3]])
    with torch.no_grad(), streams.forked(1, "dropout"):
        found += [model(x), model.train()(x)]
    return found


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, two, strict=True))


def refusal_of(config: Config, key: str) -> str:
    """The code of the error when the user may not set this key here; empty when they may."""
    try:
        settled(config, key)
    except ConfigError as error:
        return error.code
    return ""


def exempt(model: ModelConfig, key: str) -> bool:
    # The sizes of the whole may be set for every variant of a sweep, also for one without attention.
    heads_unused = key == "n_heads" and (model.attention == "identity" or not model.n_layers)
    # Without blocks, pre and sandwich (a final norm) are alike, and so are post and none.
    return heads_unused or key == "norm_placement" and not model.n_layers


ELSEWHERE = {"options", "weights", "weights_sha256"}  # each option is tried below, files in tests/weights
KEYS = [field.name for field in dataclasses.fields(ModelConfig) if field.name not in ELSEWHERE]


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name, config in MODELS.items() for key in KEYS if not exempt(config.model, key)]
)
def test_a_key_changes_the_model_or_is_refused(name: str, key: str) -> None:
    config = MODELS[name]
    base = settled(config)
    for value in other_values(config.model, key):
        variant = replace(config, model=replace(config.model, **{key: value}))
        code = refusal_of(variant, f"model.{key}")
        if code:  # and what is refused as unread is unread indeed
            assert code != "model-key-unread" or same(evidence(config), evidence(variant)), (key, value)
            continue
        ready = settled(variant)
        assert identity(ready) != identity(base)
        place = {"pattern": "layers"}.get(key, key)  # which it comes to
        assert key in GENERAL or any(changed.startswith(f"model.{place}") for changed in delta(base, ready))
        assert not same(evidence(base), evidence(ready)), f"{key}={value} changes nothing, and nobody says so"


OTHER_OPTIONS: dict[str, Any] = {
    "attention.qk_norm": "rms", "attention.window": 2, "attention.scale": "inverse",
    "attention.implementation": "manual", "attention.gate": "headwise", "position.fraction": 0.5,
    "position.scaling": "ntk", "position.original_context": 200, "position.beta_fast": 2.0,
    "position.beta_slow": 4.0, "position.high_freq_factor": 8.0,
    "attention.value_residual": "learned", "attention.every": 1,
    "feed_forward.expert": "swiglu", "feed_forward.router": "sigmoid", "feed_forward.n_experts": 3,
    "feed_forward.top_k": 3, "feed_forward.shared": 2,
    "attention.kv_latent": 5, "attention.query_latent": 6, "attention.rope_dim": 4, "attention.value_dim": 3,
    "position.pairing": "interleaved", "init.base_width": 64, "norm.eps": 100.0,
}  # fmt: skip
_YARN = {"scaling": "yarn", "factor": 2.0, "original_context": 2000}
_LLAMA3 = {**_YARN, "scaling": "llama3"}
STANDS_ON: dict[str, dict[str, Any]] = {  # options that mean something only beside others
    "position.scaling": {"scaling": "linear", "factor": 2.0}, "position.factor": {"scaling": "linear", "factor": 2.0},
    "position.low_freq_factor": _LLAMA3, "position.high_freq_factor": _LLAMA3,
    **{f"position.{name}": _YARN for name in ("original_context", "beta_fast", "beta_slow", "attention_factor")},
}  # fmt: skip
GATED_OR_NOT = ("mlp", "glu", "geglu", "swiglu", "reglu", "geglu_tanh", "relu2_glu", "bilinear", "moe")
FEED_FORWARDS = [f"feed_forward={name}" for name in GATED_OR_NOT]
ATTENTIONS = [f"attention={name}" for name in ("multi_head", "shared_keys_values", "differential", "latent")]


def all_options() -> Iterator[tuple[str, str, registry.Option]]:
    for slot in registry.SLOTS:
        for component in builtin(slot):
            for option in component.options:
                yield slot, component.name, option


@pytest.mark.parametrize(("slot", "name", "option"), list(all_options()), ids=lambda part: getattr(part, "name", part))
def test_an_option_changes_the_model(slot: str, name: str, option: registry.Option) -> None:
    other = STANDS_ON.get(f"{slot}.{option.name}", {})
    now = other.get(option.name, option.default)
    value = OTHER_OPTIONS.get(f"{slot}.{option.name}", (not now) if isinstance(now, bool) else None)
    value = (now or 0.0) * 2 + 0.25 if value is None else value
    base = gpt(**{registry.key_of(slot): name}, tie_weights=option.name == "tied_std")
    base = replace(base, model=replace(base.model, options={slot: other} if other else {}))
    variant = replace(base, model=replace(base.model, options={slot: {**other, option.name: value}}))
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
    facts = {"key": f"model.{key}", "value": name[:-1], "suggestion": name}
    check_refusal(refusal(gpt(**{key: name[:-1]})), "unknown-name", **facts)
    # also in a place that this model does not have
    elsewhere = gpt(feed_forward="identity", norm_placement="none", n_layers=0) if slot != "feed_forward" else gpt()
    wrong = replace(elsewhere, model=replace(elsewhere.model, **{key: name[:-1]}))
    check_refusal(refusal(wrong), "unknown-name", **facts)


@pytest.mark.parametrize("key", ["shortcut_attention", "shortcut_feed_forward"])
def test_an_unknown_shortcut_is_named_by_its_own_key(key: str) -> None:
    facts = {"key": f"model.{key}", "value": "scalde", "suggestion": "scaled"}
    check_refusal(refusal(gpt(**{key: "scalde"})), "unknown-name", **facts)


@pytest.mark.parametrize(
    ("emb_dim", "n_heads", "near"), [(8, 3, 2), (8, 7, 8), (768, 7, 6), (768, 13, 12), (8, 100, 8), (7, 3, 1)]
)
def test_heads_must_divide_the_width(emb_dim: int, n_heads: int, near: int) -> None:
    facts = {"key": "model.n_heads", "value": n_heads, "emb_dim": emb_dim, "suggestion": near}
    check_refusal(refusal(gpt(emb_dim=emb_dim, n_heads=n_heads)), "heads-divide", **facts)
    settled(gpt(emb_dim=emb_dim, n_heads=near))
    settled(gpt(emb_dim=emb_dim, n_heads=n_heads, attention="identity"))  # nobody divides


# --- keys that nothing would read


@pytest.mark.parametrize(
    ("config", "key", "cause", "readers"),
    [
        (gpt(norm_placement="none", norm="rmsnorm"), "norm", "norm-placement", []),
        (gpt(n_layers=0, norm_placement="post", norm="rmsnorm"), "norm", "norm-placement", []),
        (gpt(feed_forward="identity", activation="relu"), "activation", "other-parts", ["feed_forward=mlp"]),
        (gpt(feed_forward="identity", expansion=2.0), "expansion", "other-parts", FEED_FORWARDS),
        (
            gpt(attention="identity", causal=False),
            "causal",
            "other-parts",
            [*ATTENTIONS, "position=alibi"],
        ),
        (gpt(attention="identity", qkv_bias=True), "qkv_bias", "other-parts", ATTENTIONS),
        (gpt(attention="identity", drop_attention=0.5), "drop_attention", "other-parts", ATTENTIONS),
        (gpt(**SITES), "drop_rate", "own-rates", []),
        (gpt(attention="identity", **SITES), "drop_rate", "own-rates", []),
        (
            gpt(shortcut_attention="none", shortcut_feed_forward="scaled"),
            "shortcut",
            "own-shortcuts",
            [],
        ),
        (gpt(n_layers=0, attention="identity"), "attention", "no-block", []),
        (gpt(n_layers=0, shortcut="none"), "shortcut", "no-block", []),
        (gpt(n_layers=0, drop_shortcut=0.5), "drop_shortcut", "no-block", []),
    ],
    ids=lambda part: part if isinstance(part, str) and " " not in part else "",
)
def test_a_key_that_nothing_reads_is_refused_when_the_user_set_it(
    config: Config, key: str, cause: str, readers: list[str]
) -> None:
    facts = {"key": f"model.{key}", "value": getattr(config.model, key), "cause": cause, "readers": readers}
    check_refusal(refusal(config, "model.emb_dim", f"model.{key}"), "model-key-unread", **facts)
    settled(config, "model.emb_dim")  # a preset may say more than one of its variants reads


@pytest.mark.parametrize(
    "key", ["n_heads", "emb_dim", "vocab_size", "norm", "attention", "causal", "drop_rate", "tie_weights", "position"]
)
def test_deep_mlp_reads_its_own_keys_only(key: str) -> None:
    facts = {"key": f"model.{key}", "value": getattr(DEEP, key), "cause": "architecture"}
    check_refusal(refusal(deep(), f"model.{key}"), "model-key-unread", **facts)


def test_the_first_refused_key_does_not_depend_on_the_order_of_a_set() -> None:
    config = gpt(attention="identity", qkv_bias=True, causal=False)
    assert refusal(config, "model.qkv_bias", "model.causal").key == "model.causal"


@pytest.mark.parametrize(
    "key",
    [
        "probes.gradients.batch_size",
        "probes.gradients.context",
        "probes.parameters.context",
        "probes.shapes.context",
        "probes.generation.prompt",
        "probes.generation.max_new_tokens",
    ],
)
def test_probes_of_vectors(key: str) -> None:
    check_refusal(refusal(deep(), key), "model-key-ignored", key=key)
    settled(deep(), "probes.shapes.batch_size", "probes.gradients.dropout", "probes.generation")


def test_a_prompt_that_no_probe_continues_is_refused() -> None:
    without = replace(gpt(), probes=probes(generation=None))
    check_refusal(refusal(without, "data.prompt"), "model-key-ignored", key="data.prompt")
    own = replace(gpt(), probes=probes(generation=GenerationProbe(prompt="3")))
    check_refusal(refusal(own, "data.prompt"), "model-key-ignored", key="data.prompt")
    settled(gpt(), "data.prompt")


# --- options


def test_options_of_an_unknown_slot() -> None:
    facts = {"key": "model.options", "value": "nrom", "suggestion": "norm"}
    for options in ({"nrom": {}}, {"nrom": {"eps": 1.0}}):
        check_refusal(refusal(gpt(options=options)), "unknown-name", **facts)


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
    check_refusal(refusal(config), "options-of-absent-slot", where="model.options", slot=slot)


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        (
            {"norm": {"esp": 1.0}},
            "unknown-name",
            {"key": "model.options.norm (norm=layernorm)", "value": "esp", "suggestion": "eps"},
        ),
        (
            {"shortcut": {"scale": 1.0}},
            "unknown-name",
            {"key": "model.options.shortcut (shortcut=add)", "value": "scale"},
        ),
        ({"norm": {"eps": "small"}}, "wrong-type", {"key": "model.options.norm.eps", "value": "small"}),
        (
            {"init": {"scale_residual": True}},
            "unknown-name",
            {"key": "model.options.init (init=torch)", "value": "scale_residual"},
        ),
    ],
    ids=str,
)
def test_options_that_the_component_does_not_take(
    changes: dict[str, dict[str, Any]], code: str, facts: dict[str, Any]
) -> None:
    check_refusal(refusal(gpt(options=changes)), code, **facts)


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
    check_refusal(
        refusal(both),
        "unknown-name",
        key="model.options.shortcut (shortcut=test_gated)",
        value="gat",
        suggestion="gate",
    )


def test_one_scaled_shortcut_takes_the_option() -> None:
    block = build(settled(gpt(shortcut_feed_forward="scaled", options={"shortcut": {"scale": 0.1}}))).trf_blocks[0]
    assert block.shortcut_ff.scale == 0.1


# --- models and their data


@pytest.mark.parametrize(
    ("config", "code", "facts"),
    [
        (gpt(layer_sizes=[3, 2]), "layer-sizes-unread", {"key": "model.layer_sizes"}),
        (
            deep(layer_sizes=None),
            "layer-sizes-too-short",
            {"key": "model.layer_sizes"},
        ),
        (deep(layer_sizes=[3]), "layer-sizes-too-short", {"key": "model.layer_sizes"}),
        (
            replace(gpt(), data=VECTORS),
            "data-for-architecture",
            {"source": "vectors", "architecture": "gpt"},
        ),
        (
            replace(deep(), data=TOKENS),
            "data-for-architecture",
            {"source": "random_tokens", "architecture": "deep_mlp"},
        ),
        (
            replace(deep(), data=replace(VECTORS, inputs=[[1.0]])),
            "rows-width",
            {"key": "data.inputs", "width": 3, "sizes": [3, 3, 3, 2]},
        ),
        (
            replace(deep(), data=replace(VECTORS, targets=[[1.0]])),
            "rows-width",
            {"key": "data.targets", "width": 2, "sizes": [3, 3, 3, 2]},
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_models_and_data_that_do_not_fit(config: Config, code: str, facts: dict[str, Any]) -> None:
    check_refusal(refusal(config), code, **facts)


@pytest.mark.parametrize("probe", ["parameters", "shapes", "gradients"])
def test_contexts_longer_than_the_model_takes(probe: str) -> None:
    kinds = {"parameters": ParametersProbe, "shapes": ShapesProbe, "gradients": GradientsProbe}
    config = replace(gpt(), probes=probes(**{probe: kinds[probe](context=7)}))
    check_refusal(refusal(config), "probe-context", key=f"probes.{probe}.context", value=7, limit=6)
    settled(replace(gpt(), probes=probes(**{probe: kinds[probe](context=6)})))


# --- tokens


def text(tokenizer: str, words: str, prompt: str = "a", **model: Any) -> Config:
    config = Config(model=replace(SMALL, **model), data=DataConfig("string", tokenizer, prompt=prompt, text=words))
    return replace(config, probes=probes(generation=GenerationProbe(prompt)))


def test_an_empty_prompt() -> None:
    error = refusal(text("byte", "a" * 100, prompt="", vocab_size=256))
    check_refusal(error, "prompt-empty", key="probes.generation.prompt")


@pytest.mark.parametrize(
    ("config", "code", "facts"),
    [
        (
            text("byte", "\t" * 100, prompt="a"),
            "token-outside-vocabulary",
            {
                "where": "probes.generation.prompt='a'",
                "outside": 97,
                "tokenizer": "byte",
                "vocab_size": 13,
                "choices": "data.tokenizer=char, another prompt",
            },
        ),
        (
            text("byte", "a" * 100, prompt="\t"),
            "token-outside-vocabulary",
            {
                "where": "data.text",
                "outside": 97,
                "tokenizer": "byte",
                "vocab_size": 13,
                "choices": "data.tokenizer=char, other data",
                "probe": "gradients",
            },
        ),
        (
            text("char", "abcdefghijklmnop" * 9),
            "too-many-characters",
            {"where": "data.text", "n_vocab": 16, "vocab_size": 13},
        ),
    ],
    ids=["prompt", "text", "characters"],
)
def test_ids_outside_the_vocabulary(config: Config, code: str, facts: dict[str, Any]) -> None:
    check_refusal(refusal(config), code, **facts)


def test_ids_outside_the_vocabulary_of_a_prompt_in_gpt2() -> None:
    config = text("gpt2", "unread", prompt="Hello")
    error = refusal(replace(config, probes=replace(config.probes, gradients=None, activations=None)))
    where = "probes.generation.prompt='Hello'"
    check_refusal(error, "token-outside-vocabulary", where=where, outside=15496, tokenizer="gpt2", vocab_size=13)


def test_random_tokens_have_prompts_of_ids() -> None:
    outside = replace(gpt(), probes=probes(generation=GenerationProbe("0 13")))
    where = "probes.generation.prompt='0 13'"
    check_refusal(refusal(outside), "token-outside-vocabulary", where=where, outside=13, tokenizer="ids")
    words = replace(gpt(), probes=probes(generation=GenerationProbe("Hello")))
    check_refusal(refusal(words), "ids-not-integers", key="probes.generation.prompt", value="Hello")


def test_too_little_text() -> None:
    enough, short = ("ab" * 7)[: 2 * 6 + 1], ("ab" * 6)[: 2 * 6]
    settled(text("char", enough))
    facts = {"where": "data.text", "name": "char", "tokens": 12, "count": 13}
    check_refusal(refusal(text("char", short)), "too-few-tokens", **facts)
    unread = replace(
        text("char", short), probes=probes(gradients=None, activations=None, generation=GenerationProbe("a"))
    )
    settled(unread)


def test_a_missing_file_is_found_before_anything_runs(tmp_path: Path) -> None:
    config = replace(gpt(), data=DataConfig("file", "byte", prompt="a", path=str(tmp_path / "no.txt")))
    check_refusal(refusal(config), "text-path-not-found", where=f"data.path={tmp_path}/no.txt")


# --- from_omegaconf: keys at every level


@pytest.mark.parametrize(
    ("tree", "code", "facts"),
    [
        ({"sede": 1}, "unknown-name", {"key": "sede", "value": "sede", "suggestion": "seed"}),
        ({"modle": {}}, "unknown-name", {"key": "modle", "value": "modle", "suggestion": "model"}),
        (
            {"model": {"emb_dmi": 1}},
            "unknown-name",
            {"key": "model.emb_dmi", "value": "emb_dmi", "suggestion": "emb_dim"},
        ),
        (
            {"probes": {"gradient": {}}},
            "unknown-name",
            {"key": "probes.gradient", "value": "gradient", "suggestion": "gradients"},
        ),
        (
            {"probes": {"shapes": {"contxt": 1}}},
            "unknown-name",
            {"key": "probes.shapes.contxt", "value": "contxt", "suggestion": "context"},
        ),
        (
            {"data": {"tokeniser": "byte"}},
            "unknown-name",
            {"key": "data.tokeniser", "value": "tokeniser", "suggestion": "tokenizer"},
        ),
        (
            {"experiment": {"nmae": "x"}},
            "unknown-name",
            {"key": "experiment.nmae", "value": "nmae", "suggestion": "name"},
        ),
        ({"zzz": 1}, "unknown-name", {"key": "zzz", "value": "zzz"}),
    ],
    ids=str,
)
def test_unknown_keys_are_refused_with_the_closest(tree: dict[str, Any], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        to_config.from_omegaconf(tree)


def test_from_omegaconf_settles_and_checks() -> None:
    tree = {"model": {"attention": "identity", "qkv_bias": True}, "data": {"prompt": "Hello"}, "hydra": {"job": 1}}
    config = to_config.from_omegaconf(tree)
    assert config.probes.generation is not None and config.probes.generation.prompt == "Hello"
    assert config.data.tokenizer == "gpt2"
    with refused("model-key-unread", key="model.qkv_bias", value=True):
        to_config.from_omegaconf(tree, changed={"model.qkv_bias"})
    with refused("no-such-module", key="plugins", value="test_nowhere"):
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
    check_refusal(
        refusal(gpt(attention="identity", feed_forward="identity", expansion=2.0), "model.expansion"),
        "model-key-unread",
        key="model.expansion",
        value=2.0,
    )
