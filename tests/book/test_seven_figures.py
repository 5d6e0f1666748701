from __future__ import annotations

import math
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from gptlab.book.figures import FIGURES, draw, write
from gptlab.book.figures import activation_curves as activations
from gptlab.book.figures import expansion_parity as expansion
from gptlab.book.figures import gradient_flow as gradients
from gptlab.book.figures import greedy_steps as steps
from gptlab.book.figures import layer_norm as norms
from gptlab.book.figures import parameter_budget as budget
from gptlab.book.figures import shape_trace as shapes
from gptlab.cli import main
from gptlab.declare.composer import compose
from gptlab.show.figures.style import drawing, svg
from tests.support.refusals import refused, refused_command

# What a reader has to find written in each figure.
WORDS = {
    "shape_trace": ["(2, 4, 50257)", "1.5 GiB", "1,646,821,376 bytes", "96.0 MiB"],
    "layer_norm": ["0.6746 (n)", "0.6159 (n", "1.0954", "1.00065"],
    "activation_curves": ["x = -0.75246", "-0.1700", "0.000473", "2.70"],
    "expansion_parity": ["1.9987", "2.0007", "2,360,064", "4,722,432", "+1,536"],
    "gradient_flow": ["1,099x", "1,723x", "460x", "191x", "263x", "0.000120", "1.3259"],
    "parameter_budget": ["163,009,536", "124,412,160", "1,557,380,800", "23.7%", "4.9%"],
    "greedy_steps": ["Feature", "swick", "0.0197", "6 of 6 steps"],
}
QUICK = [pytest.param(n, marks=pytest.mark.slow) if n == "greedy_steps" else n for n in FIGURES]  # that one builds 124M


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("name", QUICK)
def test_each_figure_says_what_was_published(name: str) -> None:
    with drawing():
        figure = draw(name)
        content = svg(figure)
    said = words(figure)
    assert [word for word in WORDS[name] if word not in said] == []
    assert len(content) < 200_000
    xml.etree.ElementTree.fromstring(content)


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    one, two = (
        {path.name: path.read_bytes() for path in write(["gradient_flow", "layer_norm"], tmp_path / folder)}
        for folder in ("one", "two")
        if (tmp_path / folder).mkdir() is None
    )
    assert len(one) == 4
    assert one == two


# --- what the figures show is computed: another input, another number


def test_shape_trace_follows_the_model() -> None:
    small, large = shapes.traces(("model=tiny", "model.context_length=1024"))
    assert small[-1]["output_shape"] == "(2, 4, 256)"
    assert large[-1]["bytes"] == 8 * 1024 * 256 * 4
    assert sum(row["type"] == "Serial" for row in small) == 2


def test_layer_norm_conventions_differ_by_the_square_root() -> None:
    x = norms.demo_rows()
    biased, unbiased = norms.normalised(x, eps=0.0)
    assert torch.allclose(biased, unbiased * math.sqrt(6 / 5))
    assert biased.var(-1, unbiased=False).tolist() == pytest.approx([1, 1])
    assert unbiased.var(-1).tolist() == pytest.approx([1, 1])
    assert not torch.equal(norms.demo_rows(seed=1), x)
    for width in (2, 6, 768):
        assert norms.ratio(width) == pytest.approx(math.sqrt(width / (width - 1)), rel=1e-12)


def test_activation_points() -> None:
    tanh, exact, silu = (activations.minimum(name) for name in ("gelu_tanh", "gelu", "silu"))
    assert (tanh.x, tanh.y) == pytest.approx((-0.752461, -0.170041), abs=1e-6)
    assert (exact.x, exact.y) == pytest.approx((-0.751792, -0.169971), abs=1e-6)
    assert (silu.x, silu.y) == pytest.approx((-1.278465, -0.278465), abs=1e-6)
    largest = activations.gap()
    assert (largest.x, largest.y) == pytest.approx((2.69895, 0.000473236), rel=1e-4)
    assert activations.flat_below("gelu_tanh") == pytest.approx(-5.061, abs=2e-3)


@pytest.mark.parametrize("width", [32, 64, 768])
def test_parity_is_the_closed_form(width: int) -> None:
    model = replace(compose(["model=tiny", "probes=counting"]).model, emb_dim=width)
    assert expansion.parity(model) == pytest.approx(4 * width / (2 * width + 1), rel=1e-12)
    biased = replace(model, qkv_bias=True)
    assert expansion.parity(biased) == pytest.approx((4 * width + 3) / (2 * width + 1), rel=1e-12)


def test_parity_moves_when_the_feed_forward_layer_does() -> None:
    model = compose(["model=tiny", "probes=counting"]).model
    assert expansion.parity(replace(model, feed_forward="swiglu")) < expansion.parity(model) * 0.75


def test_profiles_depend_on_seed_and_shortcut() -> None:
    config = compose(["model=deep_mlp"])
    with_ = gradients.profile(config)
    assert with_.gradients[0] == pytest.approx(0.221698, rel=1e-5)
    without = gradients.profile(compose(["model=deep_mlp", "ablation=no_shortcut"]))
    assert with_.gradients[0] / without.gradients[0] == pytest.approx(1098.95, rel=1e-4)
    assert not without.monotone, "layer 0 has a larger gradient than layer 1"
    assert gradients.profile(replace(config, seed=1)) != with_


def test_shares_add_up_and_tying_takes_the_head_away() -> None:
    total, parts = budget.shares(compose(["probes=counting"]))
    assert total == sum(parts.values()) == 163_009_536
    tied, without_head = budget.shares(compose(["ablation=tied", "probes=counting"]))
    assert (tied, without_head["head"]) == (124_412_160, 0)
    assert {part: size for part, size in parts.items() if part != "head"} | {"head": 0} == without_head


def test_steps_choose_the_best_both_ways() -> None:
    found, _ = steps.decoded(compose(["model=tiny"]), 4)
    for step in found:
        assert step.from_logits == step.from_softmax == step.ids[0]
        assert step.margin >= 0
        assert list(step.probabilities) == sorted(step.probabilities, reverse=True)


# --- the command


def test_command_writes_svg_and_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "gradient_flow", "--output", str(tmp_path / "new" / "slides")]) == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert names == ["gradient_flow.svg", "gradient_flow.png"]
    assert all((tmp_path / "new" / "slides" / name).stat().st_size > 10_000 for name in names)


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (["gradient_flo"], "unknown-name", {"key": "figures", "value": "gradient_flo", "suggestion": "gradient_flow"}),
        (["--outptu", "x"], "unknown-name", {"key": "option", "value": "--outptu", "suggestion": "--output"}),
        (["-o"], "option-value", {"key": "--output"}),
        (["layer_norm", "-o", "taken"], "figures-not-written", {"folder": Path("taken"), "reason": "File exists"}),
        (
            ["layer_norm", "-o", "taken/below"],
            "figures-not-written",
            {"folder": Path("taken/below"), "reason": "Not a directory"},
        ),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    code: str,
    facts: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file")
    refused_command(capsys, "figures", *arguments, code=code, **facts)


def test_a_folder_without_write_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # chmod does not stop root
    facts = {"folder": tmp_path, "reason": "Permission denied"}
    refused_command(capsys, "figures", "layer_norm", "-o", tmp_path, code="figures-not-written", **facts)
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_seven(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "--help"]) == 0
    said = capsys.readouterr().out
    assert len(FIGURES) == 7
    assert all(name in said for name in FIGURES)


def test_an_unknown_name_from_python() -> None:
    with refused("unknown-name", key="figure", value="layernorm", suggestion="layer_norm"):
        draw("layernorm")
