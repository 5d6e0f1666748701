"""`gptlab diff-model`: a model of your own against gptlab's, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.cli.arguments import Parser
from gptlab.errors import ConfigError
from gptlab.texts import harmless

HELP = """\
usage: gptlab diff-model MODULE:NAME [KEY=VALUE ...] [--config-dir FOLDER]

Holds your own GPT against gptlab's: names and shapes of the parameters, the first weights, and, with your weights
in both, the output of each module that both have. Prints the first that differs, and by how much, or "equal".
NAME is a class or function of the book's dictionary (GPT_CONFIG_124M), one without arguments, or a model. The module is
looked for in this folder. Exit code 0: equal; 1: something differs.

  gptlab diff-model my_gpt:GPTModel
  gptlab diff-model my_gpt:GPTModel model=tiny
  gptlab diff-model my_gpt:model_with_loaded_weights model.qkv_bias=true model.drop_rate=0

Weights that differ are no mistake in a model that has loaded some. When the outputs are equal then, and its text is
still junk, the model is right and the weights are in the wrong places: look at how they were loaded."""


def main(arguments: Sequence[str]) -> int:
    """Print what differs on stdout."""
    given = Parser(overrides=True).read(arguments)
    if given.help:
        print(HELP)
        return 0
    if not given.words or "=" in given.words[0]:
        raise ConfigError("diff-model: name your model first, as MODULE:NAME.", code="own-model-missing")
    from gptlab.check.own_model import differences, own_model
    from gptlab.planning.composing import compose

    name, *overrides = given.words
    config = compose(overrides, given.config_dirs)
    if config.model.architecture != "gpt":
        raise ConfigError("diff-model: compares with architecture=gpt only.", code="own-model-architecture")
    found = differences(config, own_model(name, config))
    for one in found:
        by = "" if one.by is None else f", by up to {one.by:.3g}"
        print(harmless(f"{one.what}: {one.where}: {one.said}{by}"))
    if not any(one.what in ("names", "shapes") for one in found):
        if not any(one.what == "weights" for one in found):
            print(f"weights: equal, bit for bit, to those drawn under seed={config.seed}")
        if not any(one.what == "output" for one in found):
            print("outputs: equal, with your weights in both")
    return 1 if found else 0
