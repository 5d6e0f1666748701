"""`gptlab.generate`: texts or token ids in, what a model makes of them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from gptlab.config import PRECISIONS, GenerationProbe
from gptlab.data.text import encode_prompt
from gptlab.data.tokenizer import Tokenizer
from gptlab.errors import ConfigError, GptlabError, unknown, wrong_value
from gptlab.generating.continuing import continued, in_precision
from gptlab.generating.rules import check_sampling
from gptlab.generating.stepping import Row
from gptlab.generating.writing import Writer
from gptlab.model.gpt import GPT


@dataclass(frozen=True)
class Generated:
    """One continuation. `text` is the new one, None without a tokenizer; `margins` tell for each token how far the
    largest logit lay above the second; `stopped` is `length`, `stop` or `not finite`; `why_not_cached` is empty where
    each token was computed once."""

    prompt_ids: list[int]
    ids: list[int]
    text: str | None
    margins: list[float]
    stopped: str
    why_not_cached: str


def generate(
    model: nn.Module,
    prompts: str | Sequence[str] | Sequence[Sequence[int]],
    tokens: int = 200,
    *,
    tokenizer: Tokenizer | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Sequence[str] = (),
    seed: int = 0,
    precision: str = "fp32",
    cache: bool = True,
    context_length: int | None = None,
    on_text: Callable[[int, str], None] | None = None,
) -> list[Generated]:
    """Continue each prompt by `tokens` tokens. Greedy at temperature 0; else the draws follow from `seed` and prompt.

    Prompts are texts, which need the `tokenizer`, or lists of token ids; several go through the model as one batch.
    `on_text(number of the prompt, text)` is called with new text as soon as it stands. `precision="bf16"` computes with
    a copy of the weights in bf16. `context_length` is the model's own, if it is gptlab's. ConfigError for what cannot
    be.
    """
    how = GenerationProbe(
        "", tokens, temperature, top_k, top_p, min_p, repetition_penalty, [stop] if isinstance(stop, str) else [*stop]
    )
    check_sampling(how, lambda key: "tokens" if key == "max_new_tokens" else key)
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if context_length is None:
        if not isinstance(model, GPT):
            raise ConfigError(
                f"context_length: {type(model).__name__} is no model of gptlab's; say how many tokens it can see.",
                code="context-length-missing",
            )
        context_length = model.context_length
    ids = [_ids(prompt, model, tokenizer) for prompt in ([prompts] if isinstance(prompts, str) else prompts)]
    if tokenizer is None and (how.stop or on_text):
        raise _needs_tokenizer("stop" if how.stop else "on_text")
    writers = [Writer(tokenizer, prompt, how.stop) for prompt in ids] if tokenizer else []

    def ends(number: int, row: Row) -> bool:
        stopped = bool(writers) and writers[number].stops_at(row.new)
        if on_text and (piece := writers[number].piece(row.new, last=stopped)):
            on_text(number, piece)
        return stopped

    rows, why_not = continued(
        in_precision(model, precision), ids, how, context_length=context_length, seed=seed, cache=cache, ends=ends
    )
    for number, row in enumerate(rows):
        if on_text and (rest := writers[number].piece(row.new, last=True)):
            on_text(number, rest)
    return [
        Generated(
            row.ids[: row.start],
            row.new,
            writers[number].text(row.new) if writers else None,
            row.margins,
            row.stopped,
            why_not,
        )
        for number, row in enumerate(rows)
    ]


def _ids(prompt: str | Sequence[int], model: nn.Module, tokenizer: Tokenizer | None) -> list[int]:
    """Those of one prompt, at least one, each in the model's vocabulary where that is known."""
    size = model.tok_emb.num_embeddings if isinstance(model, GPT) else None
    if isinstance(prompt, str):
        if tokenizer is None:
            raise _needs_tokenizer("prompts")
        return encode_prompt(tokenizer, prompt, size or tokenizer.n_vocab, "prompts")
    ids = [int(token) for token in prompt]
    if not ids:
        raise wrong_value("prompts", "[]", "is empty. A prompt needs at least one token.", code="prompt-without-ids")
    outside = next((token for token in ids if token < 0 or (size is not None and token >= size)), None)
    if outside is not None:
        raise GptlabError(
            f"prompts: token id {outside} is outside the model's vocabulary of {size}.",
            code="prompt-id-outside",
            key="prompts",
            value=outside,
            vocab_size=size,
        )
    return ids


def _needs_tokenizer(key: str) -> ConfigError:
    return ConfigError(f"{key}: texts need a tokenizer; token ids do not.", code="tokenizer-missing", key=key)
