"""gptlab: an ablation bench for GPT architectures.

    cfg = gptlab.compose(["model=tiny", "ablation=[relu,post_ln]"])
    model = gptlab.build(cfg)  # a plain nn.Module: token ids (B, T) in, logits (B, T, vocab_size) out
    run = gptlab.run(cfg)      # what the command line does for one variant
    gptlab.sweep([...], seed=range(5))  # a study; the same call again runs only what is missing
    gptlab.load(folder).runs   # a study's tables, as data frames
    gptlab.trained(folder)     # the model that a run has left, with its tokenizer
    gptlab.load_weights(path)  # a model of another project; gptlab.inspect looks first, gptlab.export writes one
    gptlab.generate(model, [[1, 2]])  # what it makes of a prompt
    gptlab.compare(folder)     # its variants against the baseline, with intervals and verdicts

Importing gptlab is cheap: torch is loaded with the first call that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gptlab.errors import ConfigError, GptlabError
from gptlab.registry import register

if TYPE_CHECKING:
    from gptlab.api import Run, build, compare, compose, export, generate, inspect, load, load_weights, run, trained
    from gptlab.sweeping import Sweep, sweep

__version__ = "0.1.0"
__all__ = [
    "ConfigError", "GptlabError", "Run", "Sweep", "build", "compare", "compose", "export", "generate",
    "inspect", "load", "load_weights", "register", "run", "sweep", "trained",
]  # fmt: skip


_OF_API = {name for name in __all__ if name not in ("ConfigError", "GptlabError", "Sweep", "register", "sweep")}


def __getattr__(name: str) -> Any:
    if name in _OF_API:
        from gptlab import api

        return getattr(api, name)
    if name in ("Sweep", "sweep"):
        from gptlab import sweeping

        return getattr(sweeping, name)
    raise AttributeError(f"module 'gptlab' has no attribute {name!r}")
