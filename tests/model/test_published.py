"""Published numbers that have to come out, by the ids that the list of claims gives them.

CFG configuration, SHP shapes, LN layer normalisation, GE GELU, BP block parameters, SC shortcuts, MP model parameters,
TP counting parameters, EQ equations, GN generation. The names, not the values, are made here: each value was printed by
somebody else.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gptlab
from gptlab.config import Config
from gptlab.data.tokenizer import make_tokenizer
from gptlab.model import skeleton
from gptlab.model.activations import gelu, gelu_tanh, relu
from gptlab.model.norms import LayerNorm
from gptlab.probes import Subject
from gptlab.probes.gradients import measure
from gptlab.probes.parameters import count
from gptlab.probes.shapes import trace

SMALL: tuple[str, ...] = ()
TIED = ("ablation=tied",)
RELEASED = ("ablation=as_released",)
MEDIUM, LARGE, XL = (("model=gpt2_medium",), ("model=gpt2_large",), ("model=gpt2_xl",))


@cache
def config(*overrides: str) -> Config:
    return gptlab.compose(list(overrides))


@cache
def counts(*overrides: str) -> dict[str, float | int]:
    return count(config(*overrides))


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def block_size(part: str, *overrides: str) -> int:
    block = skeleton(config(*overrides).model).trf_blocks[0]
    return size(block.get_submodule(part))


def cases(*rows: tuple[Any, ...]) -> list[Any]:
    """Each row begins with the claim's id."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


@pytest.mark.parametrize(
    ("key", "value"),
    cases(
        ("CFG-vocab_size", "vocab_size", 50257),
        ("CFG-context_length", "context_length", 1024),
        ("CFG-emb_dim", "emb_dim", 768),
        ("CFG-n_heads", "n_heads", 12),
        ("CFG-n_layers", "n_layers", 12),
        ("CFG-drop_rate", "drop_rate", 0.1),
        ("CFG-qkv_bias", "qkv_bias", False),
        ("CFG-noffn", "expansion", 4.0),
    ),
)
def test_the_default_is_the_books_configuration(key: str, value: object) -> None:
    assert getattr(config().model, key) == value


@pytest.mark.parametrize(
    ("overrides", "metric", "value"),
    cases(
        ("MP-total", SMALL, "parameters", 163_009_536),
        ("MP-tok", SMALL, "parameters/token_embedding", 38_597_376),
        ("MP-pos", SMALL, "parameters/position", 786_432),
        ("MP-final", SMALL, "parameters/final_norm", 1_536),
        ("MP-head,SHP-widthchange", SMALL, "parameters/head", 38_597_376),
        ("MP-tied", TIED, "parameters", 124_412_160),
        ("MP-tied-foretold", SMALL, "parameters_tied", 124_412_160),
        ("MP-untied-recalled", TIED, "parameters_untied", 163_009_536),
        ("MP-hf,TP-gpt2", RELEASED, "parameters", 124_439_808),
        ("MP-ex42mediumu", MEDIUM, "parameters", 406_212_608),
        ("MP-ex42mediumt", (*MEDIUM, *TIED), "parameters", 354_749_440),
        ("MP-ex42mediumq", (*MEDIUM, *RELEASED), "parameters", 354_823_168),
        ("MP-ex42largeu", LARGE, "parameters", 838_220_800),
        ("MP-ex42larget", (*LARGE, *TIED), "parameters", 773_891_840),
        ("MP-ex42largeq", (*LARGE, *RELEASED), "parameters", 774_030_080),
        ("MP-ex42xlu,MP-xlu", XL, "parameters", 1_637_792_000),
        ("MP-ex42xlt,MP-xlt", (*XL, *TIED), "parameters", 1_557_380_800),
        ("MP-ex42xlq", (*XL, *RELEASED), "parameters", 1_557_611_200),
        ("TP-gpt3s", ("model=gpt3_small",), "parameters", 125_226_240),
        ("TP-gpt3", ("model=gpt3_175b",), "parameters", 174_604_259_328),
        ("TP-total", ("model=toy_lesson",), "parameters", 1_856),
        ("TP-emb", ("model=toy_lesson",), "parameters/token_embedding", 96),
        ("TP-att", ("model=toy_lesson",), "parameters/attention", 576),
        ("TP-mlp", ("model=toy_lesson",), "parameters/feed_forward", 1_104),
    ),
)
def test_parameters(overrides: tuple[str, ...], metric: str, value: int) -> None:
    assert counts(*overrides)[metric] == value


