"""Where configs come from: gptlab's own conf/, then the user's folders, in one search path.

The user's folders come after gptlab's: they add options, they never replace one. A file that would be passed over for
that reason is named in a warning.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.plugins.search_path_plugin import SearchPathPlugin

from gptlab.errors import ConfigError

ENVIRONMENT = "GPTLAB_CONF_PATH"
PROVIDER = "gptlab-user"

_PACKAGE = Path(__file__).resolve().parent.parent
# A wheel carries conf/ inside the package; in a checkout it stands beside it. Absolute, so that any folder will do.
CONF_DIR = next((d for d in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if d.is_dir()), _PACKAGE / "conf")


def user_dirs(extra: Iterable[str | Path] = ()) -> list[Path]:
    """`./conf`, the folders in GPTLAB_CONF_PATH, then `extra`; existing, absolute, each once, without gptlab's own.

    ConfigError for a folder that was named and does not exist.
    """
    named = [(ENVIRONMENT, part) for part in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if part]
    named += [("config dir", str(part)) for part in extra]
    for origin, part in named:
        if not Path(part).is_dir():
            raise ConfigError(
                f"{origin}: there is no folder {part!r}.", code="config-dir-missing", key=origin, value=part
            )
    folders = [Path("conf"), *(Path(part) for _, part in named)]
    found = dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir())
    return [folder for folder in found if folder != CONF_DIR.resolve()]


def passed_over(folders: Sequence[Path]) -> list[str]:
    """One warning per folder that holds files which an earlier folder already provides with another content."""
    messages = []
    for position, folder in enumerate(folders):
        hidden = []
        for file in sorted(folder.rglob("*.y*ml")):
            name = file.relative_to(folder)
            earlier = next((d / name for d in (CONF_DIR, *folders[:position]) if (d / name).is_file()), None)
            if earlier and earlier.read_bytes() != file.read_bytes():
                hidden.append(f"{name} (used: {earlier})")
        if hidden:
            more = f" and {len(hidden) - 3} more" if len(hidden) > 3 else ""
            messages.append(
                f"{folder}: not used, because another folder comes first: {', '.join(hidden[:3])}{more}. Rename yours."
            )
    return messages


def shown(path: Path) -> str:
    """A path as the user would write it: from here, where it is below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def search_path(folders: Sequence[Path]) -> ConfigSearchPath:
    """Hydra's search path with gptlab's conf/ as the main source and the user's folders behind it."""
    path = create_config_search_path(str(CONF_DIR))
    _add(path, folders)
    return path


class UserFolders(SearchPathPlugin):
    """Adds the user's folders when Hydra itself builds the search path, for its own flags such as --help and --info.

    Any other Hydra application in the same process keeps its search path: the main source tells them apart.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if any(item.provider == "main" and item.path == str(CONF_DIR) for item in search_path.get_path()):
            _add(search_path, user_dirs())


def _add(path: ConfigSearchPath, folders: Sequence[Path]) -> None:
    present = {item.path for item in path.get_path()}
    for folder in folders:
        if str(folder) in present:
            continue
        if any(item.provider == "schema" for item in path.get_path()):  # Hydra wants its schema to stay last
            path.prepend(PROVIDER, str(folder), anchor=SearchPathQuery(provider="schema"))
        else:
            path.append(PROVIDER, str(folder))
