"""The checks, by theme. Importing this package registers them."""

from gptlab.book.reproduce.recomputed import (  # noqa: F401 - importing them registers what they recompute
    activations,
    attention,
    configuration,
    counting,
    feed_forward,
    generation,
    layer_norm,
    shapes,
    shortcuts,
    training,
)
