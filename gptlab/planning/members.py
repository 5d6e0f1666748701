"""The members of a grid, composed one by one: which of them fails is said, and with on_invalid=skip it is left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from omegaconf import OmegaConf

from gptlab.declare.composer import Composer, Job
from gptlab.errors import ConfigError


def compose_members(
    composer: Composer, grid: Sequence[Sequence[str]], shared: Collection[str]
) -> tuple[list[Job], tuple[dict[str, str], ...]]:
    """The jobs of the grid, and with on_invalid=skip those that contradict themselves, with the reason.

    A wrong name or type is refused all the same, and so is a grid of which nothing is left.
    """
    jobs: list[Job] = []
    skipped: list[dict[str, str]] = []
    skips = OmegaConf.select(composer.load(grid[0]), "on_invalid") == "skip"
    first: ConfigError | None = None
    for texts in grid:
        try:
            jobs.append(compose_one(composer, texts, shared))
        except ConfigError as error:
            if not (skips and error.facts.get("contradiction")):
                raise
            first = first or error
            skipped.append(left_out(texts, shared, str(error)))
    if first and not jobs:
        raise first
    return jobs, tuple(skipped)


def left_out(overrides: Sequence[str], shared: Collection[str], why: str) -> dict[str, str]:
    """The record of a member that is left out: what only it has, and the reason."""
    own = [text for text in overrides if text not in shared] or overrides
    return {"overrides": " ".join(own), "reason": why.partition(" (in the run ")[0]}


def say_skipped(skipped: Sequence[dict[str, str]], planned: int) -> Iterator[str]:
    """Sentences for the user: how many of the `planned` members are left out, and each with its reason."""
    if skipped:
        yield f"on_invalid=skip: {len(skipped)} of {planned} are left out"
    for one in skipped:
        yield f"left out: {one['overrides']}: {one['reason']}"


def compose_one(composer: Composer, overrides: Sequence[str], shared: Collection[str]) -> Job:
    """Compose one run."""
    with named_run(overrides, shared):
        return composer.job(overrides)


@contextmanager
def named_run(overrides: Sequence[str], shared: Collection[str]) -> Iterator[None]:
    """An error says which run it is, unless it starts with what only this run has."""
    try:
        yield
    except ConfigError as error:
        own = [text for text in overrides if text not in shared]
        if not own or any(str(error).startswith(text) for text in own):
            raise
        raise error.reworded(f"{error} (in the run {' '.join(overrides)})", run=list(overrides)) from error
