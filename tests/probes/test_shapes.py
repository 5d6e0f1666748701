"""The shape trace, and the memory estimate that is made from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gptlab.config import Config, DataConfig, ModelConfig
from gptlab.declare.one_spelling import settle
from gptlab.model import skeleton
from gptlab.probes import Subject, shapes
from gptlab.probes.shapes import memory_estimate, trace

BOOK = ModelConfig()
SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=3)
DUMMY = replace(BOOK, norm="identity", attention="identity", feed_forward="identity", shortcut="none")


def shapes_of(rows: list[dict[str, object]]) -> dict[str, str]:
    return {str(row["module"]): str(row["output_shape"]) for row in rows}


def test_the_books_two_texts_of_four_tokens() -> None:
    found = shapes_of(trace(BOOK, 2, 4))
    assert found["input"] == "(2, 4)"
    assert found["tok_emb"] == "(2, 4, 768)"
    assert found["pos_emb"] == "(4, 768)"
    assert [found[f"trf_blocks.{i}"] for i in range(12)] == ["(2, 4, 768)"] * 12
    assert "trf_blocks.12" not in found
    assert found["trf_blocks.0.ff.layers.0"] == "(2, 4, 3072)"
    assert found["trf_blocks.0.ff.layers.2"] == "(2, 4, 768)"
    assert found["final_norm"] == "(2, 4, 768)"
    assert found["out_head"] == found["model"] == "(2, 4, 50257)"


def test_rows_stand_in_the_order_of_the_computation() -> None:
    rows = trace(BOOK, 2, 4)
    assert [row["order"] for row in rows] == list(range(len(rows)))
    names = [row["module"] for row in rows]
    assert names[:3] == ["input", "tok_emb", "pos_emb"]
    assert names[-3:] == ["final_norm", "out_head", "model"]
    blocks = [name for name in names if name.startswith("trf_blocks.") and name.count(".") == 1]
    assert blocks == [f"trf_blocks.{i}" for i in range(12)]
    assert names.index("trf_blocks.0.norm1") < names.index("trf_blocks.0.att") < names.index("trf_blocks.0.norm2")


def test_twenty_four_shortcut_additions() -> None:
    assert sum(row["type"] == "Add" for row in trace(BOOK, 2, 4)) == 24


def test_why_nobody_keeps_the_logits() -> None:
    last = trace(BOOK, 8, 1024)[-1]
    assert last["output_shape"] == "(8, 1024, 50257)"
    assert (last["elements"], last["bytes"]) == (411_705_344, 1_646_821_376)


def test_the_only_width_that_changes_is_the_vocabularys() -> None:
    widths = {
        name: shape
        for name, shape in shapes_of(trace(BOOK, 2, 4)).items()
        if shape != "(2, 4, 768)"
        and not any(part in name for part in (".ff.layers.", ".queries", ".keys", ".values", ".scores"))
    }
    assert set(widths) == {"input", "pos_emb", "out_head", "model"}


def test_the_dummy_model_still_gives_logits() -> None:
    rows = trace(DUMMY, 2, 4)
    assert rows[-1]["output_shape"] == "(2, 4, 50257)"
    assert {row["output_shape"] for row in rows if str(row["module"]).startswith("trf_blocks")} == {"(2, 4, 768)"}


@pytest.mark.parametrize("changes", [{"position": "none"}, {"position": "sinusoidal"}, {"n_layers": 0}], ids=str)
def test_a_part_that_puts_out_nothing_has_no_row(changes: dict[str, object]) -> None:
    found = shapes_of(trace(replace(SMALL, **changes), 3, 5))
    assert found.get("pos_emb") == {"none": None}.get(str(changes.get("position")), "(5, 24)")
    assert found["model"] == "(3, 5, 61)"


def test_bytes_are_those_of_the_element_type() -> None:
    rows = trace(SMALL, 3, 5)
    assert (rows[0]["type"], rows[0]["elements"], rows[0]["bytes"]) == ("token ids", 15, 15 * 8)
    assert all(row["bytes"] == 4 * row["elements"] for row in rows[1:])


def test_deep_mlp_is_traced_by_rows() -> None:
    rows = trace(ModelConfig(architecture="deep_mlp", layer_sizes=[3, 3, 1]), 2, 7)
    assert rows[0] == {
        "order": 0, "module": "input", "type": "numbers", "output_shape": "(2, 3)", "elements": 6, "bytes": 24,
    }  # fmt: skip
    assert rows[-1]["output_shape"] == "(2, 1)"


def test_the_probe_takes_batch_and_context_from_the_config() -> None:
    config = settle(Config(model=SMALL, data=DataConfig(source="random_tokens")))
    assert config.probes.shapes is not None
    config.probes.shapes.batch_size = 5
    found = shapes.measure(Subject(config))
    assert found.tables["shapes"][-1]["output_shape"] == "(5, 4, 61)"
    config.model.context_length = 3
    config.probes.shapes.context = None
    assert shapes.measure(Subject(settle(config))).tables["shapes"][-1]["output_shape"] == "(5, 3, 61)"


@pytest.mark.parametrize(
    "more",
    [{"n_layers": 4}, {"emb_dim": 48}, {"vocab_size": 99}, {"expansion": 8.0}, {"tie_weights": False}],
    ids=str,
)
def test_a_larger_model_is_estimated_larger(more: dict[str, object]) -> None:
    base = replace(SMALL, tie_weights=True)
    (weights, peak), (more_weights, more_peak) = (
        memory_estimate(base, 2, 8),
        memory_estimate(replace(base, **more), 2, 8),
    )
    assert more_weights > weights
    assert more_peak > peak


def test_a_larger_batch_is_estimated_larger() -> None:
    weights, peak = memory_estimate(SMALL, 2, 8)
    for batch, context in ((3, 8), (2, 9)):
        assert memory_estimate(SMALL, batch, context)[0] == weights
        assert memory_estimate(SMALL, batch, context)[1] > peak


@pytest.mark.parametrize(
    ("changes", "batch", "context", "measured_mib"),
    [
        # What the gradient probe added to a process's peak (ru_maxrss), torch 2.13 on a CPU; measured once.
        ({}, 2, 64, 1466),
        ({"n_layers": 2, "emb_dim": 256, "n_heads": 4}, 4, 1024, 2614),
        ({"emb_dim": 256, "n_heads": 4, "vocab_size": 1000}, 8, 512, 960),
        ({"n_layers": 4, "tie_weights": True}, 1, 8, 830),  # worst: two gradients of the table meet for a moment
    ],
    ids=str,
)
def test_the_estimate_is_near_the_truth(
    changes: dict[str, object], batch: int, context: int, measured_mib: int
) -> None:
    weights, peak = memory_estimate(replace(BOOK, **changes), batch, context)
    size = sum(parameter.numel() for parameter in skeleton(replace(BOOK, **changes)).parameters())
    assert weights == 4 * size
    assert 0.6 < peak / 2**20 / measured_mib < 1.25


@pytest.mark.parametrize("changes", [{}, {"n_kv_heads": 2}])
def test_the_trace_looks_inside_attention(changes: dict[str, int]) -> None:
    config = ModelConfig(vocab_size=256, context_length=64, emb_dim=32, n_heads=4, n_layers=2, **changes)
    rows = [row for row in trace(config, 2, 6) if row["module"].startswith("trf_blocks.1.att.")]
    found = {row["module"].rpartition(".")[2]: row["output_shape"] for row in rows}
    shared = changes.get("n_kv_heads", 4)
    assert found["queries"] == "(2, 4, 6, 8)" and found["scores"] == "(2, 4, 6, 6)"
    assert found["keys"] == found["values"] == f"(2, {shared}, 6, 8)"
    names = list(found)
    assert names.index("W_query") < names.index("queries") < names.index("scores") < names.index("out_proj")