@pytest.mark.parametrize(
    ("overrides", "value"),
    cases(
        ("MP-mib", SMALL, 621.83),
        ("MP-ex42mediumm", MEDIUM, 1549.58),
        ("MP-ex42largem", LARGE, 3197.56),
        ("MP-ex42xlm", XL, 6247.68),
    ),
)
def test_mebibytes(overrides: tuple[str, ...], value: float) -> None:
    assert counts(*overrides)["mib"] == pytest.approx(value, abs=0.005)


@pytest.mark.parametrize(
    ("overrides", "parts", "percent"),
    cases(
        ("MP-two%", SMALL, ("token_embedding", "head"), 47.4),
        ("MP-blk%", SMALL, ("attention", "feed_forward", "norm"), 52.2),
        ("MP-head%", SMALL, ("head",), 23.7),
        ("MP-headxl%", XL, ("head",), 4.9),
    ),
)
def test_shares_of_the_model(overrides: tuple[str, ...], parts: tuple[str, ...], percent: float) -> None:
    found = counts(*overrides)
    share = sum(found[f"parameters/{part}"] for part in parts) / found["parameters"]
    assert 100 * share == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize(
    ("part", "overrides", "value"),
    cases(
        ("BP-ff", "ff", SMALL, 4_722_432),
        ("BP-att", "att", SMALL, 2_360_064),
        ("BP-block", "", SMALL, 7_085_568),
        ("BP-2x", "ff", ("ablation=expansion_2",), 2_360_064 + 1_536),
    ),
)
def test_parameters_of_a_block(part: str, overrides: tuple[str, ...], value: int) -> None:
    assert block_size(part, *overrides) == value


def test_sums_and_ratios_over_blocks() -> None:
    assert 12 * block_size("") == 85_026_816  # BP-12
    assert block_size("ff") / block_size("att") == pytest.approx(2.0, abs=0.002)  # BP-ratio
    assert 100 * block_size("ff") / block_size("") == pytest.approx(66.6, abs=0.05)  # BP-share
    qkv = counts("ablation=qkv_bias")["parameters"] - counts()["parameters"]
    assert qkv == 27_648  # MP-qkv
    toy = counts("model=toy_lesson")
    assert toy["parameters/norm"] + toy["parameters/final_norm"] == 80  # TP-norm
    assert counts()["parameters"] * 4 == 652_038_144  # MP-bytes


def test_no_whole_expansion_gives_parity() -> None:  # BP-parity, BP-intslider
    less, more = (block_size("ff", f"model.expansion={e}") - block_size("att") for e in (1.9987 - 1e-3, 1.9987 + 1e-3))
    assert less < 0 < more
    assert all(block_size("ff", f"model.expansion={e}") != block_size("att") for e in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("batch", "context", "module", "shape"),
    cases(
        ("SHP-in", 2, 4, "input", (2, 4)),
        ("SHP-tok", 2, 4, "tok_emb", (2, 4, 768)),
        ("SHP-pos", 2, 4, "pos_emb", (4, 768)),
        ("SHP-block", 2, 4, "trf_blocks.7", (2, 4, 768)),
        ("SHP-hid", 2, 4, "trf_blocks.0.ff.layers.0", (2, 4, 3072)),
        ("SHP-ff233", 2, 3, "trf_blocks.0.ff", (2, 3, 768)),
        ("SHP-four", 1, 4, "out_head", (1, 4, 50257)),
        ("SHP-logits", 2, 4, "out_head", (2, 4, 50257)),
        ("SHP-b8", 8, 1024, "out_head", (8, 1024, 50257)),
    ),
)
def test_shapes(batch: int, context: int, module: str, shape: tuple[int, ...]) -> None:
    found = {row["module"]: row["output_shape"] for row in trace(config().model, batch, context)}
    assert found[module] == str(shape)


