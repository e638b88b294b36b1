"""A tiny model with its own tokenizer, and problems to ask it."""

import json
from pathlib import Path

import pytest

TEMPLATE = (
    "{% for message in messages %}{{ '<user>' + message['content'] + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<bot>' }}{% endif %}"
)


def make_model(folder: Path, seed: int = 0) -> Path:
    """An untrained Qwen2 of a few thousand weights that ends its responses soon."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    special = ["<pad>", "<end>", "<user>", "<bot>", "<unk>"]
    pieces = [*special, "\\boxed{", *(chr(code) for code in range(32, 127)), "\n"]
    words = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|[\s\S]"), "isolated")
    words.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<user>", "<bot>"]})
    tokenizer.chat_template = TEMPLATE
    config = Qwen2Config(
        vocab_size=len(pieces),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        eos_token_id=1,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():  # so that responses have different lengths and some reach the cap
        model.lm_head.weight.mul_(4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_problems(path: Path, count: int = 6) -> Path:
    """Sums with one right answer each."""
    rows = [{"id": f"p{i}", "question": f"{i} + 1 = ?", "answer": str(i + 1)} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def problems(tmp_path) -> Path:
    return write_problems(tmp_path / "sums.jsonl")
