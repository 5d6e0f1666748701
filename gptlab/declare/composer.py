"""One Hydra config loader and what gptlab asks of it. Nothing is run here; torch is loaded by the checks only."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from gptlab.config import Config, flatten
from gptlab.declare import option_texts, sources, weights_file
from gptlab.declare.hydra_errors import OPTIONS, translated
from gptlab.declare.layer_spans import as_written, for_hydra, one_key_each
from gptlab.declare.overrides import ablations, check_key, label, normalised, sets_values, settings
from gptlab.declare.repository import CheckedRepository, refuse_short_ending
from gptlab.declare.slips import refuse_slips
from gptlab.declare.sweep_functions import SweepFunctions, written
from gptlab.errors import ConfigError, unknown

HYDRA_BASE = "1.3"
_SEED = re.compile(r"seed=\d+")
_MODEL = re.compile(r"model=[\w/]+")


@dataclass(frozen=True)
class Job:
    """One set of overrides, composed and checked."""

    overrides: tuple[str, ...]
    parsed: tuple[Override, ...]
    config: Config
    labelled: bool  # by the user: on the command line or in a file
    changed: Mapping[str, Any]  # dotted keys that the user set, presets aside, with the values that were given
    idle: dict[str, ConfigError]  # key -> why this run does not use the value that the user gave it

    @property
    def ablations(self) -> tuple[str, ...]:
        return ablations(self.parsed)


class Composer:
    """Composes configs from gptlab's conf/ and the user's folders.

    Hydra's public entry points replace process-wide singletons, which a notebook or a running Hydra application would
    notice. The loader that they use needs none of them, so it is used alone.
    """

    def __init__(self, config_dirs: Sequence[str | Path] = ()) -> None:
        folders = sources.user_dirs(config_dirs)
        self.warnings = sources.passed_over(folders)
        store_schema()
        self._folders = folders
        with _hydra_base():
            self._loader = ConfigLoaderImpl(sources.search_path(folders))
            self._files = CheckedRepository(sources.search_path(folders), folders)
            self._loader.repository = self._files
        self._bare: dict[tuple[str, ...], dict[str, Any]] = {}
        self._plain: dict[tuple[str, ...], dict[str, Any]] = {}
        self._ablations: dict[str, dict[str, Any]] = {}

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Config group -> its options, the user's included."""
        with _hydra_base():
            names = [name for name in self._loader.list_groups("") if name != "hydra"]
            return {name: self._loader.get_group_options(name, ObjectType.CONFIG) for name in names}

    def parse(self, overrides: Sequence[str]) -> list[Override]:
        """Overrides, parsed; each key exists and none is given twice. Sweeps are allowed."""
        parsed: list[Override] = []
        refuse_slips(overrides, self.groups)
        for text in normalised(overrides):
            with _hydra_base(), translated(text):
                parsed += OverridesParser(SweepFunctions(), self._loader).parse_overrides([for_hydra(text)])
            parsed[-1].key_or_group, parsed[-1].input_line = as_written(parsed[-1].key_or_group), text
            check_key(parsed[-1], self.groups, self._refuse_missing)
        _refuse_repeats(parsed)
        return parsed

    def load(self, overrides: Sequence[str]) -> DictConfig:
        """The bare composition, with Hydra's own node, neither settled nor checked."""
        with _hydra_base(), translated(" ".join(overrides)):
            return self._loader.load_configuration("config", list(map(for_hydra, overrides)), RunMode.RUN)

    def settings(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Dotted key -> value of the bare composition, neither settled nor checked; interpolations as written."""
        return flatten(self._composed(tuple(normalised(overrides))))

    def job(
        self, overrides: Sequence[str], solved: Mapping[str, Any] | None = None, gives_way: Collection[str] = ()
    ) -> Job:
        """Compose, check and label one set of overrides. ConfigError for a sweep.

        `solved`: dotted key -> value, set after everything else; keys that `gives_way` names are left to it.
        """
        from gptlab.declare.idle_values import idle_values
        from gptlab.declare.to_config import from_omegaconf
        from gptlab.declare.training_checks import refuse_moved

        texts, parsed = tuple(normalised(overrides)), tuple(self.parse(overrides))
        for override in parsed:
            if override.is_sweep_override():
                raise ConfigError(
                    f"{override.input_line}: several values make a sweep, and this composes one config. "
                    "Use the command line, or a loop. A list is written [a,b].",
                    code="sweep-where-one-is-wanted",
                    override=override.input_line,
                )
        composed = self._composed(texts)
        if weights_file.weights_of(composed):
            weights_file.refuse_choice(parsed)
            weights_file.check_said(composed)
        if (retyped := option_texts.quoted(texts, composed)) != texts:
            return self.job(retyped)
        composed = option_texts.as_written(composed, self._files.written)
        changed = self._changed(composed, parsed)
        if solved:
            changed = {key: value for key, value in changed.items() if key not in gives_way} | dict(solved)
            for key, value in solved.items():
                composed = _with(composed, key.split("."), value)
        try:
            config = from_omegaconf(composed, changed)
        except ConfigError as error:
            raise self._placed(error, parsed) from error
        refuse_moved({override.key_or_group: override.value() for override in parsed}, config.train)
        self._check_baseline(config.experiment.baseline)
        labelled = bool(config.label)
        if not labelled:
            config.label = label(ablations(parsed), _beyond_choices(parsed))
        idle = {key: self._placed(error, parsed) for key, error in idle_values(config, changed).items()}
        return Job(texts, parsed, config, labelled, changed, idle)

    def sweep_values(self, override: Override) -> list[str]:
        """The values of a finite sweep as text. A glob is looked up among the options of its group."""
        with _hydra_base(), translated(str(override.input_line)):
            return [written(value) for value in override.sweep_iterator()]

    def ablation_keys(self, name: str) -> dict[str, Any]:
        """Dotted key -> value, as the file of this ablation sets them."""
        if name not in self._ablations:
            with _hydra_base(), translated(f"ablation={name}"):
                result = self._loader.repository.load_config(f"ablation/{name}")
            body = OmegaConf.to_container(result.config, resolve=False) if result else {}
            self._ablations[name] = flatten(body)
            if "seed" in self._ablations[name]:
                raise ConfigError(
                    f"ablation/{name}.yaml: sets seed, but a variant is compared with its baseline at the same seed. "
                    "Sweep seeds on the command line: seed=1,2,3.",
                    code="ablation-sets-seed",
                    name=name,
                )
            if any(key.split(".")[0] == "hydra" for key in self._ablations[name]):
                raise ConfigError(
                    f"ablation/{name}.yaml: an ablation cannot set hydra; a sweep belongs to an experiment.",
                    code="ablation-sets-hydra",
                    name=name,
                )
        return self._ablations[name]

    def _refuse_missing(self, text: str, group: str, names: Sequence[str]) -> None:
        """ConfigError for a choice that is not among the options of its group."""
        for name in names:
            if name not in self.groups[group] and "/" not in name:
                refuse_short_ending(self._folders, group, name)
                error = unknown(text, name, self.groups[group], OPTIONS)
                searched = [sources.shown(folder) for folder in self._folders] or ["no folder of yours (no conf/ here)"]
                wanted = f"{sources.shown(self._folders[0]) if self._folders else 'conf'}/{group}/{name}.yaml"
                said = f"{error} Searched: gptlab's own, {', '.join(searched)}; one of yours would be {wanted}."
                raise error.reworded(said, searched=searched, file=wanted)

    def _check_baseline(self, baseline: str) -> None:
        names = [name.strip() for name in baseline.strip("[]").split(",")]
        self._refuse_missing(f"experiment.baseline={baseline}", "ablation", names)

    def _placed(self, error: ConfigError, parsed: Sequence[Override]) -> ConfigError:
        """The error with file and line, where one of the user's files that are chosen here sets its key."""
        if not error.key or "file" in error.facts or any(override.key_or_group == error.key for override in parsed):
            return error
        chosen: list[str] = []
        for override in parsed:
            value = override.value()
            chosen += [f"{override.key_or_group}/{name}" for name in (value if isinstance(value, list) else [value])]
        place = self._files.where(error.key, chosen)
        file, _, line = place.rpartition(", line ")
        return error.reworded(f"{place}: {error}", file=file, line=int(line)) if place else error

    def _composed(self, texts: Sequence[str]) -> dict[str, Any]:
        """The composition as a nested dict, interpolations unresolved. The seeds of a variant are composed once."""
        seeds = [text for text in texts if _SEED.fullmatch(text)]
        rest = tuple(text for text in texts if text not in seeds)
        if rest not in self._bare:
            plain = self._loaded(rest)
            if weights := weights_file.weights_of(plain):
                plain = self._with_file(rest, weights)
            self._bare[rest] = plain
        seed = {"seed": int(seeds[0].partition("=")[2])} if seeds else {}
        return {**self._bare[rest], **seed}

    def _loaded(self, texts: Sequence[str]) -> dict[str, Any]:
        plain = OmegaConf.to_container(self.load(texts), resolve=False)
        assert isinstance(plain, dict)
        model = plain.get("model")
        if isinstance(model, dict):
            model["layers"] = one_key_each(model.get("layers", {}))
        return {str(key): value for key, value in plain.items() if key != "hydra"}

    def _with_file(self, texts: Sequence[str], weights: str) -> dict[str, Any]:
        """The composition with what a file of weights implies in the place of the preset of a model."""
        name, body = weights_file.preset(weights)
        self._files.made[f"model/{name}"] = body
        plain = self._loaded([*(text for text in texts if not _MODEL.fullmatch(text)), f"model={name}"])
        plain["model"]["weights"] = body["weights"]
        return plain

    def _changed(self, composed: dict[str, Any], parsed: Sequence[Override]) -> dict[str, Any]:
        """What was typed, and what ablations set beyond what the chosen model, data, probes and experiment say."""
        choices = [o for o in parsed if o.key_or_group in self.groups and isinstance(o.value(), str)]
        base = tuple(str(o.input_line) for o in choices if o.key_or_group != "ablation")
        base += tuple(str(o.input_line) for o in parsed if o.key_or_group == "model.weights")
        if base not in self._plain:
            self._plain[base] = flatten(self._composed(base))
        before, after = self._plain[base], flatten(composed)
        typed = {o.key_or_group: o.value() for o in parsed if o not in choices and o.key_or_group != "ablation"}
        keys = [key for key in flatten(typed) if after.get(key) is not None or key.startswith("model.")]
        keys += [key for key in after if key not in before or before[key] != after[key]]
        return {key: after[key] for key in keys if key in after}


def _with(plain: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of a nested dict with one value in it; what lies beside the path is shared."""
    if len(path) == 1:
        return {**plain, path[0]: value}
    inner = plain.get(path[0])
    return {**plain, path[0]: _with(inner if isinstance(inner, dict) else {}, path[1:], value)}


def store_schema() -> None:
    """Make the root schema known to Hydra under the name that conf/config.yaml uses. Safe to repeat."""
    node = OmegaConf.structured(Config)
    OmegaConf.set_struct(node.probes, False)  # a plugin's probe is one key more; `to_config` refuses what no module has
    ConfigStore.instance().store(name="gptlab_schema", node=node, provider="gptlab")


def _beyond_choices(parsed: Sequence[Override]) -> dict[str, str]:
    """What one config on its own is called after: the values. The choice of model or data is what they stand on."""
    chosen = ("model.weights", "model.weights_sha256")
    return {key: value for key, value in settings(parsed).items() if ("." in key or key == "rng") and key not in chosen}


def _refuse_repeats(parsed: Sequence[Override]) -> None:
    seen: dict[tuple[str, bool], str] = {}
    for override in parsed:
        # `model=tiny model={n_layers: 3}` chooses and then changes: not a repetition.
        place, text = (override.key_or_group, sets_values(override)), str(override.input_line).removeprefix("++")
        if place in seen:
            raise ConfigError(
                f"{override.key_or_group} is given twice: {seen[place]} and {text}.",
                code="key-given-twice",
                key_or_group=override.key_or_group,
                override=text,
            )
        seen[place] = text


@contextmanager
def _hydra_base() -> Iterator[None]:
    """Hydra's compatibility level, which is global, set for a moment and put back."""
    holder = version.VersionBase.instance()
    before = holder.getbase()
    version.setbase(HYDRA_BASE)
    try:
        yield
    finally:
        holder.version_base = before


def compose(overrides: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Config:
    """The checked config that these overrides declare: `compose(["model=tiny", "ablation=[relu,post_ln]"])`.

    `config_dirs` are searched for options after gptlab's own conf/, ./conf and GPTLAB_CONF_PATH. No global state
    changes, and a Hydra application that is running stays as it is. ConfigError for anything that cannot be run.
    """
    composer = Composer(config_dirs)
    for message in composer.warnings:
        warnings.warn(message, stacklevel=2)
    job = composer.job(overrides)
    for error in job.idle.values():
        raise error
    return job.config
