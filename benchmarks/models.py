"""Models of several sizes with random weights; lengths of rollouts differ as real ones do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

VOCABULARY = 512


@dataclass(frozen=True)
class Shape:
    """Of a model, and how long its rollouts may become."""

    hidden: int
    inner: int
    layers: int
    heads: int
    cap: int
    vocabulary: int = VOCABULARY
    kv_heads: int = 0  # as many as heads, if 0

    @property
    def prompt(self) -> tuple[int, int]:
        """Fewest and most tokens of a prompt: a third of an answer, as with the pocket model."""
        return self.cap // 6, self.cap // 3

    @property
    def stop_token_ids(self) -> list[int]:
        """Tokens that end a rollout.

        With random weights all tokens are about as likely. With so many, a rollout has on average
        55 % of the tokens of the cap, and every fourth runs into it.
        """
        first = self.vocabulary - round(self.vocabulary / (0.75 * self.cap))
        return list(range(first, self.vocabulary))

    @property
    def layer_weights(self) -> int:
        """Of all linear layers between embedding and head."""
        kv = (self.kv_heads or self.heads) * self.hidden // self.heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * kv
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def head_weights(self) -> int:
        """Of the distribution over the vocabulary."""
        return self.hidden * self.vocabulary


SHAPES = {
    "1M": Shape(160, 480, 3, 5, cap=160),
    "30M": Shape(640, 1792, 6, 20, cap=64),
    "135M": Shape(576, 1536, 30, 9, cap=32, vocabulary=49152, kv_heads=3),  # SmolLM2's
}


def shape_of(folder: Path, cap: int) -> Shape:
    """Of a model on disk."""
    config: Any = AutoConfig.from_pretrained(folder)
    return Shape(
        config.hidden_size, config.intermediate_size, config.num_hidden_layers,
        config.num_attention_heads, cap, config.vocab_size, config.num_key_value_heads,
    )  # fmt: skip


def write_llama(shape: Shape, folder: Path, dtype: str = "float32", seed: int = 0) -> Path:
    """An untrained model as a folder that every contender can load."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads or shape.heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=None,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    return folder


def prompts_for(shape: Shape, count: int, seed: int = 0) -> list[list[int]]:
    """Prompts of random tokens, none of which ends anything."""
    generator = torch.Generator().manual_seed(seed)
    fewest, most = shape.prompt
    lengths = torch.randint(fewest, most + 1, (count,), generator=generator).tolist()
    return [torch.randint(1, 400, (n,), generator=generator).tolist() for n in lengths]
