"""A study's command with more in it: each key that is given takes the values it had and the new ones.

So `seed=4,5 ablation=rope` on top of `ablation=none,relu seed=1,2,3` is the grid of three variants and five seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gptlab.config import flatten
from gptlab.declare.composer import Composer
from gptlab.errors import ConfigError
from gptlab.planning import sweep


def grown(composer: Composer, words: Sequence[str], added: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """The study's own `words`, with the values of `added`. `seeds`: all that it has runs of.

    ConfigError for a key whose earlier value cannot be told, and where nothing is new.
    """
    parsed = composer.parse(words)
    before = {override.key_or_group: sweep.choices(composer, override) for override in parsed}
    opened = sweep.experiment_sweep(composer, parsed)
    before |= {
        override.key_or_group: sweep.choices(composer, override)
        for override in composer.parse([f"{key}={values}" for key, values in opened.items() if key not in before])
    }
    after, new = dict(before), False
    if "seed" in before or len(set(seeds)) > 1:  # an earlier command may have run more than the latest one names
        named = before.get("seed", [])
        after["seed"] = [*(text for seed in sorted(set(seeds)) if (text := f"seed={seed}") not in named), *named]
        after["seed"].sort(key=lambda text: int(text.removeprefix("seed=")))
    for override in composer.parse(added):
        key = override.key_or_group
        old = after.get(key) or _default(composer, words, key, seeds)
        fresh = [text for text in sweep.choices(composer, override) if text not in old]
        after[key] = [*old, *fresh]
        new = new or bool(fresh)
    if not new:
        raise ConfigError(
            f"add: the study has {' '.join(added)} already. Its own command runs what is missing.",
            code="nothing-to-add",
            value=list(added),
        )
    return [
        _word(key, texts) if after[key] != before.get(key) else _own(words, key, texts) for key, texts in after.items()
    ]


def _own(words: Sequence[str], key: str, texts: Sequence[str]) -> str:
    """The word as it was typed, where nothing came to it."""
    return next((word for word in words if word.partition("=")[0].lstrip("+") == key), _word(key, texts))


def _word(key: str, texts: Sequence[str]) -> str:
    """`key=a,b,c` from `key=a`, `key=b`, `key=c`."""
    return f"{texts[0].partition('=')[0]}={','.join(text.partition('=')[2] for text in texts)}"


def _default(composer: Composer, words: Sequence[str], key: str, seeds: Sequence[int]) -> list[str]:
    """The value that the study's runs have without being told."""
    if key == "seed":
        return [f"seed={seed}" for seed in dict.fromkeys(seeds)]
    if key in ("ablation", "match", "tune"):
        return [f"{key}=none"]
    single = [word for word in words if not any(o.is_sweep_override() for o in composer.parse([word]))]
    values: Mapping[str, Any] = flatten(composer.job(single).config)
    if isinstance(values.get(key), bool | int | float | str):
        value = values[key]
        return [f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    raise ConfigError(
        f"add: {key} is not in the study's command, so its runs have a value without a name. Add seeds or ablations, "
        "or type the whole sweep.",
        code="no-earlier-value",
        key=key,
    )
