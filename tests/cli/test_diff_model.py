"""`gptlab diff-model`: a reader's own GPT, right and with one mistake, against gptlab's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gptlab.cli import dispatch
from gptlab.errors import GptlabError

OURS = """
from tests.support.book import BookGPT, Norm

def right(cfg):
    return BookGPT(cfg["vocab_size"], cfg["context_length"], cfg["emb_dim"], cfg["n_heads"], cfg["n_layers"])

def loaded(cfg):
    model = right(cfg)
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    return model

def no_mask(cfg):
    model = right(cfg)
    for block in model.trf_blocks:
        block.att.mask.zero_()
    return model

def late(cfg):
    model = right(cfg)
    model.trf_blocks[1].norm2.forward = lambda x: x * 1.01
    return model

def renamed(cfg):
    model = right(cfg)
    model.head = model.out_head
    del model.out_head
    return model

def smaller(cfg):
    return right({**cfg, "vocab_size": 100})

def raises(cfg):
    raise RuntimeError("no luck")

NUMBER = 3
"""
TINY = ["model=tiny", "model.drop_rate=0"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    (tmp_path / "own_gpt.py").write_text(OURS)
    sys.modules.pop("own_gpt", None)


@pytest.mark.parametrize(
    ("name", "code", "parts"),
    [
        ("right", 0, ["weights: equal, bit for bit", "outputs: equal"]),
        ("loaded", 1, ["weights: tok_emb.weight", "outputs: equal"]),
        ("no_mask", 1, ["weights: equal", "output: trf_blocks.0.att"]),
        ("late", 1, ["weights: equal", "output: trf_blocks.1.norm2"]),
        ("renamed", 1, ["names: out_head.weight", "names: head.weight"]),
        ("smaller", 1, ["shapes: tok_emb.weight", "(100, "]),
    ],
)
def test_the_first_that_differs_is_named(
    capsys: pytest.CaptureFixture[str], name: str, code: int, parts: list[str]
) -> None:
    assert dispatch(["diff-model", f"own_gpt:{name}", *TINY]) == code
    out = capsys.readouterr().out
    assert all(part in out for part in parts), out
    assert ("by up to" in out) is (name in ("loaded", "no_mask", "late"))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], "own-model-missing"),
        (["model=tiny"], "own-model-missing"),
        (["own_gpt"], "own-model-name"),
        (["own_gtp:right"], "own-model-module"),
        (["own_gpt:rihgt"], "unknown-name"),
        (["own_gpt:raises"], "own-model-raised"),
        (["own_gpt:NUMBER"], "own-model-kind"),
        (["own_gpt:right", "model=deep_mlp"], "own-model-architecture"),
    ],
)
def test_mistakes(words: list[str], code: str) -> None:
    with pytest.raises(GptlabError) as caught:
        dispatch(["diff-model", *words])
    assert caught.value.code == code
