"""Tokens and generation: what the untrained GPT-2 124M says, and how."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F

from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check, checks
from gptlab.book.reproduce.verdicts import Found
from gptlab.model import build
from gptlab.probes.generation import greedy

PROMPT = "Hello, I am"
SMALL_CYCLES = (
    "model=tiny", "model.vocab_size=40", "model.emb_dim=48", "model.context_length=64", "data=random_tokens"
)  # fmt: skip


@checks({"GN-enc": PROMPT, "GN-b1": "Every effort moves you", "GN-b2": "Every day holds a"})
def encoded(lab: Lab, text: str) -> tuple[int, ...]:
    return tuple(lab.tokenizer.encode(text))


@check("GN-vocab")
def vocabulary(lab: Lab) -> int:
    return lab.tokenizer.n_vocab


def said(lab: Lab) -> list[int]:
    """Ten greedy tokens of the 124M model."""
    prompt = lab.tokenizer.encode(PROMPT)
    return lab.once("said", lambda: greedy(lab.small, prompt, 10, lab.config().model.context_length).ids)


@check("GN-six")
def six(lab: Lab) -> tuple[int, ...]:
    return tuple(said(lab)[:6])


@checks({"GN-sixtext": 6, "GN-ten": 10})
def text(lab: Lab, new: int) -> str:
    return lab.tokenizer.decode(lab.tokenizer.encode(PROMPT) + said(lab)[:new])


@check("GN-len")
def length(lab: Lab) -> int:
    return len(lab.tokenizer.encode(PROMPT)) + len(said(lab)[:6])


@check("GN-first")
def first(lab: Lab) -> str:
    return lab.tokenizer.decode(said(lab)[:1])


@check("GN-three")
def three(lab: Lab) -> int:
    """How many of the new tokens the letters of this word are spread over."""
    pieces = [lab.tokenizer.decode([token]) for token in said(lab)]
    for start in range(len(pieces)):
        for end in range(start + 1, len(pieces) + 1):
            if "".join(pieces[start:end]).strip() == "Byeswickattribute":
                return end - start
    return 0


@check("GN-fig418")
def figure(lab: Lab) -> Found:
    prompt = len(lab.tokenizer.encode(PROMPT))
    bare, stopped = (len(lab.tokenizer.encode(f"{PROMPT} a model ready to help{end}")) - prompt for end in ("", "."))
    return Found(bare, f"the words are {bare} tokens; {stopped} with a full stop at the end")


@check("GN-softmax")
def softmax(lab: Lab) -> Found:
    rows = lab.noise(200, lab.config().model.vocab_size).float()
    scaled = [rows, 200 * rows, rows.bfloat16()]
    same = all(torch.equal(x.argmax(-1), x.softmax(-1).argmax(-1)) for x in scaled)
    close = torch.tensor([1e-9, 2e-9])
    flips = close.argmax() != close.softmax(-1).argmax()
    return Found(
        "same index" if same else "another index",
        f"{len(rows)} rows, three scales; logits of 1e-9 and 2e-9 {'tie' if flips else 'do not tie'} after softmax",
    )


@check("GN-crop")
def cropping(lab: Lab) -> str:
    model = lab.build("model=tiny")
    ids = list(range(10, 20))
    cropped, alone = (greedy(model, prompt, 5, 5).ids for prompt in (ids, ids[-5:]))
    whole = greedy(model, ids, 5, 10).ids
    return "equal" if cropped == alone and whole != cropped else "different"


@check("GN-slice")
def slicing(lab: Lab) -> float:
    model, ids = lab.small, torch.tensor([lab.tokenizer.encode(PROMPT)])
    with torch.no_grad():
        return (model(ids)[:, -1] - model.out_head(model.features(ids)[:, -1])).abs().max().item()


@check("GN-nograd")
def no_graph(lab: Lab) -> str:
    model, seen = lab.build("model=tiny"), []
    model.register_forward_hook(lambda module, inputs, output: seen.append(output.grad_fn))
    greedy(model, [1, 2, 3], 2, 8)
    return "no grad_fn" if seen == [None, None] and model(torch.tensor([[1]])).requires_grad else "a graph"


@check("GN-det")
def deterministic(lab: Lab) -> str:
    prompt, model = lab.tokenizer.encode(PROMPT), lab.small
    return "equal" if greedy(model, prompt, 3, 1024).ids == said(lab)[:3] else "different"


@check("GN-cycle")
def cycles(lab: Lab) -> Found:
    """Two-block models of 40 symbols: whether the last 24 of 60 tokens repeat, and with which period."""
    variants = {
        "tied": ("ablation=tied_unscaled",),
        "tied, scaled": ("ablation=tied",),
        "untied": (),
        "without positions": ("model.position=none",),
    }
    found: dict[str, list[int | None]] = {name: [] for name in variants}
    first = lab.seed - 123
    for name, overrides in variants.items():
        for seed in range(first, first + 20):
            model = build(replace(lab.config(*SMALL_CYCLES, *overrides), seed=seed))
            found[name].append(_period(greedy(model, [1], 60, 64).ids[-24:]))
    short = {name: sum(period in (2, 3) for period in periods) for name, periods in found.items()}
    one, scaled, never = found["tied"].count(1), found["tied, scaled"].count(1), found["untied"].count(None)
    return Found(
        "cycles" if all(count > 10 for count in short.values()) else "depends on tying and positions",
        f"of 20 seeds each, tied models repeat one token in {one} ({scaled} with the table drawn at the scale of a "
        f"head) and untied ones have no period up to 12 in {never}; "
        f"two or three symbols: {short['tied']} tied, {short['untied']} untied, {short['without positions']} untied "
        "without positions",
    )


def _period(ids: list[int]) -> int | None:
    return next((p for p in range(1, 13) if ids[p:] == ids[:-p]), None)


@check("GN-nonsense")
def chance(lab: Lab) -> Found:
    """The loss of the 124M model on random tokens."""
    vocab_size = lab.config().model.vocab_size
    ids = torch.randint(vocab_size, (2, 65), generator=torch.Generator().manual_seed(lab.seed))
    with torch.no_grad():
        logits = lab.small(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()
    expected = math.log(vocab_size) + logits.var().item() / 2
    return Found(loss, f"ln V + s^2/2 is {expected:.3f} for logits with s = {logits.std():.4f}")


@check("GN-order")
def drawing_order(lab: Lab) -> Found:
    """qkv biases drawn in between shift every later weight; with the same weights held they change few tokens."""
    prompt, six = lab.tokenizer.encode(PROMPT), said(lab)[:6]
    changed = {}
    for rng in ("global", "paired"):
        model = lab.build("ablation=qkv_bias", f"rng={rng}")
        ids = greedy(model, prompt, 6, 1024).ids
        changed[rng] = sum(a != b for a, b in zip(ids, six, strict=True))
    return Found(
        "order matters" if changed["global"] > changed["paired"] else "order does not matter",
        f"biases drawn in between change {changed['global']} of six tokens, biases with all other weights held "
        f"{changed['paired']}",
    )
