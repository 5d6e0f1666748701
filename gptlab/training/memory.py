"""What a training needs at its peak, before it runs."""

from __future__ import annotations

from gptlab import registry
from gptlab.config import Config
from gptlab.probes.shapes import memory_estimate
from gptlab.training.kernels.loss import chunk_rows

BYTES = 4  # of a float32


def peak_bytes(config: Config) -> int:
    """Weights, gradients, optimizer, and the activations of one part of a batch, estimated from the skeleton.

    Only a chunk of the logits is there at a time (`gptlab.training.kernels.loss`). bf16 needs less than this.
    """
    train, vocabulary = config.train, config.model.vocab_size
    assert train.context is not None
    rows = train.batch_size // train.accumulate
    weights, peak = memory_estimate(config.model, rows, train.context)
    tokens = rows * train.context
    never_there = tokens - min(tokens, chunk_rows(vocabulary))
    states = int(registry.get("optimizer", train.optimizer).facts["states"])
    return peak + states * weights - 3 * BYTES * vocabulary * never_there
