"""Rollouts of the pocket model: problems in, graded texts out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from crt.pocket import tokenizer as vocabulary
from crt.sampling.hf import Sample, sample
from crt.types import Problem
from tools.pocket.model import CAP

BOX = re.compile(r"\\boxed\{(\d+)\}")


@dataclass(frozen=True, slots=True)
class Graded:
    """One answer to a problem; `length` counts a forced first word as well."""

    problem: Problem
    prompt: list[int]
    sample: Sample
    text: str
    length: int
    correct: bool


def is_right(text: str, answer: str) -> bool:
    """Whether the last box after the thought holds the answer."""
    _, closed, final = text.rpartition(vocabulary.THOUGHT)
    boxes = BOX.findall(final) if closed else []
    return bool(boxes) and boxes[-1] == answer


def rollouts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    problems: Sequence[Problem],
    copies: int,
    generator: torch.Generator,
    first_word: str = "",
) -> list[list[Graded]]:
    """`copies` graded answers to every problem at temperature 1, begun with a word or freely."""
    forced = tokenizer.encode(first_word, add_special_tokens=False) if first_word else []
    prompts = [
        tokenizer.encode(vocabulary.prompt(tokenizer, item.question), add_special_tokens=False)
        for item in problems
    ]
    groups = sample(
        model,
        [prompt + forced for prompt in prompts],
        copies,
        CAP - len(forced),
        [model.config.eos_token_id],
        generator=generator,
        share_prompts=False,  # rounds otherwise, and the shipped weights were made like this
    )
    return [
        [graded(item, prompt, each, forced, tokenizer) for each in group]
        for item, prompt, group in zip(problems, prompts, groups, strict=True)
    ]


def graded(
    item: Problem,
    prompt: list[int],
    each: Sample,
    forced: list[int],
    tokenizer: PreTrainedTokenizerFast,
) -> Graded:
    """One sample as text with its verdict."""
    text = str(tokenizer.decode(forced + each.tokens, skip_special_tokens=True))
    length = len(forced) + len(each.tokens)
    return Graded(item, prompt, each, text, length, is_right(text, item.answer))
