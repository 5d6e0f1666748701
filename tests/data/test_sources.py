import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlab.config import DataConfig
from gptlab.data.batches import VectorSource, load
from gptlab.data.numbers import RandomTokens
from gptlab.data.text import encode_prompt, first_tokens, python_docs, safe_prefix
from gptlab.data.text_files import text_of_files
from gptlab.data.texts import TextSource
from gptlab.data.tokenizer import make_tokenizer
from tests.support.refusals import refused


def tokens_of(vocab_size: int = 50257, seed: int = 123, **data: Any) -> TextSource | RandomTokens:
    source = load(DataConfig(**data), vocab_size=vocab_size, seed=seed)
    assert isinstance(source, TextSource | RandomTokens)
    return source


def whole(pattern: str) -> str:
    return "".join(piece for _, piece in text_of_files(pattern).pieces())


def test_python_docs_is_the_reference_of_this_python() -> None:
    source = tokens_of()
    batch = source.batch(2, 64)
    assert source.tokenizer.name == "gpt2"
    assert batch.inputs.shape == batch.targets.shape == (2, 64)
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert source.tokenizer.decode(batch.inputs[0].tolist()).startswith('The "assert" statement\n')
    assert sum(map(len, python_docs())) > 400_000


def test_windows_follow_each_other_and_targets_are_one_further() -> None:
    batch = tokens_of(source="string", text="0 1 2 3 4 5 6 7 8 9", tokenizer="ids").batch(3, 3)
    assert batch.inputs.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert batch.targets.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_too_little_data_says_how_much_there_is_and_how_much_is_needed() -> None:
    source = tokens_of(source="string", text="0 1 2 3 4 5 6 7 8 9", tokenizer="ids")
    with refused("too-few-tokens", where="data.text", name="ids", count=11):
        source.batch(2, 5)


def test_every_seed_gets_the_same_text() -> None:
    one, two = tokens_of(seed=1), tokens_of(seed=2)
    assert one.hash == two.hash
    assert torch.equal(one.batch(2, 8).inputs, two.batch(2, 8).inputs)


def test_random_tokens_follow_the_seed_and_fill_the_vocabulary() -> None:
    one, again, two = (tokens_of(vocab_size=12, seed=s, source="random_tokens") for s in (1, 1, 2))
    assert (one.tokenizer.name, one.tokenizer.n_vocab) == ("ids", 12)
    state = torch.get_rng_state()
    ids = one.tokens(1000)
    assert torch.equal(state, torch.get_rng_state())
    assert (ids, one.hash) == (again.tokens(1000), again.hash)
    assert ids != two.tokens(1000)
    assert one.hash != two.hash
    assert set(ids) == set(range(12))
    assert one.tokens(100) == ids[:100]


def test_vectors_are_the_rows_themselves() -> None:
    source = load(DataConfig(source="vectors", inputs=[[1, 0, -1]], targets=[[0]]), vocab_size=1, seed=1)
    assert isinstance(source, VectorSource)
    batch = source.batch(2, 64)
    assert source.tokenizer is None
    assert torch.equal(batch.inputs, torch.tensor([[1.0, 0.0, -1.0]]))
    assert torch.equal(batch.targets, torch.tensor([[0.0]]))


def test_the_hash_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    before = tokens_of(source="file", path=str(path)).hash
    assert before == tokens_of(source="string", text="one").hash
    path.write_text("two")
    assert tokens_of(source="file", path=str(path)).hash != before


def test_a_glob_reads_its_files_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt", "d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    assert whole(f"{tmp_path}/*.txt") == "a.txt\nb.txt"
    assert whole(f"{tmp_path}/**/*.txt") == "a.txt\nb.txt\nsub/c.txt"


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "[a].txt").write_bytes(b"\xef\xbb\xbfline\r\n")
    assert whole(f"{tmp_path}/[a].txt") == "line\r\n"


