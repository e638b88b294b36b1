"""A model of a few thousand weights whose words are boxed answers and filler, and a recipe."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from crt.config import RunConfig
from crt.recipes import config_of

BOXES = [rf"\boxed{{{digit}}}" for digit in range(3)]
WORDS = ["<pad>", "<eos>", "<unk>", "<go>", "red", "green", "blue", "hmm", "wait", *BOXES]
NAMES = {"end": "<eos>", "zero": BOXES[0]}
RECIPE = """
name = "tiny"
seed = 5
[model]
name = "{model}"
dtype = "float32"
[prompt]
instruction = "{{question}}"
[data]
train = ["{data}"]
[method]
type = "crt"
saturation = {{ at_least = 2, window = 1, latest = 0.5, improvement = 0.0 }}
[schedule]
steps = 8
problems_per_step = 4
save_every = 2
[sampling]
group_size = 4
max_tokens = 10
[preflight]
max_truncated = 1.0
[reference]
rollouts = 4
[validation]
problems = 4
rollouts = 2
final_rollouts = 3
finalists = 2
[grading]
workers = 1
[optim]
learning_rate = 1e-2
kl = 0.01
"""


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template="{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %} <go>{% endif %}",
    )


SHAPE = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}


def make_model(**changes) -> LlamaForCausalLM:
    torch.manual_seed(0)
    # not Qwen2: AutoTokenizer forces Qwen2's own tokenizer on that
    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, **changes}))


def make_inclined(folder: Path, **logits: float) -> None:
    """A model that says each word about as often as its logit asks, whatever it was told."""
    torch.manual_seed(0)
    config = LlamaConfig(**{**make_model().config.to_dict(), "tie_word_embeddings": False})
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        # One coordinate outweighs the others in every embedding, so after the last norm it is
        # √16 = 4 at every position: a word's weight there is a quarter of its logit.
        model.model.embed_tokens.weight[:, 0] += 8.0
        for word, logit in logits.items():
            model.lm_head.weight[WORDS.index(NAMES.get(word, word)), 0] = logit / 4
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)


def make_tiny(folder: Path) -> Path:
    """`model/`, `data.jsonl` and `recipe.toml` in a folder."""
    make_model().save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    colours = ["red", "green", "blue"]
    rows = [
        {
            "question": f"{colours[i % 3]} {colours[i // 3 % 3]} hmm",
            "answer": str(i % 3),
            "id": f"q{i}",
        }
        for i in range(36)
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = RECIPE.format(model=folder / "model", data=folder / "data.jsonl")
    (folder / "recipe.toml").write_text(recipe)
    return folder


def verl_config(**changes) -> RunConfig:
    """A recipe for a cluster, of which nothing is there."""
    plain = {"name": "t", "engine": "verl", "model": {"name": "m"}, "data": {"train": ["d"]}}
    return config_of({**plain, "method": {"type": "crt_1s"}, **changes})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A folder with `model/`, `data.jsonl` and `recipe.toml`."""
    return make_tiny(tmp_path_factory.mktemp("tiny"))
