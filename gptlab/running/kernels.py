"""Which kernels a study trains with: chosen by measuring, once, before its first run, and the same for all variants.

The choice stands in the folder `kernels/` of the study, one file for each model and batch that the runs are compared
with (a ladder has several), made exclusively: of two commands that begin a study at once, the first one chooses for
both. Whatever runs later, in a worker, on a cluster, resumed or added, takes what stands there. What was measured is
kept in gptlab's cache as well, by processor, version of torch, threads and shapes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gptlab import kernels
from gptlab.config import Config
from gptlab.data.cache import folder as cache_folder
from gptlab.declare.training_spelling import run_length
from gptlab.errors import ConfigError, GptlabError
from gptlab.model.feed_forward import hidden_width
from gptlab.planning.plan import Plan
from gptlab.running.decisions import Decision
from gptlab.running.execute import threads
from gptlab.running.provenance import processor
from gptlab.store import files
from gptlab.store.damage import DamagedError, load_object
from gptlab.store.json_text import json_text
from gptlab.store.names import now

FOLDER = "kernels"  # of a study, and of the cache
MEASURES = 1  # raised when what is measured, or how, has changed: part of every key of the cache
WORTH = 20.0  # seconds of training, below which a measurement of a second would cost more than it could win
RATE = 1e11  # FLOP/s of one thread, and
CALLS = 1e-3  # seconds that the calls of one step take: for a rough estimate of a training's time


@dataclass(frozen=True)
class Choice:
    """`chosen`: place -> kernel, where a measurement chose; `times`: (place, kernel, seconds) of each candidate."""

    chosen: Mapping[str, str]
    reason: str
    times: tuple[tuple[str, str, float], ...] = ()
    machine: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        times = [{"place": place, "kernel": name, "seconds": seconds} for place, name, seconds in self.times]
        return {"schema": 1, "chosen": dict(self.chosen), "reason": self.reason, "times": times,
                "machine": dict(self.machine)}  # fmt: skip


def settled(plan: Plan, study: Path, decisions: Sequence[Decision], say: Callable[[str], None]) -> Plan:
    """The plan with a kernel named at every place of each run that is trained; ids stay as they are.

    Measures where the study has no choice yet and there is something to start, for the run that others are compared
    with; for those that are compared with none in the plan, the first one. GptlabError where the choice is damaged
    and runs have begun under it.
    """
    runs = list(plan.runs)
    for shape in _shapes(plan, study, decisions):
        if shape.todo:
            chosen = _choice(shape.base, shape.path, shape.todo, shape.begun, say).chosen
            for n in shape.numbers:
                config = runs[n].config
                runs[n] = replace(runs[n], config=kernels.with_kernels(config, kernels.resolved(config, chosen)))
    return replace(plan, runs=tuple(runs))


def refuse_damaged(plan: Plan, study: Path, decisions: Sequence[Decision]) -> None:
    """GptlabError where a choice that runs have begun under is damaged and something is to start: before any of it."""
    for shape in _shapes(plan, study, decisions):
        if shape.todo and shape.begun and kernels.open_places(shape.base) and shape.path.exists():
            _read_begun(shape.path, shape.begun)


@dataclass(frozen=True)
class _Shape:
    """What one file of `kernels/` decides for."""

    base: Config
    path: Path
    numbers: list[int]  # of its runs in the plan
    todo: list[Config]  # of those that are to start
    begun: int  # of them, how many have begun


def _shapes(plan: Plan, study: Path, decisions: Sequence[Decision]) -> Iterator[_Shape]:
    keys = _keys(plan)
    for key, base in bases(plan).items():
        numbers = [number for number, own in enumerate(keys) if own == key]
        todo = [plan.runs[n].config for n in numbers if decisions[n].action in ("run", "resume")]
        begun = sum(decisions[n].state != "planned" for n in numbers)
        yield _Shape(base, study / FOLDER / f"{key}.json", numbers, todo, begun)


def bases(plan: Plan) -> dict[str, Config]:
    """Shape key -> a run of the plan of these shapes that others are compared with."""
    return {key: base for key, base in zip(_keys(plan), _bases(plan), strict=True) if base is not None}


def _keys(plan: Plan) -> list[str]:
    """For each run the shape key of the one that it is compared with; empty for what is not trained."""
    known: dict[int, str] = {}
    return [known.get(id(base)) or known.setdefault(id(base), shape_key(base)) if base else "" for base in _bases(plan)]


def _bases(plan: Plan) -> list[Config | None]:
    trained = {run.id: run.config for run in plan.runs if run.config.train.budget is not None}
    first = next(iter(trained.values()), None)
    return [trained.get(run.baseline_id or "", first) if run.id in trained else None for run in plan.runs]


def shape_key(config: Config) -> str:
    """What the times hang on beside the machine: 16 hex digits."""
    names = ("batch_size", "accumulate", "context", "precision", "compile", "optimizer", "device")
    train = {name: getattr(config.train, name) for name in names}
    content = [dataclasses.asdict(config.model), train, config.threads, kernels.open_places(config)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _choice(config: Config, path: Path, todo: Sequence[Config], begun: int, say: Callable[[str], None]) -> Choice:
    if not kernels.open_places(config):
        return Choice({}, "nothing to choose")
    try:
        if path.exists():
            return _read_begun(path, begun) if begun else read_choice(path)
    except DamagedError as damage:
        say(f"{path}: {damage}; the kernels are chosen again")
        files.remove(path)
    seconds = sum(map(estimate, todo))
    if seconds < WORTH:
        choice = Choice({}, f"about {seconds:.2g} s of training: too short to measure for")
    else:
        choice = measured(config)
        say(f"kernels: {choice.reason}: {kernels.words(kernels.resolved(config, choice.chosen))} (gptlab kernels)")
    files.make_folder(path.parent)
    content = {**choice.to_json(), "created": now()}
    if not files.create(path, (json_text(content, indent=1) + "\n").encode()):
        return read_choice(path)  # another command was quicker
    return choice


def _read_begun(path: Path, begun: int) -> Choice:
    """What stands in the file, under which `begun` runs have begun. GptlabError where it cannot be used."""
    try:
        return read_choice(path)
    except DamagedError as damage:
        raise GptlabError(
            f"{path.parent}: {damage}. {begun} of the runs have begun with what it said. Put it back; or remove it, "
            "and what is still to run may take other kernels, which tables then say.",
            code="kernels-damaged",
            file=str(path),
            begun=begun,
        ) from damage


def read_choice(path: Path) -> Choice:
    """What stands in a file of `kernels/`. DamagedError where it cannot be used."""
    content = load_object(path)
    chosen, times, machine = (content.get(key) for key in ("chosen", "times", "machine"))
    try:
        known = kernels.checked(chosen) if isinstance(chosen, dict) else None
        found = tuple((str(t["place"]), str(t["kernel"]), float(t["seconds"])) for t in times or ())
    except (ConfigError, TypeError, KeyError, ValueError) as error:
        raise DamagedError(f"{path.name}: not understood ({error})") from error
    if known is None:
        raise DamagedError(f"{path.name}: chooses nothing")
    named = known if isinstance(known, dict) else {}
    return Choice(named, str(content.get("reason") or ""), found, machine if isinstance(machine, dict) else {})


def measured(config: Config, *, again: bool = False) -> Choice:
    """What is fastest here on the shapes of `config`: from the cache, or timed now. It takes about a second."""
    machine = {"processor": processor(), "torch": version("torch"), "threads": config.threads,
               "precision": config.train.precision}  # fmt: skip
    key = hashlib.sha256(json.dumps([MEASURES, machine, shape_key(config)]).encode()).hexdigest()[:32]
    path = cache_folder() / FOLDER / f"{key}.json"
    if not again:
        with suppress(DamagedError):
            return read_choice(path)
    choice = _timed(config, machine)
    if choice.times:
        with suppress(OSError):  # a folder that takes no files: the next study measures anew
            files.make_folder(path.parent)
            files.write_json(path, choice.to_json())
    return choice


def _timed(config: Config, machine: Mapping[str, Any]) -> Choice:
    from gptlab.training.conditions import choose_device
    from gptlab.training.kernels.measure import choose, measure

    if choose_device(config.train.device).type != "cpu":
        return Choice({}, "not on a CPU: what torch does there was not raced against", (), machine)
    start = time.perf_counter()
    try:
        with threads(config.threads):
            timings = measure(config)
    except Exception as error:  # a plugin's model, too little memory: no reason not to run
        return Choice({}, f"could not be measured ({type(error).__name__}: {error})", (), machine)
    reason = f"measured in {time.perf_counter() - start:.1f} s"
    return Choice(choose(timings), reason, tuple((t.place, t.kernel, t.seconds) for t in timings), machine)


def estimate(config: Config) -> float:
    """About how many seconds a training takes, from tokens and weights alone."""
    model, train = config.model, config.train
    assert train.budget is not None
    if train.budget_unit == "seconds":
        return train.budget
    rate = RATE * config.threads
    if train.budget_unit == "flops":
        return train.budget / rate
    hidden = hidden_width(model.emb_dim, model.expansion, model.hidden_dim, model.hidden_multiple)
    weights = model.n_layers * (4 * model.emb_dim**2 + 2 * model.emb_dim * hidden) + model.vocab_size * model.emb_dim
    tokens = train.batch_size * (train.context or model.context_length)
    steps = run_length(train) or 0
    return steps * max(CALLS * train.accumulate, 6 * weights * tokens / rate)
