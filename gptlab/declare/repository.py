"""Reading config files: what is wrong with one of the user's is said before Hydra sees it, with file and line.

Only files from the user's folders are looked at; gptlab's own are tested.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError

from gptlab.declare.option_texts import Written, written
from gptlab.declare.sources import CONF_DIR, shown
from gptlab.declare.typed_text import keep
from gptlab.declare.user_files import UserFile, check_values, looked_at
from gptlab.errors import ConfigError, wrong_value


class CheckedRepository(ConfigRepository):
    """Hydra's repository of config files, which refuses what the user cannot have meant."""

    def __init__(self, search_path: ConfigSearchPath, folders: Sequence[Path]) -> None:
        super().__init__(search_path)
        self._folders = folders
        self._files: dict[str, UserFile] = {}
        self.written: Written = {}  # options, as the files that were loaded have them
        self.made: dict[str, dict[str, Any]] = {}  # presets that no file holds: what the weights of a file imply

    def __deepcopy__(self, memo: dict[int, Any]) -> CheckedRepository:
        """Hydra copies it for each composition, to give it other sources; what was looked at stays known."""
        return copy.copy(self)

    def load_config(self, config_path: str) -> ConfigResult | None:
        """As Hydra's. ConfigError, with file and line, for a file of the user's that cannot be used."""
        name = config_path.removesuffix(".yaml")
        if name in self.made:
            body = OmegaConf.create(self.made[name])
            return ConfigResult("gptlab", f"made://{name}", body, {"package": None}, defaults_list=[])
        if "/" in name:
            refuse_two(self._folders, name)
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        path = next((f / f"{name}.yaml" for f in self._folders if source and source.path == str(f)), None)
        if path is None:
            return super().load_config(config_path)
        if name not in self._files:
            self._files[name] = looked_at(path, name)
        try:
            result = super().load_config(config_path)
        except GrammarParseError as error:
            key = str(error.full_key)
            line = self._files[name].line(key)
            raise ConfigError(
                f"{shown(path)}, line {line}: {key}: a ${{ has no }}. Write ${{KEY}}.",
                code="interpolation-open",
                line=line,
            ) from error
        if result is not None and isinstance(result.config, DictConfig):
            file = self._files[name]
            keep(result.config, file.tree, file.package)
            self.written |= written(file.tree, file.package, OmegaConf.to_container(result.config, resolve=False))
        if result is not None and "/" in name:
            check_values(self._files[name], OmegaConf.to_container(result.config, resolve=False), name)
        return result

    def where(self, key: str, names: Collection[str]) -> str:
        """`conf/ablation/mine.yaml, line 3`, for the last of the files `names` that sets `key`; else empty."""
        for file in reversed([self._files[name] for name in names if name in self._files]):
            line = file.line(key)
            if line:
                return f"{shown(file.path)}, line {line}"
        return ""


def refuse_two(folders: Sequence[Path], name: str) -> None:
    """ConfigError when two folders have different files for the one option that is asked for."""
    paths = [path for folder in (CONF_DIR, *folders) if (path := folder / f"{name}.yaml").is_file()]
    other = next((path for path in paths[1:] if path.read_bytes() != paths[0].read_bytes()), None)
    if other:
        group, _, option = name.rpartition("/")
        raise wrong_value(
            group,
            option,
            f"there are two files of this name, {shown(paths[0])} and {shown(other)}. Rename yours.",
            code="two-files-of-one-name",
            files=[shown(paths[0]), shown(other)],
        )


def refuse_short_ending(folders: Sequence[Path], group: str, option: str) -> None:
    """ConfigError when the option is there, in a file that ends with .yml."""
    for folder in folders:
        path = folder / group / f"{option}.yml"
        if path.exists():
            raise ConfigError(
                f"{shown(path)}: is not read, because config files end with .yaml. Rename it.",
                code="yml-not-read",
                file=shown(path),
            )
        path = folder / group / f"{option}.yaml"
        if path.is_symlink() and not path.exists():
            said = f"{shown(path)}: is a link to a file that is not there."
            raise ConfigError(said, code="dead-link", file=shown(path))
