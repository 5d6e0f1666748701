"""What a training needs at its peak, before it runs."""

from __future__ import annotations

from gptlab import registry
from gptlab.config import Config
from gptlab.kernels import chunk_rows, resolved
from gptlab.probes.shapes import memory_estimate

BYTES = 4  # of a float32


def peak_bytes(config: Config) -> int:
    """Weights, gradients, optimizer, and the activations of one part of a batch, estimated from the skeleton.

    Unless the loss is `plain`, only a chunk of the logits is there at a time. bf16 needs less than this.
    """
    train, vocabulary = config.train, config.model.vocab_size
    assert train.context is not None
    rows = train.batch_size // train.accumulate
    weights, peak = memory_estimate(config.model, rows, train.context)
    tokens = rows * train.context
    chunked = resolved(config)["loss"] == "chunked"
    never_there = tokens - min(tokens, chunk_rows(vocabulary)) if chunked else 0
    states = int(registry.get("optimizer", train.optimizer).facts["states"])
    return peak + states * weights - 3 * BYTES * vocabulary * never_there
