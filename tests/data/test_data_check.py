from pathlib import Path
from typing import Any

import pytest
import yaml

from gptlab.config import DATA_SOURCES, DataConfig, check_fields
from gptlab.data.batches import load
from gptlab.data.check import _READS, check_data, settle_tokenizer
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


def test_every_source_is_known() -> None:
    assert tuple(_READS) == DATA_SOURCES


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"path": "a.txt"}, r"^data\.path: would be ignored, because data\.source=python_docs .* data\.source=file\.$"),
        ({"source": "file", "path": "a", "text": "b"}, r"^data\.text: would be ignored, because data\.source=file"),
        ({"source": "random_tokens", "inputs": [[1.0]]}, r"^data\.inputs: would be ignored"),
        ({**VECTORS, "text": ""}, r"^data\.text: would be ignored"),
        ({**VECTORS, "tokenizer": "gpt2"}, r"^data\.tokenizer=gpt2: would be ignored"),
        ({**VECTORS, "prompt": "Hi"}, r"^data\.prompt=Hi: would be ignored"),
        ({"source": "file"}, r"^data\.path: data\.source=file needs it"),
        ({"source": "string"}, r"^data\.text: data\.source=string needs it"),
        ({"source": "vectors", "inputs": [[1.0]]}, r"^data\.targets: data\.source=vectors needs it"),
        ({"source": "random_tokens", "tokenizer": "gpt2"}, r"^data\.tokenizer=gpt2: .* has no text"),
        ({"tokenizer": "ids"}, r"^data\.tokenizer=ids: data\.source=python_docs is text"),
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
def test_every_shipped_preset_loads(file: Path, tmp_path: Path) -> None:
    text = file.read_text()
    assert text.startswith("# ")
    (tmp_path / "a.txt").write_text("some words " * 20)
    given = {"path": str(tmp_path / "a.txt"), "text": "some words " * 20}
    data = DataConfig(**{key: given[key] if value == "???" else value for key, value in yaml.safe_load(text).items()})
    check_fields(data, "data")
    batch = load(data, vocab_size=50257, seed=123).batch(2, 8)
    assert batch.inputs.shape == ((1, 3) if file.stem == "five_layer_input" else (2, 8))
    assert bool(data.prompt) == (file.stem != "five_layer_input")
