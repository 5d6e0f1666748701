"""Several texts at once, each as alone; with what is remembered, as without; beyond the context, as cropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gptlab
from gptlab.config import Config, GenerationProbe, ModelConfig
from gptlab.generating.continuing import continued
from gptlab.generating.stepping import Row
from gptlab.model import GPT, build
from gptlab.probes.generation import greedy
from tests.support.refusals import refused

SMALL = ModelConfig(vocab_size=61, context_length=16, emb_dim=24, n_heads=3, n_layers=2)
RAGGED = [[1, 2, 3, 4, 5], [7], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2], [7, 7], [5, 4, 3, 2, 1], list(range(20))]
VARIANTS: list[dict[str, Any]] = [
    {},
    {"position": "alibi", "n_kv_heads": 1},
    {"position": "rope", "options": {"attention": {"window": 3}}},
    {"causal": False},
]


def make(**changes: Any) -> GPT:
    model = build(Config(model=replace(SMALL, **changes)))
    assert isinstance(model, GPT)
    with torch.no_grad():
        model.out_head.weight.mul_(8)  # an untrained model's logits hardly differ
    return model


def texts(model: nn.Module, prompts: list[list[int]], tokens: int = 20, cache: bool = True, **keys: Any) -> list[Row]:
    how = GenerationProbe(prompt="", max_new_tokens=tokens, **keys)
    return continued(model, prompts, how, context_length=16, seed=4, cache=cache)[0]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("keys", [{}, {"temperature": 1.5, "top_k": 30}], ids=str)
def test_a_batch_gives_what_each_gives_alone_with_and_without_cache(
    changes: dict[str, Any], keys: dict[str, Any]
) -> None:
    model = make(**changes)
    batch = [row.new for row in texts(model, RAGGED, **keys)]
    assert batch == [texts(model, [prompt], **keys)[0].new for prompt in RAGGED]
    assert batch == [row.new for row in texts(model, RAGGED, cache=False, **keys)]
    assert all(len(ids) == 20 for ids in batch)  # all go beyond the context of 16


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_it_is_the_books_loop(changes: dict[str, Any]) -> None:
    model = make(**changes)
    for prompt, row in zip(RAGGED, texts(model, RAGGED), strict=True):
        expected = greedy(model, prompt, 20, 16)
        assert row.new == expected.ids
        assert row.margins == pytest.approx(expected.margins, abs=1e-4)


def test_equal_prompts_are_drawn_apart_and_the_first_as_alone() -> None:
    model = make()
    one, two = (row.new for row in texts(model, [[1, 2], [1, 2]], temperature=3.0))
    assert one != two
    assert one == texts(model, [[1, 2]], temperature=3.0)[0].new


def test_each_token_goes_through_the_model_once() -> None:
    model, sizes = make(), []
    model.trf_blocks[0].register_forward_pre_hook(lambda _, inputs: sizes.append(tuple(inputs[0].shape[:2])))
    texts(model, [[1, 2, 3], [4, 5, 6], [7, 8, 9, 10, 11]], tokens=4)
    # Two of 3 alone; the one of 5 joins them when they have become 5 long, and is alone when they have ended.
    assert sizes == [(2, 3), (2, 1), (2, 1), (1, 5), (3, 1), (1, 1), (1, 1)]


def test_a_text_that_ends_leaves_the_others_as_they_were() -> None:
    model, how = make(), GenerationProbe(prompt="", max_new_tokens=9)
    rows, _ = continued(
        model, RAGGED, how, context_length=16, seed=0, ends=lambda number, row: len(row.new) == number + 1
    )
    alone = texts(model, RAGGED, tokens=9)
    assert [row.new for row in rows] == [row.new[: number + 1] for number, row in enumerate(alone)]
    assert {row.stopped for row in rows} == {"stop"}


def test_a_plain_pass_afterwards_has_the_same_bits() -> None:
    model, ids = make(position="rope"), torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        before = model(ids)
        texts(model, RAGGED)
        assert torch.equal(model(ids), before)


def test_training_goes_on_as_it_was() -> None:
    model = make(drop_rate=0.5)
    expected = texts(model, [[1, 2]])[0].new
    model.train()
    model.trf_blocks[0].eval()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    assert texts(model, [[1, 2]])[0].new == expected
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(state, torch.get_rng_state()) and torch.is_grad_enabled()


def test_bad_logits_end_one_text_and_no_other() -> None:
    model = make()
    with torch.no_grad():
        model.pos_emb.weight[3] = float("nan")
    short, long = texts(model, [[1], [1, 2, 3, 4, 5]], tokens=5)
    assert (len(short.new), short.stopped) == (3, "not finite")
    assert (len(long.new), long.stopped) == (0, "not finite")


class Plain(nn.Module):
    """Somebody else's model: ids in, logits out. The next id is the last one plus one."""

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.one_hot((ids + 1) % 9, 9).float()


def test_any_module_can_be_continued() -> None:
    (found,) = gptlab.generate(Plain(), [[3, 4]], 6, context_length=4)
    assert found.ids == [5, 6, 7, 8, 0, 1]
    assert found.text is None and "Plain" in found.why_not_cached


def test_what_cannot_be_decoded_step_by_step_says_so() -> None:
    (found,) = gptlab.generate(make(causal=False), [[3, 4]], 2)
    assert "model.causal=false" in found.why_not_cached
    assert gptlab.generate(make(), [[3, 4]], 2)[0].why_not_cached == ""


def test_bf16_is_a_copy() -> None:
    model = make()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (found,) = gptlab.generate(model, [[3, 4]], 5, precision="bf16")
    assert len(found.ids) == 5
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("prompts", "options", "code"),
    [
        ("a text", {}, "tokenizer-missing"),
        ([[]], {}, "prompt-without-ids"),
        ([[61]], {}, "prompt-id-outside"),
        ([[-1]], {}, "prompt-id-outside"),
        ([[1]], {"tokens": 0}, "out-of-range"),
        ([[1]], {"stop": "a"}, "tokenizer-missing"),
        ([[1]], {"on_text": print}, "tokenizer-missing"),
        ([[1]], {"precision": "fp8"}, "unknown-name"),
        ([[1]], {"top_p": 0.5}, "sampling-without-temperature"),
    ],
)
def test_what_cannot_be_is_refused(prompts: Any, options: dict[str, Any], code: str) -> None:
    with refused(code):
        gptlab.generate(make(), prompts, **options)


def test_another_models_context_must_be_said() -> None:
    with refused("context-length-missing"):
        gptlab.generate(Plain(), [[1]])
