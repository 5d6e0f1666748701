"""The vocabularies of other libraries: each of their names gets its key of gptlab, or no hint at all."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Iterator

import pytest
import transformers

from gptlab import registry
from gptlab.config import Config, flatten
from gptlab.declare.composer import Composer
from gptlab.errors import meant
from gptlab.other_names import KEYS, VALUES
from gptlab.values import kind_of, unknown_key

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    import x_transformers.x_transformers as x_transformers

_NANO_GPT = (
    "out_dir eval_interval log_interval eval_iters always_save_checkpoint init_from wandb_log wandb_run_name "
    "gradient_accumulation_steps batch_size block_size n_layer n_head n_embd dropout bias learning_rate max_iters "
    "weight_decay beta1 beta2 grad_clip decay_lr warmup_iters lr_decay_iters min_lr backend device dtype compile"
)
NANO_GPT = _NANO_GPT.split()
_LITGPT = (
    "scale_embeddings attention_scores_scalar block_size sliding_window_size vocab_size padding_multiple "
    "padded_vocab_size n_layer n_head n_embd head_size n_query_groups rotary_percentage parallel_residual bias "
    "lm_head_bias norm_class_name norm_eps mlp_class_name gelu_approximate intermediate_size rope_base norm_qk "
    "attention_logit_softcapping final_logit_softcapping global_batch_size micro_batch_size max_tokens max_norm "
    "lr_warmup_steps save_interval log_interval tie_embeddings"
)
LITGPT = _LITGPT.split()
# What they have and gptlab has not, and what `unknown_key` may therefore not mistake for one of gptlab's keys.
CONFIGS = (
    transformers.GPT2Config, transformers.LlamaConfig, transformers.GPTNeoXConfig, transformers.MistralConfig,
    transformers.Olmo2Config,
)  # fmt: skip
X_PARTS = (
    x_transformers.TransformerWrapper, x_transformers.AttentionLayers, x_transformers.Attention,
    x_transformers.FeedForward,
)  # fmt: skip


def vocabulary() -> list[str]:
    shared = set(transformers.PretrainedConfig().to_dict())
    names = {name for config in CONFIGS for name in set(config().to_dict()) - shared} | {"tie_word_embeddings"}
    names |= {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    names |= {name for part in X_PARTS for name in inspect.signature(part.__init__).parameters}
    return sorted((names | {*NANO_GPT, *LITGPT}) - {"self", "kwargs"})


MODEL, TRAIN = ({key.split(".")[1] for key in flatten(Config()) if key.startswith(f"{s}.")} for s in ("model", "train"))
_MUST = (
    "n_embd n_head n_layer block_size n_positions n_inner hidden_size intermediate_size num_hidden_layers "
    "num_attention_heads num_key_value_heads hidden_act max_position_embeddings rms_norm_eps layer_norm_epsilon "
    "tie_word_embeddings resid_pdrop embd_pdrop attn_pdrop attention_dropout sliding_window dropout depth heads dim "
    "dim_head kv_heads max_seq_len num_tokens tie_embedding rotary_pos_emb n_query_groups head_size padded_vocab_size "
    "grad_clip max_iters max_steps lr_scheduler_type warmup_steps gradient_accumulation_steps adam_beta1 "
    "max_grad_norm per_device_train_batch_size bf16 eval_steps logging_steps save_steps out_dir"
)
MUST = _MUST.split()


def test_the_words_that_readers_come_with_have_their_key() -> None:
    known = set(vocabulary())
    assert [name for name in MUST if name not in known] == []
    assert [name for name in MUST if name not in KEYS] == []


@pytest.mark.parametrize("section", ["model", "train"])
def test_no_foreign_name_is_sent_to_a_key_that_means_something_else(section: str) -> None:
    ours = MODEL if section == "model" else TRAIN
    wrong = {}
    for name in set(vocabulary()) - ours:
        error = unknown_key(section, name, ours, "1")
        hint = error.facts.get("suggestion")
        if hint != KEYS.get(name):
            wrong[name] = hint
    assert wrong == {}


def test_examples_that_went_wrong() -> None:
    assert KEYS["drop_rate_emb"] == "model.drop_embedding"
    assert KEYS["block_size"] == "model.context_length"
    for name in ("drop_rate_emb", "block_size", "num_memory_tokens"):
        assert unknown_key("model", name, MODEL).facts.get("suggestion") not in ("drop_rate", "vocab_size")


def targets() -> Iterator[tuple[str, str]]:
    for name, target in KEYS.items():
        for word in target.split():
            yield name, word


@pytest.mark.parametrize("target", sorted({target for _, target in targets()}))
def test_every_key_that_is_named_exists(target: str) -> None:
    key, _, value = target.partition("=")
    if key == "ablation":
        assert value in Composer().groups["ablation"]
    elif key.startswith("model.options."):
        _, _, slot, option = key.split(".")
        assert any(known.name == option for part in registry.components(slot).values() for known in part.options)
    else:
        assert kind_of(key) is not None
        slot = key.removeprefix("model.")
        if value and slot in registry.SLOTS:
            assert value in registry.components(slot)


def test_no_key_of_gptlab_is_taken_for_another() -> None:
    keys = {key.rpartition(".")[2]: key for key in flatten(Config())}
    taken = {name: (target, keys[name]) for name, target in KEYS.items() if name in keys and target != keys[name]}
    sections = {"dropout", "layers"}  # a key of another section, and what is meant without one
    assert {name for name in taken if name not in sections} == set()


@pytest.mark.parametrize("name", sorted(VALUES))
def test_every_name_that_is_meant_exists(name: str) -> None:
    registry.load_installed()
    names = {known for slot in registry.SLOTS for known in registry.components(slot)}
    names |= {option for options in Composer().groups.values() for option in options} | {"adamw", "bf16", "fp32"}
    assert VALUES[name] in names
    assert meant(name.upper(), names) == VALUES[name]
    assert meant(name, ["other"]) is None
