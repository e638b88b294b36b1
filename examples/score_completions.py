"""Completions that somebody else produced: graded, measured and compared, without torch.

    python examples/score_completions.py                        # made-up completions, seconds
    python examples/score_completions.py base.jsonl short.jsonl --data math500

A file has one JSON object per line: `problem_id` (or `question`), `response`, and `tokens` and
`stop` if they are known. Without `tokens` lengths are unknown, never guessed. The first file is the
base.
`crt score` and `crt compare` do the same on the command line.
"""

import argparse
import json
import random
from pathlib import Path

import crt
from crt.evaluation import compare, score
from crt.evaluation.render import terminal


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", help="the base's completions, then others'")
    parser.add_argument("--data", default="pocket/test:300", help="the data set they belong to")
    parser.add_argument("--out", type=Path, default=Path("evaluations"))
    return parser.parse_args()


def make_up(file: Path, problems: list[crt.Problem], right: float, steps: int, seed: int) -> Path:
    """Two responses per problem: `right` of them end with the answer, after so many checks."""
    rng = random.Random(seed)
    lines = []
    for problem in problems:
        for _ in range(2):
            checks = rng.randint(1, steps)
            answer = problem.answer if rng.random() < right else "0"
            text = "<think>" + "Wait, I check it. " * checks + f"</think>\\boxed{{{answer}}}"
            line = {"problem_id": problem.id, "response": text, "tokens": 8 + 6 * checks}
            lines.append(json.dumps(line | {"stop": "eos"}) + "\n")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines))
    return file


def main() -> None:
    args = arguments()
    files = args.files
    if not files:
        problems = crt.load_problems(args.data)
        files = [
            make_up(args.out / "base.jsonl", problems, right=0.85, steps=20, seed=1),
            make_up(args.out / "short.jsonl", problems, right=0.95, steps=8, seed=2),
        ]
    evaluations = [score(file, [args.data], args.out / file.stem) for file in files]
    comparison = compare(evaluations)
    for warning in comparison.warnings:
        print(f"warning: {warning}")
    print(terminal(comparison.tables, intervals=True))


if __name__ == "__main__":
    main()
