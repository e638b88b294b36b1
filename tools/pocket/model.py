"""The pocket model's shape: trained as Qwen2, written as Llama, which every engine loads."""

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tools.pocket.worlds import Shape

HEAD = 32  # the smallest that vLLM knows
CAP = 256  # tokens of an answer: the longest training answer has about 250


def fresh(vocabulary: int, pad: int, end: int, seed: int, shape: Shape) -> Qwen2ForCausalLM:
    """An untrained model in float32."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=-(-vocabulary // 32) * 32,
            hidden_size=shape.hidden,
            intermediate_size=3 * shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            head_dim=HEAD,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=pad,
            eos_token_id=end,
            bos_token_id=None,
        )
    )


def transplant(
    net: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    trained: PreTrainedModel,
    trained_tokenizer: PreTrainedTokenizerFast,
) -> None:
    """Puts in the weights of a trained model; tokens that it does not know stay untrained."""
    known = trained_tokenizer.get_vocab()
    weights = trained.state_dict()
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if name == "model.embed_tokens.weight":
                for token, row in tokenizer.get_vocab().items():
                    if token in known:
                        weight[row] = weights[name][known[token]]
            else:
                weight.copy_(weights[name])


def as_llama(net: Qwen2ForCausalLM, world: str) -> LlamaForCausalLM:
    """The same function as a Llama, whose one bias more is zero; its config names the world.

    transformers gives Qwen's own tokenizer to every model of type qwen2, whatever lies beside it.
    """
    shape = net.config
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    names += ("num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    names += ("head_dim", "rms_norm_eps", "rope_parameters", "tie_word_embeddings")
    names += ("pad_token_id", "eos_token_id", "bos_token_id")
    same = {name: getattr(shape, name) for name in names}
    llama = LlamaForCausalLM(LlamaConfig(**same, attention_bias=True, pocket_world=world))
    biases = {
        f"model.layers.{layer}.self_attn.o_proj.bias": torch.zeros(shape.hidden_size)
        for layer in range(shape.num_hidden_layers)
    }
    llama.load_state_dict({**net.state_dict(), **biases})
    return llama
