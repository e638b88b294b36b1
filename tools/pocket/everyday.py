"""Everyday questions, asked as `crt ask` asks them: how many are right, wrong and refused."""

from collections import Counter
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from crt.grading.grader import Grader
from crt.pocket.language import Outside, read
from crt.pocket.tokenizer import prompt
from crt.sampling.hf import sample
from crt.types import Verdict
from tools.pocket.model import CAP

AT_ONCE = 64


def everyday(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    file: Path,
    temperature: float = 0.0,
    seed: int = 0,
) -> Counter[str]:
    """Counts the outcomes of a file with an answer, a tab and a question in every line."""
    outcomes: Counter[str] = Counter()
    asked: list[tuple[str, list[int]]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        answer, question = line.split("\t")
        try:
            text = prompt(tokenizer, read(question).question)
        except Outside:
            outcomes["refused"] += 1
        else:
            asked.append((answer, tokenizer.encode(text, add_special_tokens=False)))
    eos_token_ids = [model.config.eos_token_id]
    generator = torch.Generator().manual_seed(seed)
    with Grader(workers=1) as grader:
        for first in range(0, len(asked), AT_ONCE):
            part = asked[first : first + AT_ONCE]
            prompts = [token_ids for _, token_ids in part]
            groups = sample(
                model, prompts, 1, CAP, eos_token_ids, generator=generator, temperature=temperature
            )
            for (answer, _), [drawn] in zip(part, groups, strict=True):
                text = str(tokenizer.decode(drawn.tokens, skip_special_tokens=True))
                graded = grader.grade(text, answer, thinking_opened=True)
                outcomes["right" if graded.verdict is Verdict.CORRECT else "wrong"] += 1
    return outcomes
