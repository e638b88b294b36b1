"""Counts by problem with what a test does not care for left at a constant."""

from crt.evaluation.metrics import ZIPPED


def count_row(data, problem_id, rollouts, graded, correct, no_answer, tokens, truncated, zips=0):
    """A row of `by_problem.jsonl`."""
    return {
        **{"data": data, "problem_id": problem_id, "rollouts": rollouts, "graded": graded},
        **{"correct": correct, "no_answer": no_answer, "tokens": tokens, "truncated": truncated},
        **{f"{name}_{part}": zips for name in ZIPPED for part in ("sum", "n")},
    }
