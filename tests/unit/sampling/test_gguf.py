"""A `.gguf` file is a model: its weights, its tokenizer, and the token that ends a turn."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants

from crt.errors import EngineError
from crt.sampling.models import load_model

WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefgh", "ab", "cd"]
SIZE, HEADS, FEED = 32, 2, 64


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CRT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    block = {
        "attn_q": (SIZE, SIZE), "attn_k": (SIZE, SIZE), "attn_v": (SIZE, SIZE),
        "attn_output": (SIZE, SIZE), "ffn_gate": (FEED, SIZE), "ffn_up": (FEED, SIZE),
        "ffn_down": (SIZE, FEED),
    }  # fmt: skip
    made = {f"blk.0.{name}.weight": rng.normal(0, 0.1, shape) for name, shape in block.items()}
    made |= {f"blk.0.{name}.bias": np.zeros(SIZE) for name in ("attn_q", "attn_k", "attn_v")}
    norms = ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight")
    made |= {name: np.ones(SIZE) for name in norms}
    made["token_embd.weight"] = rng.normal(0, 0.1, (len(WORDS), SIZE))
    made["output.weight"] = rng.normal(0, 0.1, (len(WORDS), SIZE))
    return {name: value.astype(np.float32) for name, value in made.items()}


def write(path) -> dict[str, np.ndarray]:
    """A Qwen2 of one layer whose matrices are quantised to 8 bits."""
    writer = GGUFWriter(path, "qwen2")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(SIZE)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b", "c d"])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>")
    quantised = GGMLQuantizationType.Q8_0
    expected = {}
    for name, value in tensors().items():
        if value.ndim == 2:
            packed = quants.quantize(value, quantised)
            writer.add_tensor(name, packed, raw_dtype=quantised)
            expected[name] = quants.dequantize(packed, quantised)
        else:
            writer.add_tensor(name, value)
            expected[name] = value
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def test_weights_tokenizer_and_the_end_of_a_turn(tmp_path, cache):
    expected = write(tmp_path / "small.gguf")
    loaded = load_model(str(tmp_path / "small.gguf"))
    weights = dict(loaded.model.named_parameters())
    down = torch.tensor(expected["blk.0.ffn_down.weight"]).bfloat16()
    assert torch.equal(weights["model.layers.0.mlp.down_proj.weight"], down)
    assert torch.equal(
        weights["lm_head.weight"], torch.tensor(expected["output.weight"]).bfloat16()
    )
    assert loaded.files.eos_token_ids == (
        2,
    )  # <|im_end|>, although the family's own end is <|endoftext|>
    assert loaded.tokenizer.encode("abc") == [11, 5]  # ab, c


def test_it_is_converted_once_and_again_if_the_file_is_another(tmp_path, cache):
    write(tmp_path / "small.gguf")
    first = load_model(str(tmp_path / "small.gguf")).files.folder
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert load_model(str(tmp_path / "small.gguf")).files.folder == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    with (tmp_path / "small.gguf").open("ab") as file:
        file.write(b"\0" * 32)
    assert load_model(str(tmp_path / "small.gguf")).files.folder != first
    assert not list(cache.rglob(".unfinished-*"))


@pytest.mark.parametrize("damage", [b"", b"GGUF", b"not a model at all", "cut"])
def test_a_damaged_file_is_refused_with_one_sentence(tmp_path, cache, damage):
    path = tmp_path / "small.gguf"
    write(path)
    path.write_bytes(path.read_bytes()[:-4000] if damage == "cut" else damage)
    with pytest.raises(EngineError, match=r"small.gguf cannot be read as a GGUF model: \S"):
        load_model(str(path))
    assert not list(cache.rglob("*.safetensors"))


def test_a_file_that_is_not_there(tmp_path, cache):
    with pytest.raises(EngineError, match=r"none.gguf is not there"):
        load_model(str(tmp_path / "none.gguf"))
