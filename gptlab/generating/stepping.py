"""The logits after the last token of several texts, each token computed once.

Texts of one length go through the model together. A shorter one begins alone and meets the next longer one where it has
become as long, so there is no padding, and nothing of it in the numbers. Beyond the context length the model sees the
last `context_length` tokens, all of which then have other positions: each step is a full pass, as without a memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gptlab.errors import GptlabError
from gptlab.model.decoding import Decoding
from gptlab.model.gpt import GPT


@dataclass(eq=False)
class Row:
    """One text: its ids, the prompt's `start` first; for each that was chosen, its distance from the second best."""

    ids: list[int]
    start: int
    margins: list[float] = field(default_factory=list)
    stopped: str = ""  # why it does not go on; empty while it does

    @property
    def new(self) -> list[int]:
        return self.ids[self.start :]


class Stepper:
    """A model in eval mode, and what it remembers of the texts that it is continuing.

    `capacity`: tokens of the longest text at its end. `why_not` says why nothing is remembered, where that is so.
    """

    def __init__(self, model: nn.Module, context_length: int, capacity: int, cache: bool = True) -> None:
        self.model, self.context = model, context_length
        self.capacity = min(capacity, context_length)
        self.held: list[Row] = []
        self.state: Decoding | None = None
        self.why_not = "" if cache else "no cache was asked for"
        if cache and not isinstance(model, GPT):
            self.why_not = f"{type(model).__name__} has no start_decoding"
        elif cache and isinstance(model, GPT):
            try:
                model.start_decoding(1, self.capacity)
            except GptlabError as error:
                self.why_not = str(error)

    def next_rows(self, rows: list[Row]) -> list[Row]:
        """Those of the rows that go on whose turn it is: the shortest. Beyond the context all are equally long."""
        alive = [row for row in rows if not row.stopped]
        least = min((self._length(row) for row in alive), default=0)
        return [row for row in alive if self._length(row) == least]

    def logits(self, rows: list[Row]) -> Tensor:
        """After the last token of each of `next_rows`: (rows, vocab_size), fp32, on the CPU."""
        beyond = len(rows[0].ids) > self.context
        found = self._whole(rows) if self.why_not or beyond else self._stepped(rows)
        return found.float().cpu()

    def _length(self, row: Row) -> int:
        return min(len(row.ids), self.context + 1)

    def _whole(self, rows: list[Row]) -> Tensor:
        self.held, self.state = [], None
        ids = self._tensor([row.ids[-self.context :] for row in rows])
        if isinstance(self.model, GPT):
            return self._head(self.model.features(ids))
        last: Tensor = self.model(ids)[:, -1]
        return last

    def _stepped(self, rows: list[Row]) -> Tensor:
        assert isinstance(self.model, GPT)
        found = []
        stay = [place for place, row in enumerate(self.held) if row in rows]
        if self.state is not None and len(stay) < len(self.held):
            self.state = self.state.reordered(torch.tensor(stay)) if stay else None
            self.held = [self.held[place] for place in stay]
        if self.state is not None:
            logits, self.state = self._run([row.ids[-1:] for row in self.held], self.state)
            found.append(logits)
        fresh = [row for row in rows if row not in self.held]
        if fresh:
            start = self.model.start_decoding(len(fresh), self.capacity)
            logits, state = self._run([row.ids for row in fresh], start)
            found.append(logits)
            self.state = state if self.state is None else self.state.joined(state)
            self.held = self.held + fresh
        return torch.cat(found)[[self.held.index(row) for row in rows]]

    def _run(self, ids: list[list[int]], state: Decoding) -> tuple[Tensor, Decoding]:
        assert isinstance(self.model, GPT)
        output = self.model.run(self._tensor(ids), state)
        assert output.decoding is not None
        return self._head(output.features), output.decoding

    def _head(self, features: Tensor) -> Tensor:
        assert isinstance(self.model, GPT)
        logits: Tensor = self.model.out_head(features[:, -1])  # not those of the prompt, which are known
        return logits

    def _tensor(self, ids: list[list[int]]) -> Tensor:
        device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
        return torch.tensor(ids, device=device)
