import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlab.config import DataConfig
from gptlab.data import cache, corpus, text
from gptlab.data.batches import load
from gptlab.data.texts import TextSource, _scored, stretches
from gptlab.data.tokenizer import make_tokenizer
from tests.support.refusals import refused


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GPTLAB_CACHE", str(tmp_path / "cache"))
    yield
    monkeypatch.undo()


def loaded(vocab_size: int = 50257, **data: Any) -> TextSource:
    made = load(DataConfig(**data), vocab_size=vocab_size, seed=1)
    assert isinstance(made, TextSource)
    return made


def file_of(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def all_ids(part: corpus.Part) -> list[int]:
    return part.rows(np.zeros(1, dtype=np.int64), len(part))[0].tolist()


PIECES = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\xa0", "'", "'ll", "ab", "Ω", "12", "!?", "𝄞"]


@given(
    documents=st.lists(st.lists(st.sampled_from(PIECES)).map("".join), min_size=1, max_size=3), size=st.integers(1, 9)
)
@settings(deadline=None, max_examples=300, derandomize=True)
def test_pieces_have_the_tokens_of_their_documents(documents: list[str], size: int) -> None:
    chunked = text.Text(lambda: [[d[i : i + 3] for i in range(0, len(d), 3)] for d in documents], lambda _: None)  # type: ignore[arg-type, return-value]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "PIECE", size)
        pieces = list(chunked.pieces())
    assert "".join(piece for _, piece in pieces) == "\n".join(documents)
    tokenizer = make_tokenizer("gpt2", "", 50257)
    for number, document in enumerate(documents):
        found = [i for n, piece in pieces if n == number for i in tokenizer.encode(piece)]
        assert found == tokenizer.encode("\n" + document if number else document)
    whole = [i for _, piece in pieces for i in tokenizer.encode(piece)]
    assert chunked.first_tokens(tokenizer, 7) == whole[:7]


def test_a_text_without_a_safe_place_is_cut_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE", 4)
    monkeypatch.setattr(text, "LONGEST_PIECE", 16)
    chunks = text.Text(lambda: [["x" * 5] * 20], lambda _: None)  # type: ignore[arg-type, return-value]
    assert max(len(piece) for _, piece in chunks.pieces()) == 20
    assert text.last_safe_cut("a" + " " * 1_000_000) == 1


@pytest.mark.parametrize("tokenizer", ["gpt2", "byte", "char"])
def test_position_holds_out_the_end(tokenizer: str, tmp_path: Path) -> None:
    content = "".join(f"line {i}\n" for i in range(300))
    source = loaded(source="file", path=file_of(tmp_path / "a.txt", content), tokenizer=tokenizer)
    training, validation = source._parts
    whole = source.tokenizer.encode(content)
    assert all_ids(training) + all_ids(validation) == whole
    assert len(validation) == len(whole) // 10


def test_document_holds_out_whole_documents_and_nothing_of_them_is_trained_on(tmp_path: Path) -> None:
    for i in range(20):
        file_of(tmp_path / f"{i:02}.txt", chr(ord("a") + i) * (50 + i))
    source = loaded(
        source="file", path=f"{tmp_path}/*.txt", tokenizer="byte", split="document", validation_fraction=0.2
    )
    held_out = {row for batch in source.validation_batches(640, 16) for row in batch.targets.unique().tolist()}
    trained = {i for step in range(100) for i in source.train_batch(step, 8, 16, seed=1).inputs.unique().tolist()}
    assert held_out & trained <= {10}  # the line end
    assert len(held_out | trained) == 21
    training, validation = source._parts
    assert 0.1 * len(training) < len(validation) <= 0.25 * len(training)
    assert len(training) + len(validation) == sum(51 + i for i in range(20)) - 1


@given(
    lengths=st.lists(st.integers(0, 9), min_size=2, max_size=30).filter(lambda ls: sum(n > 0 for n in ls) > 1),
    fraction=st.floats(0.01, 0.5),
)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_a_split_by_document_keeps_every_token_once(lengths: list[int], fraction: float) -> None:
    ids = np.arange(sum(lengths), dtype=np.uint16)
    whole = corpus.Corpus(ids, np.cumsum(lengths, dtype=np.int64), sum(lengths) - 1)
    training, validation = corpus.split(whole, "document", fraction, "key", lengths)
    one, two = all_ids(training), all_ids(validation)
    assert sorted(one + two) == ids.tolist()
    assert one and two
    ends = np.cumsum(lengths)
    assert not {int(np.searchsorted(ends, i, side="right")) for i in one} & {
        int(np.searchsorted(ends, i, side="right")) for i in two
    }


def test_a_batch_of_text_follows_from_seed_and_step_alone() -> None:
    one, two = loaded(tokenizer="byte"), loaded(tokenizer="byte")
    later = one.train_batch(3, 4, 32, seed=1)
    assert torch.equal(later.inputs, two.train_batch(3, 4, 32, seed=1).inputs)
    assert torch.equal(later.inputs[:, 1:], later.targets[:, :-1])
    assert not torch.equal(later.inputs, two.train_batch(4, 4, 32, seed=1).inputs)
    assert not torch.equal(later.inputs, two.train_batch(3, 4, 32, seed=2).inputs)


def test_training_reaches_every_place_and_validation_overlaps_nowhere(tmp_path: Path) -> None:
    content = " ".join(map(str, range(100)))
    source = loaded(100, source="file", path=file_of(tmp_path / "a.txt", content), tokenizer="ids")
    starts = {int(i) for step in range(200) for i in source.train_batch(step, 8, 4, seed=1).inputs[:, 0]}
    assert starts == set(range(86))  # 90 tokens to train on, rows of 5
    (batch,) = source.validation_batches(100, 4)
    assert batch.targets.tolist() == [[91, 92, 93, 94], [95, 96, 97, 98], [96, 97, 98, 99]]
    scored = batch.targets[batch.weights > 0]  # type: ignore[operator]
    assert scored.tolist() == list(range(91, 100))
    assert set(batch.weights.unique().tolist()) == {0.0, 1 / 9}  # type: ignore[union-attr]
    (few,) = source.validation_batches(6, 2)
    assert few.targets.tolist() == [[91, 92], [93, 94], [95, 96]]


@given(targets=st.integers(1, 5000), tokens=st.integers(1, 6000), contexts=st.tuples(*[st.integers(1, 700)] * 2))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_the_same_targets_are_scored_once_whatever_the_context(
    targets: int, tokens: int, contexts: tuple[int, int]
) -> None:
    ids = np.arange(targets + 1, dtype=np.uint16)
    whole = corpus.Corpus(ids, np.array([targets + 1]), targets)
    part = corpus._part(whole, [(0, targets + 1)])
    starts, length = stretches(targets, tokens)
    scored = []
    for context in contexts:
        rows = list(_scored(part, starts, length, context))
        scored.append([int(i) for b in rows for i in b.targets[b.weights > 0]])  # type: ignore[operator]
        assert all(b.inputs.shape[1] == min(context, length) for b in rows)
        assert sum(float(b.weights.sum()) for b in rows) == pytest.approx(1)  # type: ignore[union-attr]
    assert scored[0] == scored[1]
    assert len(set(scored[0])) == len(scored[0]) == length * len(starts) <= min(tokens, targets)
    assert len(scored[0]) > min(tokens, targets) // 2


def test_tokenizers_hold_out_the_same_text(tmp_path: Path) -> None:
    for i in range(30):
        file_of(tmp_path / f"{i:02}.txt", " ".join(f"word{i} äöü" for _ in range(20 + 7 * i % 40)))
    held = []
    for tokenizer in ("byte", "char", "gpt2"):
        source = loaded(50257, source="file", path=f"{tmp_path}/*.txt", tokenizer=tokenizer, split="document")
        held.append(source.tokenizer.decode(all_ids(source._parts[1])))
        lengths = source.bytes_per_token()
        assert lengths is not None
        assert sum(lengths[i] for i in all_ids(source._parts[1])) == len(held[-1].encode())
    assert held[0] == held[1] == held[2]


def test_the_unigram_entropy_of_text_is_that_of_its_training_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_COUNTED_AT_ONCE", 7)
    source = loaded(source="string", text="aab" * 30 + "z" * 10, tokenizer="char")
    assert source.unigram(8) == pytest.approx(-(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3)))
    assert source.entropy is None


