"""Values that a run would not use. One run of a sweep may: the plan refuses what no run of it would use.

`probes.gradients.dropout=true` means nothing to the model without dropout, and is the point of comparing it with the
one that has some.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from gptlab.config import Config, ModelConfig
from gptlab.declare.keys_read import blocks
from gptlab.declare.training_spelling import length_words, run_length
from gptlab.errors import ConfigError
from gptlab.metrics import Metric, metric

PRIMARY = "experiment.primary_metric"


def idle_values(config: Config, changed: Collection[str]) -> dict[str, ConfigError]:
    """Key -> why this run, a settled and checked config, does not use its value. `changed`: keys that the user set."""
    found = {}
    asked = (_of_training, _of_dropout, _of_match, _of_tune)
    for key, said in (pair for look in asked for pair in look(config, changed)):
        found[key] = ConfigError(said, code="idle-value", key=key)
    return found | _of_metric(config, changed)


def _of_training(config: Config, changed: Collection[str]) -> Iterator[tuple[str, str]]:
    from gptlab.data.batches import VectorSource, load

    train = config.train
    if train.budget is None:
        return
    steps = run_length(train)
    if "train.probe_every" in changed and steps is not None and (train.probe_every or 0) > steps:
        words = f"would never come, because the run has {length_words(train, steps)}."
        yield "train.probe_every", f"train.probe_every={train.probe_every}: {words}"
    evaluations = math.ceil(steps / config.evaluation.every) if steps is not None else train.average_last
    if "train.average_last" in changed and steps is not None and train.average_last > evaluations:
        yield (
            "train.average_last",
            f"train.average_last={train.average_last}: the run has {evaluations} evaluations after its start "
            f"(evaluation.every={config.evaluation.every:g}, {length_words(train, steps)}).",
        )
    sized = [key for key in ("evaluation.tokens", "evaluation.final_tokens") if key in changed]
    if sized and config.evaluation.context:
        source = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
        if not isinstance(source, VectorSource) and source.scores_all(config.evaluation.context):
            for key in sized:
                yield (
                    key,
                    f"{key}: would be ignored, because every evaluation takes all rows of "
                    f"data.source={config.data.source} that there are.",
                )


def _of_dropout(config: Config, changed: Collection[str]) -> Iterator[tuple[str, str]]:
    key, gradients = "probes.gradients.dropout", config.probes.gradients
    if key in changed and gradients and gradients.dropout and not _drops(config.model):
        yield key, f"{key}: would be ignored, because this model has no dropout."


def _drops(model: ModelConfig) -> bool:
    """Whether any dropout of the model has a rate above 0."""
    if model.architecture != "gpt":
        return False
    sites = [(model, "drop_embedding")]
    sites += [(block, site) for block in blocks(model) for site in ("drop_attention", "drop_shortcut")]
    rates = [block.drop_rate if getattr(block, site) is None else getattr(block, site) for block, site in sites]
    return any(rates) or any(block.drop_feed_forward for block in blocks(model))


def _of_match(config: Config, changed: Collection[str]) -> Iterator[tuple[str, str]]:
    if config.match.cost == "none":
        for key in ("match.by", "match.tolerance"):
            if key in changed:
                yield key, f"{key}: would be ignored, because match=none solves nothing. Write match=params."


def _of_tune(config: Config, changed: Collection[str]) -> Iterator[tuple[str, str]]:
    if not config.tune.keys:
        for key in ("tune.factor", "tune.points", "tune.seeds", "tune.max_trials"):
            if key in changed:
                yield key, f"{key}: would be ignored, because tune=none tunes nothing. Write tune=learning_rate."


def _of_metric(config: Config, changed: Collection[str]) -> dict[str, ConfigError]:
    """The primary metric, unless it is only the default that nobody asked for."""
    name = config.experiment.primary_metric
    if not name or PRIMARY not in changed and name == default_metric(config):
        return {}
    cause, why = _why_unmeasured(config, name, metric(name))
    if not why:
        return {}
    said = f"{PRIMARY}={name}: no run would have it, because {why}."
    return {PRIMARY: ConfigError(said, code="metric-of-no-run", key=PRIMARY, value=name, cause=cause)}


def default_metric(config: Config) -> str:
    """What is compared first where the experiment does not say."""
    return "loss" if config.train.budget is None else "final_loss"


def _why_unmeasured(config: Config, name: str, declared: Metric) -> tuple[str, str]:
    """(cause, sentence), both empty where a run measures it."""
    if "/" in name and declared.name != "parameters":
        return (
            "parts",
            f"only parameters are told apart by parts, as in parameters/attention, and {declared.name} is not",
        )
    if not declared.source:
        return "along-the-way", "it is measured along the way, by layer or by step, and a run has many values of it"
    if declared.source == "training" and config.train.budget is None:
        return "untrained", "train.budget is null: nothing is trained"
    if declared.source not in ("training", "run") and getattr(config.probes, declared.source, None) is None:
        return "probe-left-out", f"probes.{declared.source} is left out"
    if declared.gpt_only and config.model.architecture != "gpt":
        return "no-tokens", f"architecture={config.model.architecture} has no tokens"
    if name in ("final_excess", "entropy_floor") and not _entropy_known(config):
        return "entropy-unknown", f"nobody knows the entropy of data.source={config.data.source}"
    if name == "final_causal_loss" and all(block.causal for block in blocks(config.model)):
        return "all-causal", "every attention of the model is causal, and its loss is final_loss"
    return "", ""


def _entropy_known(config: Config) -> bool:
    from gptlab.data.batches import VectorSource, load

    source = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
    return not isinstance(source, VectorSource) and source.entropy is not None
