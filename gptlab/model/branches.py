"""The branches of a model, as the model itself says them: what gradient splits, path spectrum and activations look at.

A model has the methods `branches()`, in the order in which the stream meets them, `stream_layers()`, the modules of
which each takes the stream one layer on, and `after_layers()`, what stands behind the last of them. A block says its
own: one of a plugin that has a method `branches(layer)` is looked into as gptlab's are; one without it is seen as a
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn


@dataclass(frozen=True)
class Branch:
    """One branch: where its input comes in, and the shortcut, called as (stream, branch), that joins it to the stream.

    `part` is `attention` or `feed_forward`; in `deep_mlp`, whose layers have one branch each, it is `all`.
    """

    layer: int
    part: str
    entry: nn.Module  # the first module that the branch's input goes into
    inner: nn.Module  # the attention or feed-forward part itself
    shortcut: nn.Module
    inside: tuple[nn.Module, ...]  # modules whose parameters lie within the branch
    behind: tuple[nn.Module, ...] = ()  # modules on the stream right after it: the shortcut's own scale, a post-norm
    stream_scale: float = 1.0  # what the stream is multiplied with before it reaches the shortcut (DeepNorm)
    beside: bool = False  # it reads what the branch before it read (parallel layout)
    joined: bool = True  # False: it replaces the stream, as where a layer of deep_mlp changes the width


@runtime_checkable
class HasBranches(Protocol):
    """A block that says its branches."""

    def branches(self, layer: int) -> Sequence[Branch]:
        """They are those of block number `layer`."""