def test_tokens_are_made_once_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(tmp_path / "a.txt", "some words\n" * 200)
    first = loaded(source="file", path=path).train_batch(0, 2, 8, seed=1)
    monkeypatch.setattr(TextSource, "_encoded", lambda self: pytest.fail("tokenised again"))
    again = loaded(source="file", path=path)
    assert torch.equal(again.train_batch(0, 2, 8, seed=1).inputs, first.inputs)
    assert isinstance(again._parts[0].ids, np.memmap)
    assert again._parts[0].ids.dtype == np.uint16


def test_the_cache_follows_content_and_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for content in ("some words\n" * 200, "other words\n" * 200):
        for tokenizer in ("byte", "gpt2"):
            source = loaded(source="file", path=file_of(path, content), tokenizer=tokenizer)
            assert all_ids(source._parts[0])[:20] == source.tokenizer.encode(content)[:20]
    assert len(list((tmp_path / "cache" / "tokens").iterdir())) == 4


@pytest.mark.parametrize("name", ["ids.npy", "ends.npy", "ids.npy.sha256"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_cache_is_made_again(name: str, damage: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.txt", "some words\n" * 200)
    expected = all_ids(loaded(source="file", path=path)._parts[0])
    (victim,) = (tmp_path / "cache").rglob(name)
    content = victim.read_bytes()
    victim.unlink()
    if damage == "cut":
        victim.write_bytes(content[:-1])
    elif damage == "flipped":
        victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    cache._sha256.cache_clear()  # as in another process
    assert all_ids(loaded(source="file", path=path)._parts[0]) == expected
    assert cache.sound(victim.with_name("ids.npy"))
    assert not list((tmp_path / "cache").rglob(".*"))


def test_two_processes_may_fill_the_cache_at_once(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.txt", "some words and more\n" * 5000)
    code = (
        "import sys; from gptlab.config import DataConfig; from gptlab.data.batches import load\n"
        "s = load(DataConfig(source='file', path=sys.argv[1], tokenizer='byte'), 256, 1)\n"
        "print(s.train_batch(0, 2, 8, seed=1).inputs.tolist())"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [process.communicate()[0] for process in running]
    assert outputs[0] == outputs[1] != ""


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTLAB_CACHE", file_of(tmp_path / "taken", "a file"))
    source = loaded(source="file", path=file_of(tmp_path / "a.txt", "some words\n" * 200))
    with refused("cache-not-writable") as caught:
        source.vet(8)
    assert "GPTLAB_CACHE" in f"{caught.value}"  # the way out


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.folder() == Path(os.environ["GPTLAB_CACHE"])
    monkeypatch.delenv("GPTLAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.folder() == Path("/x/gptlab")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "gptlab"


@pytest.mark.parametrize(
    ("data", "code", "facts"),
    [
        (
            {"text": "a b c"},
            "too-few-tokens-to-split",
            {"where": "data.text", "training": 4, "validation": 1, "context": 16},
        ),
        ({"text": "a"}, "too-few-tokens-to-train", {"where": "data.text"}),
        (
            {"text": "word " * 99, "split": "document"},
            "split-of-one-document",
            {"key": "data.split", "value": "document", "where": "data.text"},
        ),
        (
            {"text": "1 " * 50 + "99", "tokenizer": "ids"},
            "token-outside-vocabulary",
            {"where": "data.text", "outside": 99, "tokenizer": "ids", "vocab_size": 64, "choices": "other data"},
        ),
    ],
)
def test_text_that_cannot_be_trained_on(data: dict[str, Any], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        loaded(64, source="string", **data).vet(16)


def test_a_file_smaller_than_one_context(tmp_path: Path) -> None:
    source = loaded(source="file", path=file_of(tmp_path / "a.txt", "word " * 50), tokenizer="byte")
    with refused("too-few-tokens-to-split", training=225, validation=25, context=64):
        source.vet(64)
    with refused("too-few-tokens-to-split", training=225, validation=25, context=64):
        source.validation_batches(64, 64)


@pytest.mark.parametrize(
    ("content", "byte"),
    [
        (b"a" * 10 + b"\xff", 10),
        ("é".encode() * 4 + b"\xc3", 8),
        (b"\xef\xbb\xbfab\xe2\x82", 5),
        (b"a" * 7 + b"\xe2\x28\xa1", 7),
    ],
)
def test_the_first_bad_byte_is_named_wherever_blocks_end(
    content: bytes, byte: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "PIECE", 4)
    with refused("text-not-utf8", key="data.path", byte=byte):
        loaded(source="file", path=file_of(tmp_path / "a.txt", content))


def test_a_large_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE", 1 << 12)
    content = "".join(f"line {i} é\n" for i in range(20_000))
    source = loaded(source="file", path=file_of(tmp_path / "a.txt", content), tokenizer="byte")
    assert max(len(piece) for _, piece in source._text.pieces()) < 3 << 12
    assert all_ids(source._parts[0]) + all_ids(source._parts[1]) == list(content.encode())
    assert source.hash == hashlib.sha256(content.encode()).hexdigest()


def test_a_folder_of_hugging_face_data(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "set"
    folder.mkdir()
    lines = [f'{{"text": "document {i} has some words", "title": "t{i}"}}' for i in range(50)]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    source = loaded(256, source="hf", path=str(folder), options={"max_documents": 40})
    assert source.tokenizer.decode(source.tokens(60)).startswith("document 0 has some words\ndocument 1 has")
    assert len(source._content.lengths) == 40
    assert (
        source.hash == hashlib.sha256("\n".join(f"document {i} has some words" for i in range(40)).encode()).hexdigest()
    )
    source.vet(32)
    titles = loaded(256, source="hf", path=str(folder), options={"column": "title"})
    assert titles.hash != source.hash
    with refused("hf-column", key="data.options.column", value="txt", columns="text, title"):
        loaded(256, source="hf", path=str(folder), options={"column": "txt"})
    with refused("hf-not-loaded"):
        loaded(256, source="hf", path=str(folder), options={"part": "nothing"})


def test_hugging_face_data_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refused("hf-not-installed"):
        loaded(source="hf", path=str(tmp_path))
