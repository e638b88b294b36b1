"""The pocket model's own small BPE tokenizer with a chat template and a `<think>` block."""

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from crt.pocket.tokenizer import INSTRUCTION

PAD, END, SYSTEM, USER, ASSISTANT = "<pad>", "<end>", "<system>", "<user>", "<assistant>"
THINK, THOUGHT = "<think>", "</think>"

# Numbers are single digits, words carry their leading space, as in larger models' tokenizers.
PIECES = Regex(r" ?\d| ?\\?[A-Za-z]+\{?| ?[^\sA-Za-z\d]|\s")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ '<system>' + message['content'] + '<end>' }}"
    "{% elif message['role'] == 'user' %}{{ '<user>' + message['content'] + '<end>' }}"
    "{% else %}{{ '<assistant>' + message['content'] + '<end>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant><think>\n' }}{% endif %}"
)


def train(texts: Iterable[str], size: int) -> Tokenizer:
    """Learns the merges from texts; every printable ASCII character is in the alphabet."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(PIECES, behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    special = [PAD, END, "<unk>", SYSTEM, USER, ASSISTANT]
    trainer = trainers.BpeTrainer(
        vocab_size=size - 3,
        special_tokens=special,
        initial_alphabet=[chr(code) for code in range(32, 127)] + ["\n", "×"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (THINK, THOUGHT)])
    tokenizer.add_tokens([AddedToken(INSTRUCTION, normalized=False)])
    return tokenizer


def wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The same tokenizer as transformers, TRL and vLLM load it."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token="<unk>",
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=512,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped
