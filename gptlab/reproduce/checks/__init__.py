"""The checks, by theme. Importing this package registers them."""

from gptlab.reproduce.checks import (  # noqa: F401
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
