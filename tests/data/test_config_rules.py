from pathlib import Path
from typing import Any

import pytest
import yaml

from gptlab import compose
from gptlab.config import DataConfig, check_fields
from gptlab.data.batches import load
from gptlab.data.config_rules import check_data, settle_data, settle_tokenizer
from gptlab.data.kinds import register_data
from gptlab.errors import ConfigError

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
    ("data", "message"),
    [
        (
            {"path": "a.txt"},
            r"^data\.path: would be ignored, because data\.source=python_docs .* Type data=text data\.path=a\.txt$",
        ),
        ({"source": "file", "path": "a", "text": "b"}, r"^data\.text: would be ignored, because data\.source=file"),
        ({"source": "random_tokens", "inputs": [[1.0]]}, r"^data\.inputs: would be ignored"),
        ({**VECTORS, "text": ""}, r"^data\.text: would be ignored"),
        ({**VECTORS, "tokenizer": "gpt2"}, r"^data\.tokenizer=gpt2: would be ignored"),
        ({**VECTORS, "prompt": "Hi"}, r"^data\.prompt=Hi: would be ignored"),
        ({"source": "file"}, r"^data\.path: data\.source=file needs it"),
        ({"source": "string"}, r"^data\.text: data\.source=string needs it"),
        ({"source": "vectors", "inputs": [[1.0]]}, r"^data\.targets: data\.source=vectors needs it"),
        (
            {"source": "random_tokens", "tokenizer": "gpt2"},
            r"^data\.tokenizer=gpt2: cannot read data\.source=random_tokens\. Allowed: auto, ids\.$",
        ),
        (
            {"tokenizer": "ids"},
            r"^data\.tokenizer=ids: cannot read data\.source=python_docs\. Allowed: auto, byte, char, gpt2\.$",
        ),
        ({**VECTORS, "inputs": [[1.0], [1.0, 2.0]]}, r"^data\.inputs: rows of 1 and 2 numbers"),
        ({**VECTORS, "targets": []}, r"^data\.targets: no rows"),
        ({**VECTORS, "targets": [[]]}, r"^data\.targets: rows of 0 numbers"),
        ({**VECTORS, "targets": [[0.0], [0.0]]}, r"^data\.targets: 2 rows for 1 rows of data\.inputs"),
        ({**VECTORS, "inputs": [[float("nan"), 1.0]]}, r"^data\.inputs: must be finite numbers"),
    ],
)
def test_what_a_source_would_ignore_or_lacks_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
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
    with pytest.raises(
        ConfigError, match=r"^data\.options \(data=markov\): 'ordre' does not exist\. Did you mean 'order'"
    ):
        check_data(DataConfig(source="markov", options={"ordre": 3}), 64)
    with pytest.raises(ConfigError, match=r"^data\.options\.order=two: must be a whole number"):
        check_data(DataConfig(source="markov", options={"order": "two"}), 64)
    with pytest.raises(ConfigError, match=r"^data\.source: 'makrov' does not exist\. Did you mean 'markov'"):
        check_data(DataConfig(source="makrov"), 64)


def test_a_split_is_settled_where_there_is_one_and_refused_where_not() -> None:
    assert settle_data(DataConfig(), 256).split == "document"
    assert settle_data(DataConfig(source="string", text="a"), 256).split == "position"
    assert settle_data(DataConfig(source="markov"), 256).validation_fraction is None
    with pytest.raises(ConfigError, match=r"^data\.split: would be ignored, because data\.source=sentences"):
        check_data(DataConfig(source="sentences", split="position"), 256)
    with pytest.raises(ConfigError, match=r"^data\.validation_fraction=0\.7: must be above 0, at most 0\.5"):
        check_fields(DataConfig(validation_fraction=0.7), "data")


@pytest.mark.usefixtures("scratch_registry")
def test_a_plugin_adds_a_kind() -> None:
    @register_data("dice", tokenizers=("ids",))
    def dice(vocab_size: int, path: str, text: str = "x", sides: int = 6) -> object:
        return (vocab_size, path, text, sides)

    data = DataConfig(source="dice", path="p", options={"sides": "8"})
    assert load(data, vocab_size=9, seed=1) == (9, "p", "x", 8)  # type: ignore[comparison-overlap]
    with pytest.raises(ConfigError, match=r"^data\.path: data\.source=dice needs it"):
        load(DataConfig(source="dice"), vocab_size=9, seed=1)
    with pytest.raises(ConfigError, match=r"data 'markov' is already registered by gptlab\.data\.markov"):
        register_data("markov")(dice)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("markov", {"order": 0}, r"order=0: must be 1 or more"),
        ("markov", {"symbols": 1}, r"symbols=1: must be 2 or more"),
        ("markov", {"sharpness": -1}, r"sharpness=-1\.0: must be between 0 and 20"),
        ("markov", {"sharpness": float("nan")}, r"sharpness=nan: must be between 0 and 20"),
        ("markov", {"order": 6}, r"order=6: a table of 32 ids .* more than 4,194,304 entries"),
        ("markov", {"symbols": 65}, r"data\.source=markov: token id 64 is outside model\.vocab_size=64"),
        ("brackets", {"kinds": 0}, r"kinds=0: must be between 1 and 8"),
        ("brackets", {"depth": 0}, r"depth=0: must be 1 or more"),
        ("brackets", {"depth": 40}, r"depth=40: 4 kinds .* more than 262,144 different stacks"),
        ("brackets", {"opening": 1.0}, r"opening=1\.0: must be between 0 and 1"),
        ("induction", {"symbols": 1}, r"symbols=1: must be 2 or more"),
    ],
)
def test_languages_that_cannot_be(source: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(DataConfig(source=source, options=options), vocab_size=64, seed=1)


def test_an_error_of_a_probe_s_batch_says_whose_it_is() -> None:
    """train.context has been given, and it is not what the message is about."""
    words = ["model=tiny", "data=induction", "data.options.symbols=16", "train.budget=5", "train.context=20"]
    with pytest.raises(ConfigError, match=r"rows of context 64 .*This is the batch of probes\.gradients\.$"):
        compose(words)
    compose([*words, "probes.gradients.context=20", "probes.activations.context=20"])
