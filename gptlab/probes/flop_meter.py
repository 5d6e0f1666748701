"""FLOPs of one pass of a skeleton, part by part: what torch executes, less what masks make vain.

A part that counts itself (`gptlab.model.counting`) is not computed: an empty tensor like its first input stands in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gptlab.model import GPT, Model
from gptlab.model.counting import CountsItself, CountsMasked
from gptlab.probes.dry_run import dry_run
from gptlab.probes.groups import group_of


@dataclass
class Cost:
    """`forward`: all but what lies beyond windows. `masked`: how much of that a mask makes vain all the same."""

    forward: int = 0
    masked: int = 0


Spent = dict[tuple[int | None, str], Cost]  # by (layer, None outside of the blocks; part)


def metered(model: Model, tokens: int) -> Spent:
    """What each part costs in one pass over a row of `tokens`. UncountableError where one cannot be counted."""
    meter = _Meter(tokens)
    with FlopCounterMode(display=False) as meter.counter, ExitStack() as stack:
        inside: set[nn.Module] = set()  # parts of one that counts itself
        for module in model.modules():
            if module in inside:
                continue
            if isinstance(module, CountsItself):
                inside |= set(module.modules())
                stack.enter_context(_standing_in(module, meter))
            if isinstance(module, CountsMasked):
                stack.callback(module.register_forward_hook(meter.mask).remove)
        for where, module in _parts(model):
            stack.callback(module.register_forward_pre_hook(meter.enter).remove)
            leave = module.register_forward_hook(lambda *_, where=where: meter.leave(where))
            stack.callback(leave.remove)
        dry_run(model, 1, tokens)
    return dict(meter.spent)


def _parts(model: Model) -> Iterator[tuple[tuple[int | None, str], nn.Module]]:
    """((layer, part), module) of the model, of its blocks, and of what stands directly in either."""
    yield (None, "model"), model
    if not isinstance(model, GPT):
        return
    for name, module in model.named_children():
        if module is not model.trf_blocks:
            yield group_of(name), module
    for layer, block in enumerate(model.trf_blocks):
        yield (layer, "block"), block
        for name, module in block.named_children():
            yield group_of(f"trf_blocks.{layer}.{name}"), module


class _Meter:
    """Adds up, while modules are entered and left, what each costs beside those inside of it."""

    counter: FlopCounterMode

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.spent: defaultdict[tuple[int | None, str], Cost] = defaultdict(Cost)
        self._said = Cost()  # by parts of themselves, so far
        self._open: list[tuple[Cost, Cost]] = []  # of each module inside of which we are: what was read, what is known

    def _read(self) -> Cost:
        return Cost(self.counter.get_total_flops() + self._said.forward, self._said.masked)

    def add(self, flops: int) -> None:
        """What a part says that it costs."""
        self._said.forward += flops

    def mask(self, module: nn.Module, *_: object) -> None:
        """A forward hook: takes off what lies beyond the window, and notes the rest that is vain."""
        assert isinstance(module, CountsMasked)
        beyond, rest = module.masked_flops(self.tokens)
        self._said.forward -= beyond
        self._said.masked += rest

    def enter(self, *_: object) -> None:
        self._open.append((self._read(), Cost()))

    def leave(self, where: tuple[int | None, str]) -> None:
        now, (before, inner) = self._read(), self._open.pop()
        whole = Cost(now.forward - before.forward, now.masked - before.masked)
        self.spent[where].forward += whole.forward - inner.forward
        self.spent[where].masked += whole.masked - inner.masked
        if self._open:
            self._open[-1][1].forward += whole.forward
            self._open[-1][1].masked += whole.masked


@contextmanager
def _standing_in(module: nn.Module, meter: _Meter) -> Iterator[None]:
    """`module` adds what it says of itself wherever it is called, and gives an empty tensor like its first input."""
    assert isinstance(module, CountsItself)

    def forward(x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        meter.add(module.flops(meter.tokens))
        return torch.empty_like(x)

    module.forward = forward
    try:
        yield
    finally:
        del module.forward
