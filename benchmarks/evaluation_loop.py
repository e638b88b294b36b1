"""What one writes by hand: batches of prompts, padded, sampled by HF `generate`, and math-verify.

Usage: python benchmarks/evaluation_loop.py PROBLEMS ROLLOUTS CAP SEED

Prints how many responses to pocket problems are right. Several processes share the problems when
torch's launcher starts them.
"""

import os
import sys
from typing import Any, cast

import torch
from math_verify import parse, verify

from crt.data.datasets import load as load_data
from crt.data.prompts import PromptSettings, prepare, render
from crt.pocket import load

AT_ONCE = 16  # problems in a batch
TEMPERATURE, TOP_P = 0.6, 0.95


def main() -> None:
    """Samples and verifies this process's share."""
    count, rollouts, cap, seed = map(int, sys.argv[1:])
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(seed * ranks + rank)
    model, tokenizer = cast(tuple[Any, Any], load())
    problems = load_data(f"pocket/test:{count}").problems[rank::ranks]
    template = prepare(tokenizer, PromptSettings())
    tokenizer.padding_side = "left"
    right = 0
    for first in range(0, len(problems), AT_ONCE):
        part = problems[first : first + AT_ONCE]
        prompts = [render(problem, template).text for problem in part]
        ids = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        rows = model.generate(
            input_ids=ids["input_ids"], attention_mask=ids["attention_mask"], do_sample=True,
            temperature=TEMPERATURE, top_p=TOP_P, top_k=0, max_new_tokens=cap,
            num_return_sequences=rollouts,
        )  # fmt: skip
        texts = tokenizer.batch_decode(
            rows[:, ids["input_ids"].shape[1] :], skip_special_tokens=True
        )
        answers = [problem.answer for problem in part for _ in range(rollouts)]
        right += sum(
            verify(parse(f"${answer}$"), parse(text))
            for answer, text in zip(answers, texts, strict=True)
        )
    print(right)


if __name__ == "__main__":
    main()
