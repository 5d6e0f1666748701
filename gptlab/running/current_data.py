"""The data that a config names as it is now: what a run's record is compared with."""

from __future__ import annotations

import json
from dataclasses import asdict

from gptlab.config import Config
from gptlab.errors import GptlabError

_fixed: dict[str, str] = {}  # what follows from the config alone is made once, however many runs share it


def current_hash(config: Config) -> str:
    """SHA-256 (hex) of the data that `config` names; empty where it cannot be had.

    Of any kind of data, a plugin's too: files are read again if they may have changed.
    """
    from gptlab.data.batches import load
    from gptlab.data.kinds import kind

    try:
        seed = config.seed if "seed" in kind(config.data.source).component.inputs else 0
        key = json.dumps([asdict(config.data), config.model.vocab_size, seed], sort_keys=True)
        if key in _fixed:
            return _fixed[key]
        source = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
    except GptlabError:
        return ""
    if not source.files:
        _fixed[key] = source.hash
    return source.hash
