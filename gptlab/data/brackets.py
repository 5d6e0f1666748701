"""`brackets`: several kinds of brackets, properly nested, to a bounded depth.

With no bracket open one is opened; at the largest depth the last one is closed; in between, one is opened with
probability `opening`. Kinds are equally likely, and a closing bracket must match. So the floor at a place depends on
the depth alone, but to reach it a model has to remember the whole stack.
"""

from __future__ import annotations

from gptlab.data.automaton import Automaton, Tables
from gptlab.data.language import LanguageSource
from gptlab.data.tokenizer import WordsTokenizer
from gptlab.errors import wrong_value
from gptlab.registry import register

_PAIRS = ["()", "[]", "{}", "<>", "«»", "‹›", "“”", "‘’"]
_LARGEST = 2**18  # stacks


def stacks(kinds: int, depth: int) -> int:
    """How many stacks of at most `depth` brackets there are."""
    return sum(kinds**level for level in range(depth + 1))


def tables(kinds: int, depth: int, opening: float) -> Tables:
    """The states are the stacks, numbered like the nodes of a tree: kind k pushed onto stack s is s * kinds + k + 1."""
    import numpy as np

    count, below_top = stacks(kinds, depth), stacks(kinds, depth - 1)
    probability = np.zeros((count, 2 * kinds))
    follows = np.zeros((count, 2 * kinds), dtype=np.int64)
    state = np.arange(count)
    pushing = state[:below_top]
    for kind in range(kinds):
        probability[pushing, 2 * kind] = np.where(pushing == 0, 1.0, opening) / kinds
        follows[pushing, 2 * kind] = pushing * kinds + kind + 1
    popping = state[1:]
    cell = popping, 2 * ((popping - 1) % kinds) + 1
    probability[cell] = np.where(popping < below_top, 1 - opening, 1.0)
    follows[cell] = (popping - 1) // kinds
    return Tables(probability, follows)


@register("data", "brackets", tokenizers=("words",))
def brackets(vocab_size: int, kinds: int = 4, depth: int = 6, opening: float = 0.4) -> LanguageSource:
    """Properly nested brackets of several kinds."""
    if not 1 <= kinds <= len(_PAIRS):
        raise wrong_value("data.options.kinds", kinds, f"must be between 1 and {len(_PAIRS)}.", code="brackets-kinds")
    if depth < 1:
        raise wrong_value("data.options.depth", depth, "must be 1 or more.", code="brackets-depth")
    if not 0 < opening < 1:
        raise wrong_value(
            "data.options.opening", opening, "must be between 0 and 1, and neither of them.", code="brackets-opening"
        )
    if depth > _LARGEST or stacks(kinds, depth) > _LARGEST:
        raise wrong_value(
            "data.options.depth",
            depth,
            f"{kinds} kinds of brackets (data.options.kinds) to that depth make more than "
            f"{_LARGEST:,} different stacks.",
            code="brackets-too-many",
            kinds=kinds,
            largest=_LARGEST,
        )
    words = [bracket for pair in _PAIRS[:kinds] for bracket in pair]
    declared = {"version": 1, "kinds": kinds, "depth": depth, "opening": opening}
    language = Automaton(2 * kinds, lambda: tables(kinds, depth, opening))
    return LanguageSource("brackets", language, WordsTokenizer(words), vocab_size, declared)
