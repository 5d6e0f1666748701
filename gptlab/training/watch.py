"""Whether a training is still among the finite numbers, without waiting for the device at each step."""

from __future__ import annotations

import torch
from torch import nn

from gptlab.training.measured import Found, Step

MOST = 1000  # steps that are kept before they are looked at


class Watch:
    """Keeps what the steps since the last look left, and finds the step from which on none of it was finite.

    A gradient whose norm overflows for one step is clipped to nothing and does no harm: what has come back counts as
    finite.
    """

    def __init__(self) -> None:
        self._unseen: list[tuple[int, Step]] = []
        self._odd_from: int | None = None

    def add(self, number: int, step: Step) -> None:
        """Note what step `number` (from 1) left. It is not waited for."""
        self._unseen.append((number, step))
        if len(self._unseen) >= MOST:
            self._settle()

    def look(self, found: Found) -> None:
        """Wait for the steps so far; `found` is told if the last ones were not finite, and since when."""
        self._settle()
        if self._odd_from is not None:
            found.finite, found.broke_at = False, self._odd_from

    def is_sound(self, found: Found, model: nn.Module) -> bool:
        """Whether what would be saved now is of use: loss, gradient and weights finite. `found` is told if not."""
        self.look(found)
        if found.finite and not all(bool(torch.isfinite(weight).all()) for weight in model.parameters()):
            found.finite, found.broke_at = False, found.spent.step
        return found.finite

    def _settle(self) -> None:
        if not self._unseen:
            return
        values = torch.stack([torch.stack([step.loss.float(), step.norm.float()]) for _, step in self._unseen])
        for (number, _), whole in zip(self._unseen, values.isfinite().all(dim=1).tolist(), strict=True):
            if whole:
                self._odd_from = None
            elif self._odd_from is None:
                self._odd_from = number
        self._unseen.clear()
