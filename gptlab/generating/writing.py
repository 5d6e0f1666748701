"""New tokens as text, while they come: whole characters only, and nothing of a text that stops it."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.data.tokenizer import Tokenizer

_UNFINISHED = 3  # bytes of a UTF-8 character that may have come without the last one


class Writer:
    """The text of one row. `stops`: what ends it; the text is cut before the first of them."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: list[int], stops: Sequence[str] = ()) -> None:
        self.tokenizer, self.prompt_ids, self.stops = tokenizer, prompt_ids, tuple(stops)
        self.before = len(tokenizer.decode(prompt_ids))
        self.written = 0

    def text(self, ids: list[int]) -> str:
        """What these new ids add to the prompt, up to the first stop."""
        whole = self._whole(ids)
        return whole[: min((place for stop in self.stops if (place := whole.find(stop)) >= 0), default=None)]

    def stops_at(self, ids: list[int]) -> bool:
        """Whether one of the stops has come."""
        whole = self._whole(ids) if self.stops else ""
        return any(stop in whole for stop in self.stops)

    def piece(self, ids: list[int], last: bool) -> str:
        """What is new since the last call and will not change any more; all that is left with the `last` one."""
        text = self.text(ids)
        safe = len(text) if last else len(text) - self._unsure(text)
        piece = text[self.written : safe]
        self.written += len(piece)
        return piece

    def _whole(self, ids: list[int]) -> str:
        return self.tokenizer.decode(self.prompt_ids + ids)[self.before :]

    def _unsure(self, text: str) -> int:
        """How many characters at the end may change with the next token, or turn out to begin a stop."""
        broken = 0
        while broken < min(_UNFINISHED, len(text)) and text[-1 - broken] == "\ufffd":
            broken += 1
        lengths = (n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
        return max(broken, max(lengths, default=0))
