"""The model that a run has left: its newest checkpoint, or, where it was not trained, its initial weights anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from torch import nn

from gptlab import registry
from gptlab.config import Config, DataConfig, ModelConfig
from gptlab.data.batches import VectorSource, load
from gptlab.data.tokenizer import Tokenizer, make_tokenizer
from gptlab.data.vocabulary_file import FileTokenizer
from gptlab.declare.to_config import from_stored
from gptlab.errors import GptlabError
from gptlab.identity import identity
from gptlab.model import build
from gptlab.store.config_file import read_config
from gptlab.store.damage import DamagedError
from gptlab.store.find_runs import find_run, find_runs, is_run, recorded_id
from gptlab.store.manifest import read_manifest
from gptlab.training import checkpoint
from gptlab.weights import hugging_face, own
from gptlab.weights.opening import WHEELS, located, open_weights, sha256


@dataclass(frozen=True)
class Trained:
    """A model in eval mode, what turns texts into its ids, and the training step that it stands at."""

    model: nn.Module
    tokenizer: Tokenizer
    config: Config
    step: int
    notes: tuple[str, ...] = ()  # of checkpoints that were passed over


def named(word: str) -> Trained:
    """The model of the run that `word` names, or of the weights that are at this path."""
    path = Path(word).expanduser()
    signs = (hugging_face.CONFIG, own.EXPORTED, own.BOOK)
    if path.is_file() or word in WHEELS or any((path / name).is_file() for name in signs):
        return of_weights(word)
    return trained(run_folder(word))


def of_weights(path: Path | str, **model: object) -> Trained:
    """The model in a file of weights, as it is. `model`: keys that the file leaves open. GptlabError where it cannot.

    Its tokenizer is that of the file where it has one, else the one that its vocabulary is known by: GPT-2's of 50,257,
    bytes of 256. Without either, texts are ids.
    """
    found = open_weights(path)
    if found.format == own.RUN:
        return trained(found.path)
    said = {**found.model, **model}
    lacking = [key for key, value in said.items() if value is None]
    if lacking:
        raise GptlabError(
            f"{path}: does not say model.{lacking[0]}. In a run it can be given beside model.weights.",
            code="weights-leave-open-alone",
            key=f"model.{lacking[0]}",
        )
    declared = ModelConfig(**said, weights=str(located(path)), weights_sha256=sha256(found))
    by_size = {50257: "gpt2", 256: "byte"}.get(declared.vocab_size, "ids")
    tokenizer: Tokenizer
    if found.tokenizer is not None:
        tokenizer = FileTokenizer(found.tokenizer)
    else:
        tokenizer = make_tokenizer(by_size, "", declared.vocab_size)
    config = Config(model=declared, data=DataConfig(tokenizer=by_size))
    return Trained(build(config), tokenizer, config, 0, found.notes)


def run_folder(word: str) -> Path:
    """The run that `word` names: its folder, the folder of a study with this one run, or the beginning of its id."""
    path = Path(word)
    if path.is_dir() and not is_run(path):
        inside = list(islice(find_runs(path), 2))
        if len(inside) == 1:
            return inside[0]
    return find_run(word, Path(Config().output_dir))


def trained(run: Path) -> Trained:
    """The model of the run in this folder. GptlabError where it has no tokens, no record, or no checkpoint any more."""
    try:
        config = from_stored(read_config(run))
    except DamagedError as damage:
        raise GptlabError(f"{run}: {damage}.", code="run-config-damaged", run=run) from damage
    registry.load_plugins(config.plugins)
    if config.model.architecture != "gpt":
        raise GptlabError(
            f"{run}: model.architecture={config.model.architecture} has no tokens to continue.",
            code="run-without-tokens",
            run=run,
            value=config.model.architecture,
        )
    tokenizer = _tokenizer(run, config)
    if config.train.budget is None:
        return Trained(build(config), tokenizer, config, 0)
    saved, refused = checkpoint.newest(run, recorded_id(run) or identity(config))
    if saved is None:
        why = f"{refused[0].removeprefix('checkpoint not used: ')}. " if refused else ""
        raise GptlabError(
            f"{run}: has no checkpoint to take its weights from. {why}"
            f"train.keep_checkpoints={config.train.keep_checkpoints}; 1 or more keeps the newest.",
            code="run-without-checkpoint",
            run=run,
            key="train.keep_checkpoints",
            value=config.train.keep_checkpoints,
            refused=refused,
        )
    model = build(replace(config, model=replace(config.model, weights=None)))  # a file of its own is needed no more
    checkpoint.put_weights(model, saved.weights)
    return Trained(model, tokenizer, config, saved.step, tuple(refused))


def _tokenizer(run: Path, config: Config) -> Tokenizer:
    """From its name alone where that says it all; else from the data, which must be those of the run."""
    name = config.data.tokenizer
    if name in ("gpt2", "byte", "ids"):
        return make_tokenizer(name, "", config.model.vocab_size)
    source = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
    assert not isinstance(source, VectorSource)
    try:
        known = read_manifest(run).data
    except DamagedError:
        known = ""
    if known and known != source.hash:
        raise GptlabError(
            f"{run}: data.tokenizer={name} has its vocabulary from the data, and these are no longer those of the run.",
            code="tokenizer-data-changed",
            run=run,
            key="data.tokenizer",
            value=name,
        )
    return source.tokenizer
