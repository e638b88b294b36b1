"""An evaluation end to end: `crt eval` beside a plain loop of HF `generate` and math-verify."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from harness.results import Row, compared
from harness.timing import interleaved

from crt.config import EvaluationConfig, ModelConfig
from crt.data.datasets import load as load_data
from crt.data.prompts import PromptSettings, prepare, render
from crt.evaluation.evaluator import Plan, evaluate
from crt.pocket import load, path

from . import Setting
from .grading import taken_for_right

PROBLEMS, ROLLOUTS, CAP = 32, 16, 256
AT_ONCE = 16  # problems in a batch of the loop: 256 rows, as ours; a repeat is one batch
TEMPERATURE, TOP_P = 0.6, 0.95


def rows(setting: Setting) -> Iterator[Row]:
    """Load the model, sample, grade, measure; what a repeat leaves behind is not used again."""
    torch.set_num_threads(setting.threads)
    count = 2 if setting.small else PROBLEMS

    def asked(repeat: int, problems: int = count) -> int:
        return problems if repeat >= 0 else 2  # two problems warm up

    contenders = {
        "crt": lambda repeat: ours(asked(repeat), setting.folder / f"evaluation{repeat}"),
        "loop": lambda repeat: loop(asked(repeat, min(count, AT_ONCE)), repeat),
    }
    timings = interleaved(contenders, setting.repeats)
    yield compared(
        "evaluation", f"evaluation end to end, pocket model, {count} problems × {ROLLOUTS}",
        "a loop of HF generate and math-verify", timings["crt"], timings["loop"], goal=4,
        unit="ms a rollout", scale=1000,
        note=f"in a repeat {count} of 500 problems, a batch of {AT_ONCE} for the loop; costs grow "
        "with the problems, and what ours does once (hashes, manifest, tables) weighs more in few",
    )  # fmt: skip


def ours(count: int, folder: Path) -> float:
    """What `crt eval pocket --data pocket/test:COUNT` does."""
    settings = EvaluationConfig(
        data=(f"pocket/test:{count}",), rollouts=ROLLOUTS, max_tokens=CAP,
        temperature=TEMPERATURE, top_p=TOP_P,
    )  # fmt: skip
    found = evaluate(Plan(ModelConfig(name="pocket", dtype="float32"), settings), folder)
    return sum(tally.rollouts.sum() for tally in found.counts.values())


def loop(count: int, seed: int) -> float:
    """What one writes by hand: batches of prompts, padded, sampled, decoded and verified."""
    torch.manual_seed(seed + 1)
    model, tokenizer = cast(tuple[Any, Any], load(path()))
    problems = load_data(f"pocket/test:{count}").problems
    template = prepare(tokenizer, PromptSettings())
    tokenizer.padding_side = "left"
    right = []
    for first in range(0, count, AT_ONCE):
        some = problems[first : first + AT_ONCE]
        texts = generated(model, tokenizer, [render(p, template).text for p in some])
        golds = [p.answer for p in some for _ in range(ROLLOUTS)]
        right += [taken_for_right(text, gold) for text, gold in zip(texts, golds, strict=True)]
    return len(right)


def generated(model: Any, tokenizer: Any, prompts: list[str]) -> list[str]:
    """Texts of `ROLLOUTS` answers to each."""
    asked = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    said = model.generate(
        input_ids=asked["input_ids"], attention_mask=asked["attention_mask"],
        do_sample=True, temperature=TEMPERATURE, top_p=TOP_P, top_k=0,
        max_new_tokens=CAP, num_return_sequences=ROLLOUTS,
    )  # fmt: skip
    return tokenizer.batch_decode(said[:, asked["input_ids"].shape[1] :], skip_special_tokens=True)
