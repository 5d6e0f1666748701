"""The tokenizer in a tokenizer.json or in the metadata of GGUF, as Hugging Face's `tokenizers` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gptlab.data.tokenizer import check_unicode
from gptlab.errors import GptlabError
from gptlab.weights.gguf_file import tokenizer as gguf_tokenizer


class FileTokenizer:
    """Ids as `tokenizers` gives them, without the special tokens that a chat would add.

    GptlabError where the package is not installed, or the file is no tokenizer.
    """

    name = "from_weights"

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers  # noqa: F401 - looked for before the file is blamed
        except ImportError as error:
            raise GptlabError(
                f"{path}: needs the package tokenizers: pip install tokenizers.", code="tokenizers-missing", file=path
            ) from error
        try:
            self._inner = (gguf_tokenizer if path.suffix == ".gguf" else _of_json)(path)
        except GptlabError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise GptlabError(
                f"{path}: is no tokenizer that the package tokenizers can read.", code="tokenizer-file", file=path
            ) from error
        self.n_vocab: int = self._inner.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        check_unicode(text)
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        pieces, known = [], []
        for token in (*ids, -1):
            if 0 <= token < self.n_vocab:
                known.append(token)
                continue
            pieces.append(self._inner.decode(known, skip_special_tokens=False) if known else "")
            pieces.append(f"<{token}>" if token >= 0 else "")
            known = []
        return "".join(pieces)

    def byte_lengths(self) -> None:
        return None


def _of_json(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