def test_shapes_by_number() -> None:
    rows = trace(config().model, 8, 1024)
    assert rows[-1]["bytes"] == 1_646_821_376  # SHP-b8bytes
    blocks = [r for r in rows if r["type"] == "Serial"]
    assert len({r["output_shape"] for r in blocks}) == 1 and len(blocks) == 12  # SHP-twelve
    assert sum(r["type"] == "Add" for r in rows) == 24  # SHP-24
    assert trace(config("model=dummy").model, 2, 4)[-1]["output_shape"] == "(2, 4, 50257)"  # SHP-logits, SHP-identity
    assert sum(type(m).__name__ == "LayerNorm" for m in skeleton(config().model).modules()) == 25  # LN-place


def demo() -> Tensor:
    """The book's two rows of six: a linear layer and ReLU on five random numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(123)
        batch = torch.randn(2, 5)
        return F.relu(nn.Linear(5, 6)(batch)).detach()


def test_layer_normalisation() -> None:
    rows = demo()
    torch.testing.assert_close(  # LN-out0
        rows[0], torch.tensor([0.225952, 0.346954, 0, 0.221604, 0, 0]), rtol=0, atol=1e-5
    )
    assert rows.mean(-1).tolist() == pytest.approx([0.132418, 0.2170], abs=1e-4)  # LN-mean0, LN-mean1
    assert rows.var(-1).tolist() == pytest.approx([0.0231, 0.0398], abs=1e-4)  # LN-var0u, LN-var1u
    assert rows[0].var(unbiased=False).item() == pytest.approx(0.019222, abs=1e-6)  # LN-var0b
    normed = LayerNorm(6)(rows).detach()
    expected = [0.674460, 1.546987, -0.954852, 0.643108, -0.954852, -0.954852]
    assert normed[0].tolist() == pytest.approx(expected, abs=1e-6)  # LN-norm0eps
    assert normed.var(-1, unbiased=False).tolist() == pytest.approx([0.99948, 0.9997], abs=5e-5)  # LN-modvar0, 1
    # LN-normmean: the printed means, some 1e-8, are rounding noise of float32, which differs by build (here 1.2e-7).
    # That the mean is zero shows in float64.
    assert LayerNorm(6).double()(rows.double()).mean(-1).abs().max() < 1e-15
    tripled = LayerNorm(6, eps=0.0)
    nn.init.constant_(tripled.scale, 3.0)
    assert tripled(rows)[0].var(unbiased=False).item() == pytest.approx(9, abs=1e-5)  # LN-gamma3


@pytest.mark.parametrize(
    ("x", "relu_x", "gelu_x"),
    cases(
        ("GE-tab-1", -1.0, 0.0, -0.158808),
        ("GE-tab-0.5", -0.5, 0.0, -0.154286),
        ("GE-tab0", 0.0, 0.0, 0.0),
        ("GE-tab0.5", 0.5, 0.5, 0.345714),
        ("GE-tab1", 1.0, 1.0, 0.841192),
        ("GE-tab3", 3.0, 3.0, 2.996363),
    ),
)
def test_the_table_of_activations(x: float, relu_x: float, gelu_x: float) -> None:
    assert relu()(torch.tensor(x)).item() == relu_x
    assert gelu_tanh()(torch.tensor(x)).item() == pytest.approx(gelu_x, abs=1e-6)


def test_the_shape_of_gelu() -> None:
    x = torch.linspace(-6, 6, 240_001, dtype=torch.float64, requires_grad=True)
    y = gelu_tanh()(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    x, y = x.detach(), y.detach()
    assert x[y.argmin()].item() == pytest.approx(-0.7524, abs=1e-4)  # GE-minx
    assert y.min().item() == pytest.approx(-0.17, abs=1e-4)  # GE-miny
    assert slope.min().item() == pytest.approx(-0.1289, abs=2e-4)  # GE-dneg
    gap = (y - gelu()(x)).abs()
    assert gap.max().item() == pytest.approx(0.000473, abs=1e-6)  # GE-gap
    assert abs(x[gap.argmax()].item()) == pytest.approx(2.70, abs=0.01)  # GE-gapx


def five_layers(*overrides: str) -> list[float]:
    rows = measure(Subject(config("model=deep_mlp", *overrides))).tables["tensors"]
    return [row["grad_mean_abs"] for row in rows if row["name"].endswith("weight")]


WITHOUT = (0.00020173587836325169, 0.0001201116101583466, 0.0007152041653171182, 0.001398873864673078,
           0.005049646366387606)  # fmt: skip
WITH = (0.22169792652130127, 0.20694105327129364, 0.32896995544433594, 0.2665732502937317, 1.3258541822433472)


@pytest.mark.parametrize(
    ("layer", "overrides", "value"),
    cases(
        *((f"SC-wo{i}", i, ("ablation=no_shortcut",), value) for i, value in enumerate(WITHOUT)),
        *((f"SC-wi{i}", i, (), value) for i, value in enumerate(WITH)),
    ),
)
def test_five_layers(layer: int, overrides: tuple[str, ...], value: float) -> None:
    assert five_layers(*overrides)[layer] == pytest.approx(value, rel=1e-5)


def test_what_shortcuts_lift() -> None:
    added, plain = five_layers(), five_layers("ablation=no_shortcut")
    lifts = [a / b for a, b in zip(added, plain, strict=True)]
    assert lifts == pytest.approx([1099, 1723, 460, 191, 263], abs=0.5)  # SC-lift0 to 4
    assert (min(plain), min(added)) == pytest.approx((0.00012, 0.207), abs=1e-3)  # SC-floor
    assert plain[4] / plain[0] == pytest.approx(25, abs=0.5)  # SC-25
    assert max(added) == added[4] and max(plain) == plain[4]  # SC-l4max


@pytest.mark.parametrize(
    ("text", "ids"),
    cases(
        ("GN-enc", "Hello, I am", [15496, 11, 314, 716]),
        ("GN-b1", "Every effort moves you", [6109, 3626, 6100, 345]),
        ("GN-b2", "Every day holds a", [6109, 1110, 6622, 257]),
    ),
)
def test_token_ids(text: str, ids: list[int]) -> None:
    assert make_tokenizer("gpt2", "", 50257).encode(text) == ids


def test_uniform_losses() -> None:
    assert math.log(config("model=toy_lesson").model.vocab_size) == pytest.approx(2.485, abs=5e-4)  # EQ-ln12
    assert make_tokenizer("gpt2", "", 50257).decode([27018]) == " Feature"  # GN-first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("new", "ids", "text"),
    cases(
        ("GN-six,GN-sixtext", 6, [27018, 24086, 47843, 30961, 42348, 7267],
         "Hello, I am Featureiman Byeswickattribute argue"),
        ("GN-ten", 10, [27018, 24086, 47843, 30961, 42348, 7267, 49706, 43231, 47062, 34657],
         "Hello, I am Featureiman Byeswickattribute argue logger Normandy Compton analogous"),
    ),
)  # fmt: skip
def test_the_untrained_models_words(new: int, ids: list[int], text: str) -> None:
    from gptlab.probes.generation import measure as generate

    found = generate(Subject(config(f"probes.generation.max_new_tokens={new}"))).documents["generation"]
    assert found["token_ids"] == ids
    assert found["text"] == text
