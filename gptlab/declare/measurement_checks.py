"""What is refused of probes and data: lengths and kinds that do not fit the model, keys that no probe reads."""

from __future__ import annotations

from gptlab.config import Config
from gptlab.errors import ConfigError, wrong_value
from gptlab.generating.rules import check_sampling

MOST_PATHS = 16  # branches; each one more than doubles the rounding error of the path spectrum


def check_data_fits(config: Config) -> None:
    """A GPT takes tokens, and deep_mlp vectors of its sizes."""
    vectors = config.data.source == "vectors"
    if vectors != (config.model.architecture == "deep_mlp"):
        raise ConfigError(
            f"data.source={config.data.source}: architecture={config.model.architecture} "
            + ("takes token ids, not vectors." if vectors else "takes vectors; use data=five_layer_input."),
            code="data-for-architecture",
            source=config.data.source,
            architecture=config.model.architecture,
        )
    if not vectors:
        return
    sizes = config.model.layer_sizes or []
    for key, rows, width in (("inputs", config.data.inputs, sizes[0]), ("targets", config.data.targets, sizes[-1])):
        if rows and any(len(row) != width for row in rows):
            raise ConfigError(
                f"data.{key}: rows must hold {width} numbers, as model.layer_sizes={sizes} says.",
                code="rows-width",
                key=f"data.{key}",
                width=width,
                sizes=sizes,
            )


def check_contexts(config: Config) -> None:
    """No probe looks at more tokens than the model can take."""
    limit = config.model.context_length
    if config.model.architecture != "gpt":
        return
    for name in ("parameters", "shapes", "gradients", "activations"):
        probe = getattr(config.probes, name)
        if probe and probe.context and probe.context > limit:
            raise wrong_value(
                f"probes.{name}.context",
                probe.context,
                f"longer than model.context_length={limit}.",
                code="probe-context",
                limit=limit,
            )


def check_paths(config: Config) -> None:
    """The path spectrum is for models of few branches."""
    model, gradients = config.model, config.probes.gradients
    per_block = 1 if model.layout.endswith("_only") else 2
    count = model.n_layers * per_block if model.architecture == "gpt" else len(model.layer_sizes or []) - 1
    if gradients and gradients.paths and count > MOST_PATHS:
        raise ConfigError(
            f"probes.gradients.paths=true: this model has {count} branches, and the parts of a gradient can be told "
            f"apart for up to {MOST_PATHS}. Use fewer layers.",
            code="paths-too-many",
            key="probes.gradients.paths",
            value="true",
            count=count,
            most_paths=MOST_PATHS,
        )


def check_tokens(config: Config) -> None:
    """Vet the batch and the prompt now: a bad file or prompt should stop a sweep before its first run."""
    from gptlab.data.batches import VectorSource, load
    from gptlab.data.text import encode_prompt

    generation = config.probes.generation
    source = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
    if isinstance(source, VectorSource):
        return
    for name in ("gradients", "activations"):
        probe = getattr(config.probes, name)
        if probe and probe.context:
            try:
                source.check_batch(probe.batch_size, probe.context)
            except ConfigError as error:  # the training may have another context
                raise error.reworded(f"{error} This is the batch of probes.{name}.", probe=name) from error
    if config.train.budget is not None and config.train.context:
        source.vet(config.train.context)
    if generation:
        encode_prompt(source.tokenizer, generation.prompt, config.model.vocab_size)


def check_generation(config: Config) -> None:
    """What is asked of sampling has an effect."""
    if config.probes.generation:
        check_sampling(config.probes.generation, lambda key: f"probes.generation.{key}")


def why_not_probed(config: Config, key: str) -> str:
    """Why no probe would see a value of `data` or `probes`; empty when one does."""
    generation = config.probes.generation
    if config.data.source == "vectors":
        if key.startswith(("probes.gradients.", "probes.activations.")) and key.endswith(("batch_size", "context")):
            return "data.source=vectors has one fixed batch"
        if key in ("probes.parameters.context", "probes.shapes.context"):
            return "architecture=deep_mlp has no context"
        if key.startswith("probes.generation."):
            return "architecture=deep_mlp has no tokens to continue"
    elif key == "data.prompt" and generation is None:
        return "probes.generation is left out"
    elif key == "data.prompt" and generation and generation.prompt != config.data.prompt:
        return "probes.generation.prompt is set"
    return ""
