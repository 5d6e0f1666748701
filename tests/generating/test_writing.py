"""New tokens as text: whole characters, and nothing of a stop."""

from __future__ import annotations

import pytest

from gptlab.data.tokenizer import ByteTokenizer, IdsTokenizer
from gptlab.generating.writing import Writer

PROMPT = list(b"Once")


def pieces(text: bytes, *stops: str) -> list[str]:
    writer, found, ids = Writer(ByteTokenizer(), PROMPT, stops), [], list(text)
    for end in range(1, len(ids) + 1):
        stopped = writer.stops_at(ids[:end])
        found.append(writer.piece(ids[:end], last=stopped or end == len(ids)))
        if stopped:
            break
    return found


def test_a_character_comes_when_it_is_whole() -> None:
    assert pieces("aé€😀".encode()) == ["a", "", "é", "", "", "€", "", "", "", "😀"]


def test_what_never_becomes_a_character_comes_in_the_end() -> None:
    assert pieces(b"a\xf0\x9f") == ["a", "", "\ufffd"]
    assert "".join(pieces(b"\x80\x80\x80\x80\x80b")) == "\ufffd" * 5 + "b"


@pytest.mark.parametrize(
    ("text", "stops", "shown"),
    [
        (b"one. two", [". "], ["o", "n", "e", "", ""]),
        (b"aab", ["ab"], ["", "a", ""]),
        (b"a.b", [".!"], ["a", "", ".b"]),
        (b"xyz", ["z", "yz"], ["x", "", ""]),
        (b"ab", ["abc"], ["", "ab"]),
    ],
)
def test_a_stop_is_never_shown(text: bytes, stops: list[str], shown: list[str]) -> None:
    assert pieces(text, *stops) == shown


def test_a_stop_within_the_prompt_ends_nothing() -> None:
    assert "".join(pieces(b" upon", "Once")) == " upon"


def test_ids_keep_their_spaces() -> None:
    writer = Writer(IdsTokenizer(100), [3, 1])
    assert [writer.piece([4], last=False), writer.piece([4, 15], last=True)] == [" 4", " 15"]
    assert writer.text([4, 15]) == " 4 15"
