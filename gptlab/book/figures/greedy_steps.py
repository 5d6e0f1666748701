"""Figure `greedy_steps`: greedy decoding of the untrained GPT-2 124M, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gptlab.book.figures import canvas
from gptlab.config import Config
from gptlab.data.batches import load
from gptlab.data.text import encode_prompt
from gptlab.declare.composer import compose
from gptlab.model import build
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS, CANDIDATES = 6, 4


@dataclass(frozen=True)
class Step:
    """One choice: the best candidates with logits and probabilities, and what the two arguments of argmax give."""

    ids: tuple[int, ...]
    logits: tuple[float, ...]
    probabilities: tuple[float, ...]
    from_logits: int
    from_softmax: int

    @property
    def margin(self) -> float:
        """Logit of the best minus that of the second."""
        return self.logits[0] - self.logits[1]


@torch.no_grad()
def steps(model: nn.Module, prompt_ids: list[int], number: int, context: int, most: int = CANDIDATES) -> list[Step]:
    """Greedy decoding with both ways of choosing at each step; the argmax of the logits is what is appended."""
    ids, found = list(prompt_ids), []
    for _ in range(number):
        logits = model(torch.tensor([ids[-context:]]))[0, -1]  # (vocab_size,)
        probabilities = torch.softmax(logits, -1)
        best = torch.topk(logits, most)
        found.append(
            Step(
                tuple(best.indices.tolist()), tuple(best.values.tolist()), tuple(probabilities[best.indices].tolist()),
                int(logits.argmax()), int(probabilities.argmax()),
            )
        )  # fmt: skip
        ids.append(found[-1].from_logits)
    return found


def decoded(config: Config, number: int = STEPS) -> tuple[list[Step], Any]:
    """The steps of the model that `config` declares after its prompt, and the tokenizer that reads them."""
    source: Any = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
    tokenizer = source.tokenizer
    prompt = encode_prompt(tokenizer, config.data.prompt, config.model.vocab_size)
    return steps(build(config), prompt, number, config.model.context_length), tokenizer


def figure() -> Figure:
    """A row per step, a column per candidate; the bar in a cell is its probability."""
    config = compose(["model=gpt2_124m"])
    found, tokenizer = decoded(config)
    uniform = 1 / config.model.vocab_size
    high, left, wide = 0.5, 2.75, 1.52
    picture = canvas.blank(
        10.4, 1.35 + high * len(found) + 0.62, "Greedy decoding, step by step: an untrained GPT-2 124M, seed 123",
        f"Probability of the {CANDIDATES} best of {config.model.vocab_size:,} tokens. All are tiny: guessing gives "
        f"{100 * uniform:.4f}% to each",
    )  # fmt: skip
    axes = canvas.panel(picture, 0.15, 1.2, 10.1, high * len(found))
    axes.set_xlim(0, 10.1)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.axis("off")
    heads = [(0.0, "context"), *((left + i * wide, f"candidate {i + 1}") for i in range(CANDIDATES)), (8.95, "margin")]
    for x, head in heads:
        axes.text(x, -0.72, head, fontsize=9, color="#444444", va="center")
    axes.plot([0, 10.1], [-0.48, -0.48], color=style.INK, linewidth=0.8, clip_on=False)
    largest = max(step.probabilities[0] for step in found)
    context = [config.data.prompt]
    for place, step in enumerate(found):
        _row(axes, place, (left, wide), step, tokenizer, largest)
        text = "".join(context)
        axes.text(0, place, style.plain(text if len(text) < 27 else f"\N{HORIZONTAL ELLIPSIS}{text[-26:]}"),
                  va="center", fontsize=9)  # fmt: skip
        context.append(tokenizer.decode([step.from_logits]))
    same = sum(step.from_logits == step.from_softmax for step in found)
    picture.text(
        0.15 / 10.4, 0.22 / picture.get_figheight(),
        f"argmax(softmax(logits)) = argmax(logits) in {same} of {len(found)} steps. "
        "margin: logit of candidate 1 minus logit of candidate 2. \N{OPEN BOX} is a space.", fontsize=8.5,
    )  # fmt: skip
    return picture


def _row(axes: Any, place: int, columns: tuple[float, float], step: Step, tokenizer: Any, largest: float) -> None:
    left, wide = columns
    for number, (token, chance) in enumerate(zip(step.ids, step.probabilities, strict=True)):
        x = left + number * wide
        color = style.SKY if number == 0 else "#dddddd"
        axes.barh(place + 0.3, (wide - 0.66) * chance / largest, left=x, height=0.16, color=color)
        word = style.plain(tokenizer.decode([token]).replace(" ", "\N{OPEN BOX}"), 18)
        axes.text(x, place - 0.05, word, va="center", fontsize=9.5, fontweight="bold" if number == 0 else "normal")
        axes.text(x + (wide - 0.66) * chance / largest + 0.05, place + 0.3, f"{100 * chance:.4f}%", va="center",
                  fontsize=7, color="#444444")  # fmt: skip
    axes.text(8.95, place, f"{step.margin:.4f}", va="center", fontsize=9)
