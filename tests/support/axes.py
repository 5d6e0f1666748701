"""The table of docs/axes.md: every ablation that ships, where it comes from, who has it, which tests set it, its cost.

All of it is read from elsewhere: conf/, the docstrings of the components, the tests, and counts of the built thing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gptlab import registry
from gptlab.config import Config, ModelConfig, flatten
from gptlab.probes.parameters import counted

ROOT = Path(__file__).resolve().parents[2]
CONF, TESTS = ROOT / "conf", ROOT / "tests"
# In the order in which they say something: what compares with another project's model comes first.
ORACLES = (
    "model/test_presets_against_transformers",
    "model/test_against_transformers",
    "model/test_against_x_transformers",
)
OF_NO_FAMILY = ("deep_mlp", "dummy", "toy_lesson", "tiny")
_CITED = re.compile(r"\(([^()]*\b(?:19|20)\d\d[^()]*)\)")
_SLOT_OF = {registry.key_of(slot): slot for slot in registry.SLOTS} | dict.fromkeys(registry.SHORTCUTS, "shortcut")
Settings = dict[str, Any]


def table() -> str:
    """Markdown: one table for each group of keys."""
    groups: dict[str, list[str]] = {}
    for name in sorted(path.stem for path in (CONF / "ablation").glob("*.yaml") if path.stem != "none"):
        settings = read("ablation", name)["model"]
        groups.setdefault(_axis(settings), []).append(_row(name, settings))
    head = "| `ablation=` | what it is | source | published models | tests | parameters | FLOPs |\n" + "|---" * 7 + "|"
    return "\n\n".join(f"## {axis}\n\n{head}\n" + "\n".join(rows) for axis, rows in sorted(groups.items()))


def _row(name: str, settings: Settings) -> str:
    percents = [_percent(b / a - 1) for a, b in zip(_plain_cost(), cost(settings), strict=True)]
    models = presets_with(settings)
    shown = [f"`{model}`" for model in models[:4]] + ([f"and {len(models) - 4} more"] if len(models) > 4 else [])
    tests = [f"[{test.partition('/')[2]}](../tests/{test}.py)" for test in tests_of(name, settings, bool(models))]
    cells = (f"`{name}`", sentence(name), source(name, settings), ", ".join(shown), ", ".join(tests), *percents)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _percent(more: float) -> str:
    """`=` for what is equal; what rounds to nothing and is not has its sign."""
    return "=" if more == 0 else f"{100 * more:+.2f} %"


@cache
def _plain_cost() -> tuple[float, float]:
    return cost({})


def read(group: str, name: str) -> Settings:
    """A file of conf/ with those that it stands on."""
    body: Settings = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8")) or {}
    found: Settings = {}
    for other in body.pop("defaults", []):
        if isinstance(other, str) and other != "_self_":
            found = merged(found, read(group, other))
    return merged(found, body)


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Settings:
    inside = {
        k: merged(one[k], v) if isinstance(one.get(k), Mapping) and isinstance(v, Mapping) else v
        for k, v in other.items()
    }
    return {**one, **inside}


def cost(settings: Settings) -> tuple[float, float]:
    """(parameters, forward FLOPs per token) of GPT-2 124M with these settings."""
    plain = merged(dataclasses.asdict(ModelConfig()), settings)
    numbers = counted(Config(model=ModelConfig(**plain))).numbers
    return numbers["parameters"], numbers["flops_forward_per_token"]


def sentence(name: str) -> str:
    """The first of the file's comment."""
    lines = (CONF / "ablation" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    said = [line.removeprefix("#").strip() for line in lines if line.startswith("#") and "@package" not in line]
    return re.split(r"(?<=\.)\s+(?=[A-Z])", " ".join(said))[0].rstrip(".")


def _axis(settings: Settings) -> str:
    """The slot, or the key, that an ablation is about: the first that it names."""
    first = next((key for key in settings if key in _SLOT_OF), next(iter(settings)))
    if first == "options":
        first = next(iter(settings["options"]))
    return _SLOT_OF.get(first, first)


def named(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """(slot, component, option) of all that is chosen: the option is empty where the component itself is."""
    for key, value in settings.items():
        if key in _SLOT_OF and isinstance(value, str):
            yield _SLOT_OF[key], value, ""
    for slot, given in settings.get("options", {}).items():
        key = registry.key_of(slot)
        for option in given:
            yield slot, str(settings.get(key, getattr(ModelConfig(), key))), option
    for kind in settings.get("pattern", {}).get("kinds", {}).values():
        yield from named(kind)


def source(name: str, settings: Settings) -> str:
    """What the ablation's comment cites; else what the docstrings of its components, or of their options, do."""
    if own := _CITED.findall(sentence(name)):
        return "; ".join(own)
    found: dict[str, None] = {}
    for slot, component, option in named(settings):
        known = registry.components(slot).get(component)
        doc = (known.factory.__doc__ or "") if known else ""
        place = re.search(rf"^\s+{option}\s\s+(.*(?:\n\s{{12,}}\S.*)*)", doc, re.MULTILINE) if option else None
        text = place[1] if place else "" if option else doc.strip().split("\n\n")[0]
        found |= dict.fromkeys(" ".join(cited.split()) for cited in _CITED.findall(text))
    return "; ".join(found)


@cache
def presets() -> dict[str, Settings]:
    names = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
    return {name: read("model", name) for name in names if name not in OF_NO_FAMILY}


def presets_with(settings: Settings) -> list[str]:
    """Those that name the same components and words, and set the same options; sizes beside them may be others.

    Where an ablation is sizes alone, they are the same ones.
    """
    wanted = _leaves(settings)
    words = {key: value for key, value in wanted.items() if isinstance(value, (str, bool))}
    options = {key for key in wanted if key.startswith("options.")}
    found = []
    same = words or {key: value for key, value in wanted.items() if key not in options}
    for name, preset in presets().items():
        there = _leaves(preset)
        if options <= there.keys() and all(there.get(key) == value for key, value in same.items()):
            found.append(name)
    return found


def _leaves(settings: Settings) -> dict[str, Any]:
    """Dotted key -> value; a pattern is the keys that its kinds set."""
    plain = {key: value for key, value in settings.items() if key not in ("pattern", "layers")}
    kinds = (settings.get("pattern") or {}).get("kinds", {})
    inside = sorted({key for kind in kinds.values() for key in flatten(kind)})
    layers = {"layers": str(settings["layers"])} if settings.get("layers") else {}
    return {**flatten(plain), **({"pattern": " ".join(inside)} if kinds else {}), **layers}


@cache
def _tests() -> dict[str, str]:
    """Test, as a path below tests/ -> its text, those against another project's models first."""
    files = [path for room in ("model", "training") for path in sorted((TESTS / room).glob("test_*.py"))]
    names = [path.relative_to(TESTS).with_suffix("").as_posix() for path in files]
    return {name: (TESTS / f"{name}.py").read_text(encoding="utf-8") for name in dict.fromkeys((*ORACLES, *names))}


def tests_of(name: str, settings: Settings, published: bool) -> list[str]:
    """The first two tests that set all that the ablation sets. A published model is held against transformers."""
    patterns = list(_patterns(settings))
    found = [ORACLES[0]] if published else []
    for test, text in _tests().items():
        if re.search(rf"ablation={name}\b", text) or (patterns and all(re.search(each, text) for each in patterns)):
            found.append(test)
    return list(dict.fromkeys(found))[:2]


def _patterns(settings: Settings) -> Iterator[str]:
    """How a test in Python says what is chosen."""
    said = list(named(settings))
    for slot, component, option in said:
        value = settings.get("options", {}).get(slot, {}).get(option)
        if not option:
            if not any(other for where, _, other in said if where == slot):
                yield rf"""["']{component}["']"""
        elif isinstance(value, str):
            yield rf"""\b{option}["']?\s*[:=]\s*["']{value}["']"""
        else:
            nested = rf"""["']?{slot}["']?\s*[:=(]\s*\{{?[^{{}}()]*\b{option}["']?\s*[:=]"""
            yield rf"""{nested}|\b{slot}\.{option}\b"""
    for key, value in settings.items():
        if not said and not isinstance(value, Mapping):
            words = re.escape(str(value)) if isinstance(value, (str, bool)) else ""
            yield rf"""\b{key}["']?\s*[:=]\s*["']?{words}\b"""
