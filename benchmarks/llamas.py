"""Llamas of three sizes with random weights, and rollouts whose lengths differ as real ones do."""

from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 512


@dataclass(frozen=True)
class Shape:
    """Of a model, and how long its rollouts may become."""

    hidden: int
    inner: int
    layers: int
    heads: int
    cap: int

    @property
    def prompt(self) -> tuple[int, int]:
        """Fewest and most tokens of a prompt: a third of an answer, as with the pocket model."""
        return self.cap // 6, self.cap // 3

    @property
    def ends(self) -> list[int]:
        """Tokens that end a rollout.

        With random weights all tokens are about as likely. With so many, a rollout has on average
        55 % of the tokens of the cap, and every fourth runs into it.
        """
        return list(range(VOCABULARY - round(VOCABULARY / (0.75 * self.cap)), VOCABULARY))


SHAPES = {
    "1M": Shape(160, 480, 3, 5, cap=160),
    "5M": Shape(320, 960, 4, 10, cap=64),
    "30M": Shape(640, 1792, 6, 20, cap=24),
}


def llama(shape: Shape, seed: int = 0) -> LlamaForCausalLM:
    """An untrained model in float32."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=shape.ends,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def prompts_for(shape: Shape, count: int, seed: int = 0) -> list[list[int]]:
    """Prompts of random tokens, none of which ends anything."""
    generator = torch.Generator().manual_seed(seed)
    fewest, most = shape.prompt
    lengths = torch.randint(fewest, most + 1, (count,), generator=generator).tolist()
    return [torch.randint(1, 400, (n,), generator=generator).tolist() for n in lengths]
