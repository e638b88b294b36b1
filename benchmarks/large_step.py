"""What a real training step hands to the core, made up: 128 problems × 16 responses × 8,192 tokens.

Usage: python benchmarks/large_step.py [--problems 128] [--group 16] [--tokens 8192]

Grades them, decides, and keeps them as a run keeps them. Prints the seconds of each part; at last
the seconds of all and the megabytes that were needed beside the responses themselves.
"""

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

from crt.algorithm.batch import batch_of
from crt.algorithm.objectives import Shorten
from crt.algorithm.step import decide
from crt.config import RunConfig
from crt.grading.grader import Grader
from crt.run import Run, rollout_record
from crt.sampling.policy import Response, grade_responses
from crt.types import Problem

SENTENCE = (
    "so the total is 12 plus 7 which gives 19 and then we multiply by $\\frac{3}{4}$ wait let me "
    "check that again hmm"
)
WORDS = SENTENCE.split()
CONFIG = {"name": "large", "model": {"name": "pocket"}, "data": {"train": ["pocket:100"]},
          "method": {"type": "crt_1s"}, "schedule": {"steps": 10}}  # fmt: skip


def main() -> None:
    """Prints what each part takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=128)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8192)
    args = parser.parse_args()
    rng = random.Random(0)
    problems = [Problem(f"p{i}", f"question {i}", str(i)) for i in range(args.problems)]
    groups = [
        [respond(problem, args.tokens, rng) for _ in range(args.group)] for problem in problems
    ]
    before, total = megabytes(), 0.0
    with Grader() as grader, tempfile.TemporaryDirectory() as folder:
        grader.self_test()
        began = time.perf_counter()
        rollouts = grade_responses(problems, groups, grader)
        total += report("grade", began)
        began = time.perf_counter()
        reference, _ = batch_of(rollouts)
        assert reference is not None
        advantages, _, _ = decide(Shorten(), rollouts, reference.select)
        total += report("decide", began)
        began = time.perf_counter()
        run = Run.create(Path(folder) / "run", RunConfig.model_validate(CONFIG))
        values = advantages.reshape(-1).tolist()
        records = [rollout_record(*pair) for pair in zip(rollouts, values, strict=True)]
        run.add_rollouts(1, records)
        total += report("keep", began)
    print(f"{total:.2f} {megabytes() - before:.0f}")


def respond(problem: Problem, tokens: int, rng: random.Random) -> Response:
    """A long response that is right in two thirds of the cases; about a word per token."""
    words = rng.choices(WORDS, k=tokens)
    answer = problem.answer if rng.random() < 2 / 3 else "-1"
    text = f"<think>\n{' '.join(words)}\n</think>\nThe answer is \\boxed{{{answer}}}."
    return Response(text, tokens, "eos")


def report(part: str, began: float) -> float:
    """Prints and returns the seconds since then."""
    seconds = time.perf_counter() - began
    print(f"{part:<8} {seconds:6.2f} s  {megabytes():6.0f} MB", flush=True)
    return seconds


def megabytes() -> float:
    """The most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
