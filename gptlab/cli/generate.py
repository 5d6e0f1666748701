"""`gptlab generate`: what the model of a run makes of a prompt, while it comes."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gptlab.cli.arguments import Parser
from gptlab.config import PRECISIONS, GenerationProbe
from gptlab.errors import ConfigError, wrong_value
from gptlab.generating.rules import check_sampling, without_effect
from gptlab.store.json_text import json_text
from gptlab.texts import harmless_json

if TYPE_CHECKING:
    from gptlab.generating.generate import Generated
    from gptlab.running.trained import Trained

HELP = """\
usage: gptlab generate RUN|PATH [--prompt TEXT ...] [--tokens N] [OPTION ...]

Continues each prompt with the model of a run: its newest checkpoint, or its initial weights where it was not trained.
RUN is a run folder, a study with one run, or the beginning of the id of a run in outputs/; PATH any weights that
`gptlab inspect` knows. The text is printed as it comes.
--prompt              may be given several times; the prompts go through the model as one batch (default: the run's own)
--tokens              how many more, at most (default: 200)
--temperature         above 0 draws tokens instead of taking the most likely one (default: 0)
--top-k, --top-p, --min-p   draw from the k most likely; from the fewest that have p together; from those with at least
                      p times the largest probability
--repetition-penalty  divides the logits of tokens that have been (default: 1)
--seed                of the draws (default: the run's)
--stop                a text that ends it, and is not printed; may be given several times
--precision           fp32, or bf16: a copy of the weights, rounded once
--no-cache            compute every token anew for each that follows, as the book does
--format              text, or json with ids and margins

  gptlab generate outputs/STUDY/RUN --prompt 'Hello, I am' --tokens 50 --temperature 0.8 --top-p 0.95"""
_WHOLE = ("tokens", "top_k", "seed")
_NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty")


def main(arguments: Sequence[str]) -> int:
    """Print the texts on stdout, and how long they took on stderr."""
    given = _read(arguments)
    if given.help:
        print(HELP)
        return 0
    options = {name: _number(given, name) for name in (*_WHOLE, *_NUMBERS) if getattr(given, name) is not None}
    if len(given.words) != 1:
        raise ConfigError("generate: name one run folder, or the beginning of an id.", code="generate-takes-one-run")
    _check(given, options)
    from gptlab.running.execute import threads
    from gptlab.running.trained import named

    found = named(given.words[0])
    for note in found.notes:
        print(f"gptlab: {note}", file=sys.stderr)
    with threads(found.config.threads):
        return _answer(found, given, options)


def _read(arguments: Sequence[str]) -> Namespace:
    parser = Parser()
    for name in (*_WHOLE, *_NUMBERS):
        parser.option(_flag(name))
    parser.repeated("--prompt")
    parser.repeated("--stop")
    parser.option("--precision", choices=PRECISIONS, default="fp32")
    parser.option("--format", choices=("text", "json"), default="text")
    parser.switch("--no-cache")
    return parser.read(arguments)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _number(given: Namespace, name: str) -> int | float:
    text, kind = getattr(given, name), int if name in _WHOLE else float
    try:
        return kind(text)
    except ValueError as error:
        said = "must be a whole number." if kind is int else "must be a number."
        raise wrong_value(_flag(name), text, said, code="option-not-a-number") from error


def _check(given: Namespace, options: dict[str, Any]) -> None:
    """What can be refused before anything is read."""
    keys = {"max_new_tokens" if name == "tokens" else name: value for name, value in options.items() if name != "seed"}
    how = GenerationProbe(**{"prompt": "", **keys})
    check_sampling(how, lambda key: "--tokens" if key == "max_new_tokens" else _flag(key))
    if "seed" in options and how.temperature == 0:
        raise without_effect("--seed", options["seed"], "--temperature")


def _answer(found: Trained, given: Namespace, options: dict[str, Any]) -> int:
    from gptlab.data.text import encode_prompt
    from gptlab.generating.generate import generate

    prompts = given.prompt or [found.config.data.prompt]
    if not prompts[0]:
        raise ConfigError("--prompt: this run has no prompt of its own. Give one.", code="prompt-missing")
    for prompt in prompts:  # refused by the name that the user typed
        encode_prompt(found.tokenizer, prompt, found.config.model.vocab_size, "--prompt")
    typed = _Typed(prompts) if given.format == "text" else None
    began = time.perf_counter()
    texts = generate(
        found.model,
        prompts,
        **{"tokens": 200, "seed": found.config.seed, **options},
        tokenizer=found.tokenizer,
        stop=given.stop,
        precision=given.precision,
        cache=not given.no_cache,
        on_text=typed.take if typed else None,
    )
    seconds = time.perf_counter() - began
    if typed:
        typed.close()
    else:
        print(harmless_json(_json(found, prompts, texts)))
    _report(given, found, texts, seconds)
    return 0


class _Typed:
    """Texts on stdout, one after the other: the first as it comes, the others once those before have ended."""

    def __init__(self, prompts: Sequence[str]) -> None:
        self.waiting = [[prompt] for prompt in prompts]
        self.at = 0
        self._flush()

    def take(self, number: int, piece: str) -> None:
        self.waiting[number].append(piece)
        if number == self.at:
            self._flush()

    def close(self) -> None:
        """All that is left, a blank line between two texts."""
        while self.at < len(self.waiting):
            self._flush()
            self.at += 1
            print("\n" if self.at < len(self.waiting) else "", flush=True)

    def _flush(self) -> None:
        pieces, self.waiting[self.at] = self.waiting[self.at], []
        print(_harmless("".join(pieces)), end="", flush=True)


def _harmless(text: str) -> str:
    """Lines as they are; what could steer the terminal written out."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _json(found: Trained, prompts: Sequence[str], texts: Sequence[Generated]) -> str:
    rows = [
        {
            "prompt": prompt, "text": one.text, "prompt_ids": one.prompt_ids, "token_ids": one.ids,
            "margins": one.margins, "stopped": one.stopped, "step": found.step,
        }
        for prompt, one in zip(prompts, texts, strict=True)
    ]  # fmt: skip
    return json_text(rows, indent=1)


def _report(given: Namespace, found: Trained, texts: Sequence[Generated], seconds: float) -> None:
    """On stderr: how fast, and what the user may not expect."""
    count = sum(len(one.ids) for one in texts)
    print(f"gptlab: step {found.step}, {count} tokens in {seconds:.1f} s", file=sys.stderr)
    if texts[0].why_not_cached and not given.no_cache:
        print(f"gptlab: each token is computed from all before it: {texts[0].why_not_cached}", file=sys.stderr)
    for number, one in enumerate(texts, 1):
        if one.stopped == "not finite":
            print(f"gptlab: text {number} ends after {len(one.ids)} tokens: logits are not finite", file=sys.stderr)
