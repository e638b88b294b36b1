"""Evaluations with made-up answers, written by the product's own store, of any size."""

import random
from pathlib import Path

from crt.evaluation.store import open_store
from crt.types import Rollout, Verdict

ROLLOUTS = 16
WORDS = ("So", "we", "have", "17", "boxes", "of", "4", "pens,", "which", "is", "68", "in", "all.")


def write_evaluation(folder: Path, problems: int, words: int, seed: int) -> Path:
    """`problems` × 16 answers of about so many words."""
    rng = random.Random(seed)
    told = manifest(folder.name)
    with open_store(folder, told) as store:
        store.write_problems(
            {"data": "own", "id": f"p{i}", "question": f"What is {i} + 1?", "answer": str(i + 1)}
            for i in range(problems)
        )
        store.write_rollouts(
            answer(i, r, words, rng) for i in range(problems) for r in range(ROLLOUTS)
        )
        store.finish(told)
    return folder


def answer(problem: int, rollout: int, words: int, rng: random.Random) -> Rollout:
    """One response; three of four are right."""
    right = rng.random() < 0.75
    length = max(5, round(rng.gauss(words, words / 4)))
    said = problem + 1 if right else problem
    text = " ".join(rng.choices(WORDS, k=length)) + rf" \boxed{{{said}}}"
    verdict = Verdict.CORRECT if right else Verdict.WRONG
    values = (text, length, "eos", verdict, str(said))
    return Rollout(f"p{problem}", *values, dataset="own", index=rollout)


def manifest(name: str) -> dict[str, object]:
    """What an evaluation of such a model says of itself."""
    return {
        "format": 1,
        "name": name,
        "model": {"name": name, "kind": "local", "hash": name},
        "data": [{"name": "own", "hash": "made up", "problems": 0, "skipped": 0}],
        "prompt": {"settings": None, "budget": None, "hash": "made up"},
        "sampling": {"rollouts": ROLLOUTS, "temperature": 0.6, "top_p": 0.95, "max_tokens": 256},
        "grader": "made up",
        "truncated": "wrong",
        "versions": {},
        "started": "2026-01-01T00:00:00+00:00",
    }
