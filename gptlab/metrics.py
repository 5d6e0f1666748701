"""Every metric, declared once: what it is called, its unit, which way is better, and how it may be compared.

Probes write values under these names; tables, figures and statistics ask here how to treat them. Light on purpose: no
torch, no pandas, so that any layer may import it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from gptlab.errors import ConfigError, unknown

Direction = Literal["lower", "higher", "neither"]
Kind = Literal["exact", "stochastic", "positive_scale", "timing"]
_SOURCES: dict[str, frozenset[str]] = {
    "run": frozenset({"seconds"}),
    "training": frozenset({
        "final_loss", "final_excess", "final_causal_loss", "best_loss", "best_step", "heldout_loss", "heldout_error",
        "heldout_bits_per_byte", "initial_loss", "initial_loss_expected", "entropy_floor",
        "unigram_entropy", "steps", "tokens", "training_flops", "train_seconds", "tokens_per_second",
    }),
    "parameters": frozenset({
        "parameters", "parameters_active", "parameters_tied", "parameters_untied", "mib", "flops_forward_per_token",
        "flops_visible_per_token", "flops_training_per_token",
    }),
    "gradients": frozenset({
        "loss", "ln_vocab_size", "grad_norm", "grad_norm_first", "grad_norm_last", "grad_mean_abs"
    }),
    "activations": frozenset({"logit_std", "log_z"}),
}  # fmt: skip
_OF_TOKENS = ("parameters_tied", "parameters_untied", "ln_vocab_size", "logit_std", "log_z")
_COUNTS = ("parameters", "steps", "tokens", "FLOPs")
_TRAINED = ("final_", "train_loss", "auxiliary_", "validation_", "excess", "best_", "heldout_")


@dataclass(frozen=True)
class Metric:
    """One measured quantity.

    `direction`: which way is better, if either. `kind` says what a difference means: *exact* values are counted, so
    they are printed and never tested; *stochastic* ones vary with the seed; *positive_scale* ones vary by factors, so
    they are compared as ratios; *timing* depends on the machine and its load. `source`: what gives a run its one value:
    itself, its training, or a probe; empty where it has many, or none.
    """

    name: str
    unit: str
    direction: Direction
    kind: Kind
    meaning: str
    source: str = ""

    @property
    def gpt_only(self) -> bool:
        """Whether only a model of tokens has it."""
        return self.name in _OF_TOKENS

    @property
    def counts(self) -> bool:
        """Whether its values are whole numbers of things, and shown with every digit."""
        return self.kind == "exact" or self.unit in _COUNTS

    @property
    def trained(self) -> bool:
        """Whether the value depends on how long the run was trained."""
        return self.name.startswith(_TRAINED)


_ALL = (
    Metric("parameters", "parameters", "lower", "exact", "distinct weights; a shared tensor counts once"),
    Metric("parameters_active", "parameters", "lower", "exact", "weights that a token meets, if it passes some by"),
    Metric("parameters_untied", "parameters", "lower", "exact", "weights if the output head had its own matrix"),
    Metric("parameters_tied", "parameters", "lower", "exact", "weights if the output head shared the token embedding"),
    Metric("mib", "MiB", "lower", "exact", "memory of the weights, as stored (4 bytes each in float32)"),
    Metric(
        "flops_forward_per_token",
        "FLOPs/token",
        "lower",
        "exact",
        "of a forward pass; masked pairs included",
    ),
    Metric("flops_visible_per_token", "FLOPs/token", "lower", "exact", "of a forward pass; masked pairs left out"),
    Metric(
        "flops_training_per_token",
        "FLOPs/token",
        "lower",
        "exact",
        "of forward and backward together",
    ),
    Metric("loss", "nats/token", "neither", "stochastic", "of one batch before training; squared error for vectors"),
    Metric("ln_vocab_size", "nats/token", "neither", "exact", "ln(vocab_size): the loss of guessing all words equally"),
    Metric("grad_norm", "L2 norm", "neither", "positive_scale", "square root of the sum of squared gradients"),
    Metric("grad_norm_first", "L2 norm", "neither", "positive_scale", "grad_norm of the block nearest the input"),
    Metric("grad_norm_last", "L2 norm", "neither", "positive_scale", "grad_norm of the block nearest the output"),
    Metric("grad_mean_abs", "mean |gradient|", "neither", "positive_scale", "mean absolute gradient over the weights"),
    Metric("seconds", "s", "lower", "timing", "wall time of the whole run"),
    Metric("margin", "logits", "neither", "stochastic", "logit of the chosen token minus that of the runner-up"),
    Metric("logit_std", "logits", "neither", "positive_scale", "s.d. of the logits over the vocabulary"),
    Metric("log_z", "nats", "neither", "stochastic", "mean log of the sum of exp(logits)"),
    Metric("stream_rms", "RMS", "neither", "positive_scale", "root mean square of the residual stream"),
    Metric("branch_rms", "RMS", "neither", "positive_scale", "root mean square of a branch's output"),
    Metric("branch_ratio", "ratio", "neither", "positive_scale", "RMS of what a branch adds over RMS of the stream"),
    Metric("attention_entropy", "nats", "neither", "stochastic", "mean entropy of the attention weights of a token"),
    Metric("attention_logit_max", "logits", "neither", "stochastic", "largest logit before the attention's softmax"),
    Metric("router_entropy", "nats", "neither", "stochastic", "mean entropy of a token's shares among the experts"),
    Metric("expert_load", "ratio", "neither", "stochastic", "tokens of one expert over the mean of all"),
    Metric("expert_load_max", "ratio", "lower", "stochastic", "tokens of the busiest expert over the mean"),
    Metric("idle_experts", "fraction", "lower", "stochastic", "experts that no token of the batch has chosen"),
    Metric("dead_fraction", "fraction", "lower", "stochastic", "units without gradient for any token of the batch"),
    Metric("zero_gradient_fraction", "fraction", "neither", "stochastic", "activations whose slope is exactly zero"),
    Metric("effective_rank", "dimensions", "neither", "stochastic", "exp of the entropy of the singular values"),
    Metric("token_cosine", "cosine", "neither", "stochastic", "mean cosine between the vectors of two tokens"),
    Metric("grad_stream_norm", "L2 norm", "neither", "positive_scale", "gradient of the stream where a branch begins"),
    Metric("grad_shortcut_norm", "L2 norm", "neither", "positive_scale", "the part of it that takes the shortcut"),
    Metric("grad_branch_norm", "L2 norm", "neither", "positive_scale", "the part of it that takes the branch"),
    Metric("grad_split_cosine", "cosine", "neither", "stochastic", "between the two parts; -1 where they cancel"),
    Metric("path_share", "fraction", "neither", "stochastic", "mean |part of a gradient| by later branches on its way"),
    Metric("train_loss", "nats/token", "lower", "stochastic", "loss of the batch of one step, before its update"),
    Metric("auxiliary_loss", "nats/token", "neither", "stochastic", "what a part adds to the loss of a step, weighted"),
    Metric("validation_loss", "nats/token", "lower", "stochastic", "mean cross-entropy over the validation rows"),
    Metric("excess", "nats/token", "lower", "stochastic", "validation loss above the entropy of the language"),
    Metric(
        "causal_loss", "nats/token", "lower", "stochastic", "loss of a model without a mask when it is used with one"
    ),
    Metric("learning_rate", "1", "neither", "exact", "learning rate of one step"),
    Metric("final_loss", "nats/token", "lower", "stochastic", "mean validation loss of the last evaluations"),
    Metric("final_excess", "nats/token", "lower", "stochastic", "mean excess of the last evaluations"),
    Metric("final_causal_loss", "nats/token", "lower", "stochastic", "mean causal loss of the last evaluations"),
    Metric("best_loss", "nats/token", "lower", "stochastic", "lowest validation loss on the way"),
    Metric("best_step", "steps", "neither", "stochastic", "the step of best_loss"),
    Metric("heldout_loss", "nats/token", "lower", "stochastic", "mean over the whole held-out part, at the end"),
    Metric("heldout_error", "nats/token", "neither", "stochastic", "standard error of heldout_loss over documents"),
    Metric("heldout_bits_per_byte", "bits/byte", "lower", "stochastic", "heldout_loss for each byte of text, in bits"),
    Metric("initial_loss", "nats/token", "neither", "stochastic", "validation loss before training"),
    Metric("initial_loss_expected", "nats/token", "neither", "stochastic", "ln V + s^2/2 for logits of s.d. s"),
    Metric("entropy_floor", "nats/token", "neither", "exact", "entropy of the language given all that came before"),
    Metric("unigram_entropy", "nats/token", "neither", "exact", "entropy of the frequencies of tokens"),
    Metric("steps", "steps", "neither", "exact", "optimizer steps made"),
    Metric("tokens", "tokens", "neither", "exact", "training tokens seen"),
    Metric("training_flops", "FLOPs", "neither", "exact", "matrix products of the whole training"),
    Metric("train_seconds", "s", "lower", "timing", "wall time of the training steps alone"),
    Metric("tokens_per_second", "tokens/s", "higher", "timing", "training tokens per second of training steps"),
    Metric("update_ratio", "1", "neither", "positive_scale", "root mean square of a step over that of the weights"),
)
_OF = {name: source for source, names in _SOURCES.items() for name in names}
METRICS: dict[str, Metric] = {metric.name: replace(metric, source=_OF.get(metric.name, "")) for metric in _ALL}
OWN = frozenset(METRICS)  # those of gptlab itself: a record of a run states the others, so that it can be read alone


def declare(metric: Metric) -> Metric:
    """Make a plugin's metric known. ConfigError for a name that stands for another one, and for what cannot be one."""
    for what, value, allowed in (
        ("direction", metric.direction, get_args(Direction)), ("kind", metric.kind, get_args(Kind))
    ):  # fmt: skip
        if value not in allowed:
            raise unknown(f"metric {metric.name}: {what}", value, allowed)
    present = METRICS.setdefault(metric.name, metric)
    if present != metric and (metric.name in OWN or present.source != metric.source):
        raise ConfigError(
            f"metric {metric.name!r} is already declared, as: {present.meaning} [{present.unit}].",
            code="metric-declared-twice",
            name=metric.name,
            meaning=present.meaning,
            unit=present.unit,
        )
    METRICS[metric.name] = metric  # by its own plugin, changed and loaded again
    return metric


def metric(name: str, where: str = "metric") -> Metric:
    """The declaration of `name`. Names with a slash belong to the metric before it: `parameters/attention`.

    ConfigError, naming the key `where`, with the closest match when there is no such metric.
    """
    base = name.split("/", 1)[0]
    if base not in METRICS:
        raise unknown(where, name, METRICS)
    return METRICS[base]
