"""Eighty typical mistakes: what each answer must contain, and that the line it tells to type is accepted."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

import pytest

from gptlab import cli
from gptlab.declare import sources
from gptlab.declare.composer import Composer
from gptlab.planning import sweep
from gptlab.planning.plan import expand
from tests.support.refusals import refused

BASE = ["model=tiny", "data=random_tokens"]
TRAINED = "train=toy train.budget=20"

# (what was typed after the base, facts of the answer, the line that it tells to type: "" for none)
LINES = [
    # other programs' words
    ("model.n_embd=64", "unknown-name", "model.emb_dim=64"),
    ("n_embd=64", "unknown-name", "model.emb_dim=64"),
    ("model.hidden_size=64", "unknown-name", "model.emb_dim=64"),
    ("model.d_model=64", "unknown-name", "model.emb_dim=64"),
    ("model.block_size=16", "unknown-name", "model.context_length=16"),
    ("model.max_position_embeddings=16", "unknown-name", "model.context_length=16"),
    ("model.n_head=2", "unknown-name", "model.n_heads=2"),
    ("model.num_layers=1", "unknown-name", "model.n_layers=1"),
    ("model.n_kv_head=2", "unknown-name", "model.n_kv_heads=2"),
    ("model.d_ff=100", "unknown-name", "model.hidden_dim=100"),
    ("model.intermediate_size=100", "unknown-name", "model.hidden_dim=100"),
    ("model.multiple_of=48", "unknown-name", "model.hidden_multiple=48"),
    ("model.head_size=6", "unknown-name", "model.head_dim=6"),
    ("model.dropout=0.2", "unknown-name", "model.drop_rate=0.2"),
    ("model.drop_rate_emb=0.2", "unknown-name", "model.drop_embedding=0.2"),
    ("model.drop_rate_attn=0.2", "unknown-name", "model.drop_attention=0.2"),
    ("model.drop_rate_shortcut=0.2", "unknown-name", "model.drop_shortcut=0.2"),
    ("model.resid_pdrop=0.2", "unknown-name", "model.drop_shortcut=0.2"),
    ("model.tie_embeddings=true", "unknown-name", "model.tie_weights=true"),
    ("model.tie_word_embeddings=true", "unknown-name", "model.tie_weights=true"),
    ("model.hidden_act=relu", "unknown-name", "model.activation=relu"),
    ("model.rms_norm_eps=1e-6", "unknown-name", "model.options.norm.eps=1e-6"),
    ("model.use_rmsnorm=true", "unknown-name", "model.norm=rmsnorm"),
    ("model.rotary_pos_emb=true", "unknown-name", "model.position=rope"),
    ("model.sliding_window=8", "unknown-name", "model.options.attention.window=8"),
    ("model.bias=true", "unknown-name", "model.qkv_bias=true"),
    (f"lr=1e-3 {TRAINED}", "unknown-name", f"train.learning_rate=1e-3 {TRAINED}"),
    (f"train.lr=1e-3 {TRAINED}", "unknown-name", f"train.learning_rate=1e-3 {TRAINED}"),
    ("train=toy train.steps=20", "unknown-name", "train.budget=20 train=toy"),
    ("train=toy train.max_iters=20", "unknown-name", "train.budget=20 train=toy"),
    (f"train.grad_clip=1 {TRAINED}", "unknown-name", f"train.clip=1 {TRAINED}"),
    (f"train.warmup_iters=2 {TRAINED}", "unknown-name", f"train.warmup=2 {TRAINED}"),
    (f"train.eval_interval=5 {TRAINED}", "unknown-name", f"evaluation.every=5 {TRAINED}"),
    (f"train.gradient_accumulation_steps=2 {TRAINED}", "unknown-name", f"train.accumulate=2 {TRAINED}"),
    ("out_dir=x", "unknown-name", "output_dir=x"),
    # names by their meaning
    ("model.norm=layer_norm", "unknown-name", ""),
    ("model.norm=rms_norm", "unknown-name", ""),
    ("model.activation=gelu_new", "unknown-name", ""),
    ("model.activation=swish", "unknown-name", ""),
    ("model.position=rotary", "unknown-name", ""),
    ("ablation=no_residual", "unknown-name", ""),
    # spelling
    ("ablation=rleu", "unknown-name", ""),
    ("modle=tiny", "unknown-name", ""),
    ("model.emb_dmi=3", "unknown-name", ""),
    ("gradients=null", "key-stands-deeper", "probes.gradients=null"),
    ("init=gpt2", "key-stands-deeper", "model.init=gpt2"),
    # slips of the shell
    ("ablation = relu", "spaces-around-equals", "ablation=relu"),
    ("ablation= relu", "spaces-around-equals", "ablation=relu"),
    ("ablation =relu", "spaces-around-equals", "ablation=relu"),
    ("'model.n_layers = 3'", "override-grammar", "model.n_layers=3"),
    ("ablation=[relu, post_ln]", "list-spaces", "'ablation=[relu,post_ln]'"),
    ("seed=1, 2, 3", "list-spaces", "seed=1,2,3"),
    ("seed=1 , 2", "list-spaces", "seed=1,2"),
    ("experiment.question=Is it so?", "text-unquoted", "'experiment.question=Is it so?'"),
    ("label=my run", "text-unquoted", "'label=my run'"),
    ("'ablation=relu seed=1'", "override-grammar", ""),
    ("relu", "no-equals-sign", "ablation=relu"),
    ("--model tiny", "flag-for-key", "model=tiny"),
    ("--model=tiny", "flag-for-key", "model=tiny"),
    ("--seed 3", "flag-for-key", "seed=3"),
    ("run model=tiny", "no-such-command", ""),
    ("train model=tiny", "no-such-command", ""),
    # sweeps and quotes
    ("'model.activation=\"relu,silu\"'", "unknown-name", ""),
    ("'seed=\"1,2,3\"'", "wrong-type", "seed=1,2,3"),
    ("'model.n_layers=\"1,2\"'", "wrong-type", "model.n_layers=1,2"),
    ("'seed=range(1,5,0)'", "override-grammar", ""),
    ("'seed=shuffle(1,2)'", "override-grammar", ""),
    ("'seed=range[1,5]'", "override-grammar", ""),
    ("model=[tiny,dummy]", "only-ablations-stack", ""),
    ("seed=1 seed=2", "key-given-twice", ""),
    # values
    ("seed=010", "not-a-plain-decimal", "seed=10"),
    ("seed=1.5", "wrong-type", ""),
    ("model.causal=3", "wrong-type", ""),
    ("model.n_heads=3", "heads-divide", ""),
    ("model.drop_rate=1.5", "out-of-range", ""),
    ("model.hidden_dim=128 model.expansion=2", "model-key-unread", ""),
    ("train.warmup=5", "train-key-ignored", ""),
    ("'label=costs ${5'", "interpolation-unreadable", "'label=costs \\${5'"),
    ("data.path=foo.txt", "key-ignored", ""),
    ("plugins=[my_parts]", "no-such-module", ""),
    ("ablation=small_relu", "unknown-name", ""),
    ("+seed=1", "key-added-twice", "seed=1"),
    ("'~model.norm'", "key-removed", ""),
    ("model.layer_sizes=[3,3,1]", "layer-sizes-unread", ""),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.ENVIRONMENT, raising=False)


@cache
def composer() -> Composer:
    return Composer()


def checked(words: list[str]) -> None:
    """Compose and check the first member of what these words ask for, as `plan` would."""
    if words[0].startswith("--") or "=" not in words[0] and words[1:2] == ["model=tiny"]:
        cli.dispatch(words)
        raise AssertionError("the command line took it")
    given = {word.lstrip("+").partition("=")[0] for word in words}
    base = [text for text in BASE if text.partition("=")[0] not in given and not words[0].startswith("modle")]
    for member in sweep.jobs(composer(), [*base, *words]):
        composer().job(member)


@pytest.mark.parametrize(("typed", "code", "line"), LINES, ids=[typed for typed, _, _ in LINES])
def test_a_mistake_is_answered_with_what_to_do(typed: str, code: str, line: str) -> None:
    """The line to type stands in the answer as it is typed, and works."""
    with refused(code) as caught:
        checked(shlex.split(typed))
    answer = f"{caught.value}"
    assert "hydra" not in answer.lower()
    if line:
        first = line.split(" train=")[0].split(f" {TRAINED}")[0]
        assert first in answer
        checked(shlex.split(line))


HEADER = "# @package _global_\n"
FILES = [
    ("model:\n  activation:relu\n", "yaml-space-after-colon", 3, "activation: relu"),
    ("model:\n  norm: rmsnorm\n  activation:relu\n", "yaml-space-after-colon", 4, "activation: relu"),
    ("model:\n  activation=relu\n", "yaml-equals-sign", 3, "activation: relu"),
    ("model.activation=relu\n", "yaml-equals-sign", 2, "model.activation: relu"),
    ("model:\n  norm: rmsnorm\n    activation: relu\n", "yaml-indentation", 4, ""),
    ("model:\n  norm: rmsnorm\n activation: relu\n", "yaml-indentation", 4, ""),
    ("model:\nactivation: relu\n", "yaml-indentation", 2, ""),
    ("model:\n  - activation: relu\n", "yaml-dash", 2, ""),
    ("model:\n  n_layers: - 3\n", "yaml-dash", 3, ""),
    ("label: is it: so\n", "yaml-quotes", 2, "label: 'is it: so'"),
    ("label: 'a\nmodel: {activation: relu}\n", "yaml", 4, "quote"),
    ("model: {activation: relu\nlabel: x\n", "yaml", 3, "brace"),
    ("plugins: [a, b\nlabel: x\n", "yaml", 3, "bracket"),
    ("model:\n\tactivation: relu\n", "yaml", 3, "tab"),
    ("label: %x\n", "yaml", 2, "first-character"),
    ("label: '*x'\nmodel: *x\n", "yaml", 3, "alias"),
    ("model:\n  norm: a\n  norm: b\n", "yaml", 4, "twice"),
]


@pytest.mark.parametrize(("body", "code", "line", "fact"), FILES)
def test_a_slip_of_yaml_in_plain_words(body: str, code: str, line: int, fact: str) -> None:
    """`fact`: of the code "yaml" the cause, else what is to be written, where it can be told."""
    path = Path("conf/ablation/mine.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(HEADER + body)
    cause = fact if code == "yaml" else None
    with refused(code, file=str(path), line=line, cause=cause) as caught:
        expand([*BASE, "ablation=mine"])
    said = f"{caught.value}"
    assert said.startswith(f"{path}, line {line}: ") and (cause or fact in said)
    for jargon in ("mapping", "scalar", "block end", "token", "stream", "flow"):
        assert jargon not in said


def test_no_in_a_file_is_the_name_that_is_written() -> None:
    path = Path("conf/ablation/mine.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(f"{HEADER}model:\n  activation: no\n")
    with refused("unknown-name", key="model.activation", value="no", file="conf/ablation/mine.yaml", line=3):
        expand([*BASE, "ablation=mine"])


def test_there_are_eighty() -> None:
    assert len(LINES) >= 80
