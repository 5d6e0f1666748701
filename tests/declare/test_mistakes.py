"""Eighty typical mistakes: what each answer must contain, and that the line it tells to type is accepted."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

import pytest

from gptlab import cli
from gptlab.declare import sources
from gptlab.declare.composer import Composer
from gptlab.errors import ConfigError
from gptlab.planning import sweep
from gptlab.planning.plan import expand

BASE = ["model=tiny", "data=random_tokens"]
TRAINED = "train=toy train.budget=20"

# (what was typed after the base, facts of the answer, the line that it tells to type: "" for none)
LINES = [
    # other programs' words
    ("model.n_embd=64", "'n_embd'", "model.emb_dim=64"),
    ("n_embd=64", "'n_embd'", "model.emb_dim=64"),
    ("model.hidden_size=64", "'hidden_size'", "model.emb_dim=64"),
    ("model.d_model=64", "'d_model'", "model.emb_dim=64"),
    ("model.block_size=16", "'block_size'", "model.context_length=16"),
    ("model.max_position_embeddings=16", "", "model.context_length=16"),
    ("model.n_head=2", "'n_head'", "model.n_heads=2"),
    ("model.num_layers=1", "", "model.n_layers=1"),
    ("model.n_kv_head=2", "", "model.n_kv_heads=2"),
    ("model.d_ff=100", "'d_ff'", "model.hidden_dim=100"),
    ("model.intermediate_size=100", "", "model.hidden_dim=100"),
    ("model.multiple_of=48", "", "model.hidden_multiple=48"),
    ("model.head_size=6", "", "model.head_dim=6"),
    ("model.dropout=0.2", "'dropout'", "model.drop_rate=0.2"),
    ("model.drop_rate_emb=0.2", "'drop_rate_emb'", "model.drop_embedding=0.2"),
    ("model.drop_rate_attn=0.2", "", "model.drop_attention=0.2"),
    ("model.drop_rate_shortcut=0.2", "", "model.drop_shortcut=0.2"),
    ("model.resid_pdrop=0.2", "", "model.drop_shortcut=0.2"),
    ("model.tie_embeddings=true", "", "model.tie_weights=true"),
    ("model.tie_word_embeddings=true", "", "model.tie_weights=true"),
    ("model.hidden_act=relu", "", "model.activation=relu"),
    ("model.rms_norm_eps=1e-6", "", "model.options.norm.eps=1e-6"),
    ("model.use_rmsnorm=true", "", "model.norm=rmsnorm"),
    ("model.rotary_pos_emb=true", "", "model.position=rope"),
    ("model.sliding_window=8", "", "model.options.attention.window=8"),
    ("model.bias=true", "", "model.qkv_bias=true"),
    (f"lr=1e-3 {TRAINED}", "'lr'", f"train.learning_rate=1e-3 {TRAINED}"),
    (f"train.lr=1e-3 {TRAINED}", "'lr'", f"train.learning_rate=1e-3 {TRAINED}"),
    ("train=toy train.steps=20", "'steps'", "train.budget=20 train=toy"),
    ("train=toy train.max_iters=20", "", "train.budget=20 train=toy"),
    (f"train.grad_clip=1 {TRAINED}", "", f"train.clip=1 {TRAINED}"),
    (f"train.warmup_iters=2 {TRAINED}", "", f"train.warmup=2 {TRAINED}"),
    (f"train.eval_interval=5 {TRAINED}", "", f"evaluation.every=5 {TRAINED}"),
    (f"train.gradient_accumulation_steps=2 {TRAINED}", "", f"train.accumulate=2 {TRAINED}"),
    ("out_dir=x", "", "output_dir=x"),
    # names by their meaning
    ("model.norm=layer_norm", "'layernorm'", ""),
    ("model.norm=rms_norm", "'rmsnorm'", ""),
    ("model.activation=gelu_new", "'gelu_tanh'", ""),
    ("model.activation=swish", "'silu'", ""),
    ("model.position=rotary", "'rope'", ""),
    ("ablation=no_residual", "'no_shortcut'", ""),
    # spelling
    ("ablation=rleu", "Did you mean 'relu'?", ""),
    ("modle=tiny", "Did you mean 'model'?", ""),
    ("model.emb_dmi=3", "Did you mean 'emb_dim'?", ""),
    ("gradients=null", "probes.gradients", "probes.gradients=null"),
    ("init=gpt2", "model.init", "model.init=gpt2"),
    # slips of the shell
    ("ablation = relu", "no spaces around the equals sign", "ablation=relu"),
    ("ablation= relu", "no spaces around the equals sign", "ablation=relu"),
    ("ablation =relu", "no spaces around the equals sign", "ablation=relu"),
    ("'model.n_layers = 3'", "no spaces", "model.n_layers=3"),
    ("ablation=[relu, post_ln]", "spaces", "'ablation=[relu,post_ln]'"),
    ("seed=1, 2, 3", "spaces", "seed=1,2,3"),
    ("seed=1 , 2", "spaces", "seed=1,2"),
    ("experiment.question=Is it so?", "quotes", "'experiment.question=Is it so?'"),
    ("label=my run", "quotes", "'label=my run'"),
    ("'ablation=relu seed=1'", "more than one override in one word", ""),
    ("relu", "an override is KEY=VALUE", "ablation=relu"),
    ("--model tiny", "keys have no dashes", "model=tiny"),
    ("--model=tiny", "keys have no dashes", "model=tiny"),
    ("--seed 3", "keys have no dashes", "seed=3"),
    ("run model=tiny", "leave it out", ""),
    ("train model=tiny", "leave it out", ""),
    # sweeps and quotes
    ("'model.activation=\"relu,silu\"'", "Without the quotes it is a sweep: relu,silu", ""),
    ("'seed=\"1,2,3\"'", "Without the quotes it is a sweep", "seed=1,2,3"),
    ("'model.n_layers=\"1,2\"'", "Without the quotes it is a sweep", "model.n_layers=1,2"),
    ("'seed=range(1,5,0)'", "step of a range cannot be 0", ""),
    ("'seed=shuffle(1,2)'", "no function 'shuffle'", ""),
    ("'seed=range[1,5]'", "seed", ""),
    ("model=[tiny,dummy]", "only ablations stack", ""),
    ("seed=1 seed=2", "given twice", ""),
    # values
    ("seed=010", "decimal", "seed=10"),
    ("seed=1.5", "must be a whole number", ""),
    ("model.causal=3", "must be true or false", ""),
    ("model.n_heads=3", "the closest is 2", ""),
    ("model.drop_rate=1.5", "between 0.0 and 1.0", ""),
    ("model.hidden_dim=128 model.expansion=2", "hidden_dim=128", ""),
    ("train.warmup=5", "nothing is trained", ""),
    ("'label=costs ${5'", "stands for the value of another key", "'label=costs \\${5'"),
    ("data.path=foo.txt", "does not read it", ""),
    ("plugins=[my_parts]", "Looked for my_parts.py in ", ""),
    ("ablation=small_relu", "conf/ablation/small_relu.yaml", ""),
    ("+seed=1", "the key is there already", "seed=1"),
    ("'~model.norm'", "cannot be removed", ""),
    ("model.layer_sizes=[3,3,1]", "only architecture=deep_mlp", ""),
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


@pytest.mark.parametrize(("typed", "fact", "line"), LINES, ids=[typed for typed, _, _ in LINES])
def test_a_mistake_is_answered_with_what_to_do(typed: str, fact: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(shlex.split(typed))
    answer = str(caught.value)
    assert fact in answer
    assert len(answer.splitlines()) <= 3 and "Traceback" not in answer and "hydra" not in answer.lower()
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
    ("model:\n  norm: rmsnorm\n    activation: relu\n", "yaml-indentation", 4, "too deep"),
    ("model:\n  norm: rmsnorm\n activation: relu\n", "yaml-indentation", 4, "between the other lines"),
    ("model:\nactivation: relu\n", "yaml-indentation", 2, "two spaces deeper"),
    ("model:\n  - activation: relu\n", "yaml-dash", 2, "without a dash"),
    ("model:\n  n_layers: - 3\n", "yaml-dash", 3, "a dash begins a list"),
    ("label: is it: so\n", "yaml-quotes", 2, "label: 'is it: so'"),
    ("label: 'a\nmodel: {activation: relu}\n", "yaml", 4, "a quote is opened and not closed (opened in line 2)"),
    ("model: {activation: relu\nlabel: x\n", "yaml", 3, "a { is opened and not closed"),
    ("plugins: [a, b\nlabel: x\n", "yaml", 3, "a [ is opened and not closed"),
    ("model:\n\tactivation: relu\n", "yaml", 3, "a tab stands where only spaces may"),
    ("label: %x\n", "yaml", 2, "text that begins with % goes in quotes"),
    ("label: '*x'\nmodel: *x\n", "yaml", 3, "text that begins with *"),
    ("model:\n  norm: a\n  norm: b\n", "yaml", 4, "norm is given twice"),
]


@pytest.mark.parametrize(("body", "code", "line", "words"), FILES, ids=[words for *_, words in FILES])
def test_a_slip_of_yaml_in_plain_words(body: str, code: str, line: int, words: str) -> None:
    path = Path("conf/ablation/mine.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(HEADER + body)
    with pytest.raises(ConfigError) as caught:
        expand([*BASE, "ablation=mine"])
    error = caught.value
    assert (error.code, error.facts["file"], error.facts["line"]) == (code, str(path), line)
    assert str(error).startswith(f"{path}, line {line}: ") and words in str(error)
    for jargon in ("mapping", "scalar", "block end", "token", "stream", "flow"):
        assert jargon not in str(error)


def test_no_in_a_file_is_the_name_that_is_written() -> None:
    path = Path("conf/ablation/mine.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(f"{HEADER}model:\n  activation: no\n")
    with pytest.raises(ConfigError, match=r"line 3: .*'no' does not exist"):
        expand([*BASE, "ablation=mine"])


def test_there_are_eighty() -> None:
    assert len(LINES) >= 80
