"""`gptlab generate`: a run's model, its prompts, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import gptlab
from gptlab.cli import dispatch
from gptlab.identity import identity
from gptlab.training import checkpoint
from tests.support.refusals import refused

TINY = ["model=tiny", "data.tokenizer=byte", "probes=counting", "add_baseline=false"]
TRAINED = [*TINY, "train=small", "train.budget=3", "evaluation.tokens=64", "evaluation.final=false"]


def made(folder: Path, *words: str) -> Path:
    return gptlab.run(gptlab.compose([*words, f"output_dir={folder}"])).folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    for name, words in {
        "trained": TRAINED,
        "gone": [*TRAINED, "train.keep_checkpoints=0"],
        "untrained": TINY,
        "no_mask": [*TINY, "ablation=no_mask"],
    }.items():
        shutil.move(made(folder, *words), folder / name)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, str]:
    assert dispatch(["generate", *map(str, words)]) == 0
    read = capsys.readouterr()
    return read.out, read.err


def test_it_is_the_newest_checkpoint_that_speaks(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, runs / "trained", "--prompt", "The ", "--tokens", 8, "--format", "json")
    (found,) = json.loads(out)
    config = gptlab.trained(runs / "trained").config
    model = gptlab.build(config)
    initial = gptlab.generate(model, [list(b"The ")], 8)[0]
    saved, _ = checkpoint.newest(runs / "trained", identity(config))
    assert saved is not None
    checkpoint.put_weights(model, saved.weights)
    expected = gptlab.generate(model, [list(b"The ")], 8)[0]
    assert found["token_ids"] == expected.ids and found["margins"] == expected.margins != initial.margins
    assert found["step"] == 3 and "step 3, 8 tokens" in err


def test_an_untrained_run_is_built_anew(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, runs / "untrained", "--prompt", "The ", "--tokens", 5, "--format", "json")
    model = gptlab.build(gptlab.compose(TINY))
    assert json.loads(out)[0]["token_ids"] == gptlab.generate(model, [list(b"The ")], 5)[0].ids


def test_texts_come_in_order_each_whole(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [runs / "trained", "--tokens", 6, "--temperature", 1, "--seed", 5]
    alone = [said(capsys, *options, "--prompt", prompt)[0].removesuffix("\n") for prompt in ("A longer one", "B")]
    out, _ = said(capsys, *options, "--prompt", "A longer one", "--prompt", "B")
    assert out == "\n\n".join(alone) + "\n"
    assert alone[0].startswith("A longer one") and alone[1].startswith("B")
    assert said(capsys, *options[:-1], 6, "--prompt", "B")[0] != alone[1] + "\n"


def test_the_runs_own_prompt_is_the_default(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, runs / "trained", "--tokens", 1)
    assert out.startswith(gptlab.trained(runs / "trained").config.data.prompt)


def test_a_stop_ends_it_and_is_not_printed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [runs / "trained", "--prompt", "The ", "--tokens", 40, "--temperature", 1, "--format", "json"]
    whole = json.loads(said(capsys, *options)[0])[0]
    stop = whole["text"][20]
    found = json.loads(said(capsys, *options, "--stop", stop)[0])[0]
    assert found["stopped"] == "stop" and found["text"] == whole["text"].partition(stop)[0]


def test_what_is_computed_anew_says_why(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "model.causal=false" in said(capsys, runs / "no_mask", "--tokens", 2, "--prompt", "a")[1]
    assert "computed from all" not in said(capsys, runs / "trained", "--tokens", 2, "--no-cache")[1]


def test_nothing_steers_the_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, runs / "untrained", "--tokens", 1, "--prompt", "a\x1b[2Jb\nc")
    assert out.startswith("a\\x1b[2Jb\nc")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], "generate-takes-one-run"),
        (["A", "B"], "generate-takes-one-run"),
        (["nothing"], "run-not-found"),
        (["."], "run-is-a-study"),
        (["gone"], "run-without-checkpoint"),
        (["trained", "--tokens", "0"], "out-of-range"),
        (["trained", "--tokens", "many"], "option-not-a-number"),
        (["trained", "--top-p", "0", "--temperature", "1"], "out-of-range"),
        (["trained", "--top-p", "1.5", "--temperature", "1"], "out-of-range"),
        (["trained", "--top-k", "2"], "sampling-without-temperature"),
        (["trained", "--seed", "2"], "sampling-without-temperature"),
        (["trained", "--precision", "fp8"], "unknown-name"),
        (["trained", "--tempreature", "1"], "unknown-name"),
    ],
)
def test_what_cannot_be_is_refused(runs: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: str) -> None:
    monkeypatch.chdir(runs)
    with refused(code):
        dispatch(["generate", *words])


def test_a_prompt_beyond_the_vocabulary_is_refused_by_the_option(tmp_path: Path) -> None:
    small = made(tmp_path, "model=tiny", "model.vocab_size=100", "data=random_tokens", "probes=counting")
    with refused("token-outside-vocabulary", outside=100, vocab_size=100, where="--prompt='3 100'"):
        dispatch(["generate", str(small), "--prompt", "3 100"])


def test_a_missing_checkpoint_names_the_key(runs: Path) -> None:
    with refused("run-without-checkpoint", key="train.keep_checkpoints", value=0, refused=[]):
        gptlab.trained(runs / "gone")


def test_a_damaged_checkpoint_is_not_believed(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "trained", tmp_path / "damaged")
    (weights,) = run.glob("checkpoints/*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with refused("run-without-checkpoint") as caught:
        gptlab.trained(run)
    (why,) = caught.value.facts["refused"]
    assert "model.safetensors" in why
