"""The pocket model's shape: trained as Qwen2, written as Llama, which every engine loads."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

CAP = 256  # tokens of an answer: the longest training answer has about 250


def fresh(vocabulary: int, pad: int, end: int, seed: int) -> Qwen2ForCausalLM:
    """An untrained model of about a million parameters in float32."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=-(-vocabulary // 32) * 32,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=pad,
            eos_token_id=end,
            bos_token_id=None,
        )
    )


def as_llama(net: Qwen2ForCausalLM) -> LlamaForCausalLM:
    """The same function as a Llama, whose one bias more is zero.

    transformers gives Qwen's own tokenizer to every model of type qwen2, whatever lies beside it.
    """
    shape = net.config
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    names += ("num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    names += ("rms_norm_eps", "rope_parameters", "tie_word_embeddings")
    names += ("pad_token_id", "eos_token_id", "bos_token_id")
    same = {name: getattr(shape, name) for name in names}
    llama = LlamaForCausalLM(LlamaConfig(**same, attention_bias=True))
    biases = {
        f"model.layers.{layer}.self_attn.o_proj.bias": torch.zeros(shape.hidden_size)
        for layer in range(shape.num_hidden_layers)
    }
    llama.load_state_dict({**net.state_dict(), **biases})
    return llama
