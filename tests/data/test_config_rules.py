from pathlib import Path
from typing import Any

import pytest
import yaml

from gptlab import compose
from gptlab.config import DataConfig, check_fields
from gptlab.data.batches import load
from gptlab.data.config_rules import check_data, settle_data, settle_tokenizer
from gptlab.data.kinds import register_data
from tests.support.refusals import refused

CONF = Path(__file__).parents[2] / "conf" / "data"
VECTORS: dict[str, Any] = {"source": "vectors", "inputs": [[1.0, 0.0]], "targets": [[0.0]]}


@pytest.mark.parametrize(
    ("data", "vocab_size", "expected"),
    [
        ({}, 50257, "gpt2"),
        ({}, 50256, "byte"),
        ({}, 256, "byte"),
        ({}, 255, "char"),
        ({"tokenizer": "char"}, 50257, "char"),
        ({"source": "random_tokens"}, 50257, "ids"),
        (VECTORS, 50257, "auto"),
    ],
)
def test_auto_takes_the_largest_tokenizer_that_fits(data: dict[str, Any], vocab_size: int, expected: str) -> None:
    assert settle_tokenizer(DataConfig(**data), vocab_size) == expected


@pytest.mark.parametrize(
    ("data", "code", "facts"),
    [
        (
            {"path": "a.txt"},
            "key-ignored",
            {"key": "data.path", "command": "data=text data.path=a.txt"},
        ),
        ({"source": "file", "path": "a", "text": "b"}, "key-ignored", {"key": "data.text"}),
        ({"source": "random_tokens", "inputs": [[1.0]]}, "key-ignored", {"key": "data.inputs"}),
        ({**VECTORS, "text": ""}, "key-ignored", {"key": "data.text"}),
        (
            {**VECTORS, "tokenizer": "gpt2"},
            "data-has-no-tokens",
            {"key": "data.tokenizer", "value": "gpt2", "source": "vectors"},
        ),
        ({**VECTORS, "prompt": "Hi"}, "data-has-no-tokens", {"key": "data.prompt", "value": "Hi", "source": "vectors"}),
        ({"source": "file"}, "data-key-needed", {"name": "path", "source": "file"}),
        ({"source": "string"}, "data-key-needed", {"name": "text", "source": "string"}),
        ({"source": "vectors", "inputs": [[1.0]]}, "data-key-needed", {"name": "targets", "source": "vectors"}),
        (
            {"source": "random_tokens", "tokenizer": "gpt2"},
            "tokenizer-for-source",
            {"key": "data.tokenizer", "value": "gpt2", "allowed": ["auto", "ids"]},
        ),
        (
            {"tokenizer": "ids"},
            "tokenizer-for-source",
            {"key": "data.tokenizer", "value": "ids", "allowed": ["auto", "byte", "char", "gpt2"]},
        ),
        ({**VECTORS, "inputs": [[1.0], [1.0, 2.0]]}, "ragged-rows", {"key": "data.inputs", "widths": [1, 2]}),
        ({**VECTORS, "targets": []}, "ragged-rows", {"key": "data.targets", "widths": []}),
        ({**VECTORS, "targets": [[]]}, "ragged-rows", {"key": "data.targets", "widths": [0]}),
        ({**VECTORS, "targets": [[0.0], [0.0]]}, "targets-per-input", {"key": "data.targets"}),
        ({**VECTORS, "inputs": [[float("nan"), 1.0]]}, "rows-not-finite", {"key": "data.inputs"}),
    ],
)
def test_what_a_source_would_ignore_or_lacks_is_refused(data: dict[str, Any], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        check_data(DataConfig(**data), 50257)


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_preset_loads(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = file.read_text()
    assert text.startswith("# ")
    (tmp_path / "a.txt").write_text("some words " * 20)
    given = {"path": str(tmp_path / "a.txt"), "text": "some words " * 20}
    if file.stem == "hf":
        pytest.importorskip("datasets")
        given["path"] = str(tmp_path)
    monkeypatch.setenv("GPTLAB_CACHE", str(tmp_path / "cache"))
    data = DataConfig(**{key: given[key] if value == "???" else value for key, value in yaml.safe_load(text).items()})
    check_fields(data, "data")
    batch = load(data, vocab_size=50257, seed=123).batch(2, 8)
    assert batch.inputs.shape == ((1, 3) if file.stem == "five_layer_input" else (2, 8))
    assert bool(data.prompt) == (file.stem != "five_layer_input")


def test_options_are_the_kinds_own() -> None:
    settled = settle_data(DataConfig(source="markov", options={"order": 3, "sharpness": 2}), 64)
    assert (settled.tokenizer, settled.options) == ("ids", {"order": 3})  # the default is left out
    with refused("unknown-name", key="data.options (data=markov)", value="ordre", suggestion="order"):
        check_data(DataConfig(source="markov", options={"ordre": 3}), 64)
    with refused("wrong-type", key="data.options.order", value="two"):
        check_data(DataConfig(source="markov", options={"order": "two"}), 64)
    with refused("unknown-name", key="data.source", value="makrov", suggestion="markov"):
        check_data(DataConfig(source="makrov"), 64)


def test_a_split_is_settled_where_there_is_one_and_refused_where_not() -> None:
    assert settle_data(DataConfig(), 256).split == "document"
    assert settle_data(DataConfig(source="string", text="a"), 256).split == "position"
    assert settle_data(DataConfig(source="markov"), 256).validation_fraction is None
    with refused("key-ignored", key="data.split"):
        check_data(DataConfig(source="sentences", split="position"), 256)
    with refused("out-of-range", key="data.validation_fraction", value=0.7, high=0.5, above=0.0):
        check_fields(DataConfig(validation_fraction=0.7), "data")


@pytest.mark.usefixtures("scratch_registry")
def test_a_plugin_adds_a_kind() -> None:
    @register_data("dice", tokenizers=("ids",))
    def dice(vocab_size: int, path: str, text: str = "x", sides: int = 6) -> object:
        return (vocab_size, path, text, sides)

    data = DataConfig(source="dice", path="p", options={"sides": "8"})
    assert load(data, vocab_size=9, seed=1) == (9, "p", "x", 8)  # type: ignore[comparison-overlap]
    with refused("data-key-needed", name="path", source="dice"):
        load(DataConfig(source="dice"), vocab_size=9, seed=1)
    with refused("component-registered-twice", name="markov", module="gptlab.data.markov"):
        register_data("markov")(dice)


@pytest.mark.parametrize(
    ("source", "options", "code", "facts"),
    [
        ("markov", {"order": 0}, "markov-order", {"key": "data.options.order", "value": 0}),
        ("markov", {"symbols": 1}, "markov-symbols", {"key": "data.options.symbols", "value": 1}),
        ("markov", {"sharpness": -1}, "markov-sharpness", {"key": "data.options.sharpness", "value": -1.0}),
        ("markov", {"sharpness": float("nan")}, "markov-sharpness", {"key": "data.options.sharpness"}),
        (
            "markov",
            {"order": 6},
            "markov-table-too-large",
            {"key": "data.options.order", "value": 6, "symbols": 32, "largest": 4194304},
        ),
        (
            "markov",
            {"symbols": 65},
            "language-outside-vocabulary",
            {"where": "data.source=markov", "vocab_size": 64, "size": 65},
        ),
        ("brackets", {"kinds": 0}, "brackets-kinds", {"key": "data.options.kinds", "value": 0}),
        ("brackets", {"depth": 0}, "brackets-depth", {"key": "data.options.depth", "value": 0}),
        (
            "brackets",
            {"depth": 40},
            "brackets-too-many",
            {"key": "data.options.depth", "value": 40, "kinds": 4, "largest": 262144},
        ),
        ("brackets", {"opening": 1.0}, "brackets-opening", {"key": "data.options.opening", "value": 1.0}),
        ("induction", {"symbols": 1}, "induction-symbols", {"key": "data.options.symbols", "value": 1}),
    ],
)
def test_languages_that_cannot_be(source: str, options: dict[str, Any], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        load(DataConfig(source=source, options=options), vocab_size=64, seed=1)


def test_an_error_of_a_probe_s_batch_says_whose_it_is() -> None:
    """train.context has been given, and it is not what the message is about."""
    words = ["model=tiny", "data=induction", "data.options.symbols=16", "train.budget=5", "train.context=20"]
    with refused(
        "induction-too-few-symbols", key="data.options.symbols", value=16, context=64, first=44, probe="gradients"
    ):
        compose(words)
    compose([*words, "probes.gradients.context=20", "probes.activations.context=20"])
