"""The pocket model's shape: Qwen2, so that every engine loads it unchanged."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

CAP = 256  # tokens of an answer: the longest training answer has about 215


def fresh(vocabulary: int, pad: int, end: int, seed: int) -> Qwen2ForCausalLM:
    """An untrained model of 1.4M parameters in float32."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=-(-vocabulary // 32) * 32,
            hidden_size=160,
            intermediate_size=480,
            num_hidden_layers=4,
            num_attention_heads=5,
            num_key_value_heads=5,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=pad,
            eos_token_id=end,
            bos_token_id=None,
        )
    )