def _not_utf8(path: Path) -> None:
    path.write_bytes(b"ab\xff")


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda path: None, "text-path-not-found", {}),
        (lambda path: path.touch(), "text-path-empty", {"key": "data.path"}),
        (_not_utf8, "text-not-utf8", {"key": "data.path", "byte": 2}),
        (lambda path: path.mkdir(), "text-path-is-a-folder", {}),
        (lambda path: os.mkfifo(path), "text-path-not-a-file", {}),
    ],
)
def test_bad_files_give_one_short_message(
    make: Callable[[Path], None], code: str, facts: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    make(path)
    with refused(code, **facts) as caught:
        tokens_of(source="file", path=str(path))
    assert f"{caught.value}".startswith("data.path") and "\n" not in f"{caught.value}"


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("text")

    def refuse(*_: object) -> None:  # the permissions themselves would not stop root
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gptlab.data.text_files.open", refuse, raising=False)
    with refused("text-unreadable", key="data.path"):
        tokens_of(source="file", path=f"{tmp_path}/a.txt")


def test_a_glob_without_a_match(tmp_path: Path) -> None:
    with refused("text-path-not-found"):
        tokens_of(source="file", path=f"{tmp_path}/*.txt")


@pytest.mark.parametrize("text", ["", "a\ud800"])
@pytest.mark.parametrize("tokenizer", ["gpt2", "char", "ids"])
def test_bad_strings(text: str, tokenizer: str) -> None:
    with refused("lone-surrogate" if text else "text-empty", key="data.text"):
        tokens_of(source="string", text=text, tokenizer=tokenizer)


def test_data_outside_the_vocabulary() -> None:
    with refused(
        "token-outside-vocabulary",
        where="data.source=python_docs",
        outside=464,
        tokenizer="gpt2",
        vocab_size=300,
        choices="data.tokenizer=byte or char, other data",
    ):
        tokens_of(vocab_size=300, tokenizer="gpt2").batch(2, 8)
    with refused("too-many-characters", where="data.source=python_docs", n_vocab=103, vocab_size=12):
        tokens_of(vocab_size=12)
    with refused("ids-not-integers", where="data.text"):
        tokens_of(source="string", text="1 b", tokenizer="ids").batch(1, 1)


def test_prompts() -> None:
    gpt2, ids = make_tokenizer("gpt2", "", 50257), make_tokenizer("ids", "", 12)
    assert encode_prompt(gpt2, "Hello, I am", 50257) == [15496, 11, 314, 716]
    with refused("prompt-empty", key="probes.generation.prompt", value="''"):
        encode_prompt(gpt2, "", 50257)
    with refused("prompt-empty", key="here", value="' '"):
        encode_prompt(ids, " ", 12, where="here")
    where = "probes.generation.prompt='Hello, I am'"
    with refused("token-outside-vocabulary", where=where, outside=15496, tokenizer="gpt2", vocab_size=1000):
        encode_prompt(gpt2, "Hello, I am", 1000)
    with refused(
        "token-outside-vocabulary",
        where="probes.generation.prompt='0 12'",
        outside=12,
        tokenizer="ids",
        vocab_size=12,
        choices="another prompt",
    ):
        encode_prompt(ids, "0 12", 12)
    with refused("ids-not-integers", key="probes.generation.prompt", value="0 x"):
        encode_prompt(ids, "0 x", 12)
    with refused("lone-surrogate", start=1, key="probes.generation.prompt", value="a\ud800"):
        encode_prompt(gpt2, "a\ud800", 50257)


PIECES = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\x1c", "\xa0", "\u2003", "'", "'ll", "ab", "Ω", "12", "!?", "𝄞"]


@given(text=st.lists(st.sampled_from(PIECES)).map("".join), length=st.integers(0, 20))
@settings(deadline=None, max_examples=1000, derandomize=True)
def test_a_safe_prefix_has_the_tokens_of_the_whole_text(text: str, length: int) -> None:
    prefix = safe_prefix(text, length)
    assert len(prefix) >= min(length, len(text))
    for name in ("gpt2", "byte", "char"):
        tokenizer = make_tokenizer(name, text, 50257)
        ids = tokenizer.encode(prefix)
        assert ids == tokenizer.encode(text)[: len(ids)]


def test_a_safe_prefix_is_safe_at_many_places_of_real_text() -> None:
    text, tokenizer, pick = "\n".join(python_docs()), make_tokenizer("gpt2", "", 50257), random.Random(0)
    for _ in range(300):
        part = text[pick.randrange(len(text) - 2000) :][:2000]
        ids = tokenizer.encode(safe_prefix(part, pick.randrange(1, 1900)))
        assert ids == tokenizer.encode(part)[: len(ids)]


@pytest.mark.parametrize("text", ["word " * 300, "=" * 5000 + " end", " responsibilities" * 300, "", "a"])
def test_the_first_tokens_are_as_many_as_asked_for_or_as_there_are(text: str) -> None:
    tokenizer = make_tokenizer("gpt2", "", 50257)
    for count in (1, 10, 50, 10_000):
        assert first_tokens(tokenizer, text, count) == tokenizer.encode(text)[:count]


def test_only_as_much_text_is_read_as_is_needed() -> None:
    seen: list[int] = []

    class Counting:
        name, n_vocab = "byte", 256

        def encode(self, text: str) -> list[int]:
            seen.append(len(text))
            return list(text.encode())

        def decode(self, ids: object) -> str:
            raise NotImplementedError

    assert first_tokens(Counting(), "word " * 100_000, 10) == list(b"word word ")
    assert max(seen) < 100


@pytest.mark.parametrize(("text", "code"), [("1", "too-few-tokens-to-train"), ("1 2", "too-few-tokens-to-split")])
def test_two_tokens_are_text_and_one_is_none(text: str, code: str) -> None:
    with refused(code):
        tokens_of(source="string", text=text, tokenizer="ids").vet(1)
