"""Untrained models of a few thousand parameters, for tests of what drives a model."""

import torch
from torch import nn
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

WORDS, END = 12, 1
SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "eos_token_id": END,
}


def qwen() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE))


def qwen3() -> PreTrainedModel:
    """Queries and keys are normed, and a head is larger than its share of the layer."""
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=12))


def sliding() -> PreTrainedModel:
    """Layers that see three positions back: the model's own mask has to do it."""
    return Qwen2ForCausalLM(
        Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=3, max_window_layers=1)
    )


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


def biased() -> PreTrainedModel:
    """Every linear layer has a bias, as in the pocket model's attention, and none is 0."""
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    biases = {"attention_bias": True, "mlp_bias": True}
    config = LlamaConfig(**shape, **biases, vocab_size=WORDS, num_attention_heads=4)
    model = LlamaForCausalLM(config)
    for name, weight in model.named_parameters():
        if name.endswith(("bias", "norm.weight")):
            nn.init.normal_(weight, 0.5)
    return model


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4))


def latent() -> PreTrainedModel:
    """Keys and values of two sizes."""
    return DeepseekV3ForCausalLM(
        DeepseekV3Config(
            **SHAPE | {"num_key_value_heads": 4},
            first_k_dense_replace=2,
            kv_lora_rank=16,
            q_lora_rank=16,
            qk_rope_head_dim=4,
            qk_nope_head_dim=8,
            v_head_dim=8,
        )
    )


def lively(maker=qwen) -> PreTrainedModel:
    """An untrained model with weights large enough that it is far from indifferent."""
    torch.manual_seed(0)
    model = maker().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(8)
    return model


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
