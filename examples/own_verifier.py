"""A verifier of your own: sentences of a given length that contain given words.

    python examples/own_verifier.py                                  # made-up completions, seconds
    crt grade completions.jsonl --verifier examples/own_verifier.py:verify
    crt train recipe.toml --set grading.verifier=examples/own_verifier.py:verify

`verify` gets what stands after the thinking, and the problem. It returns True, False, or None where
it cannot tell; with a note, if it likes. It runs in a worker process with a deadline.
"""

import json
import re

from crt import Problem

PROBLEMS = [
    {"question": "Write a sentence of five words about tea.", "words": 5, "contains": ["tea"]},
    {"question": "Write a sentence of four words with cat and dog.", "words": 4,
     "contains": ["cat", "dog"]},
]  # fmt: skip
RESPONSES = [  # to each problem; what is in <think> is not looked at
    ["<think>Five words with tea.</think>I drink tea every day.", "Tea is nice.", "<think>Tea …"],
    ["The cat likes dogs.", "A cat and a dog.", "Cat meets dog again."],
]


def verify(response: str, problem: Problem) -> tuple[bool | None, str]:
    """Whether the sentence keeps to the rules in the problem's answer, and why."""
    try:
        rules = json.loads(problem.answer)
        wanted, contains = rules["words"], rules["contains"]
    except (ValueError, KeyError, TypeError):
        return None, "the answer is not {words, contains}"  # unknown is not wrong
    words = re.findall(r"[a-z']+", response.lower())
    missing = [word for word in contains if word not in words]
    if missing:
        return False, f"without {missing[0]}"
    return len(words) == wanted, f"{len(words)} of {wanted} words"


def main() -> None:
    from crt.grading.grader import Grader, Item

    problems = [
        Problem(str(i), row["question"], json.dumps({k: row[k] for k in ("words", "contains")}))
        for i, row in enumerate(PROBLEMS)
    ]
    items = [
        Item(text, problem)
        for problem, texts in zip(problems, RESPONSES, strict=True)
        for text in texts
    ]
    with Grader(workers=1, verifier=f"{__file__}:verify") as grader:
        grader.check(problems)  # fails here if the function cannot be loaded
        for item, grade in zip(items, grader.grade_many(items), strict=True):
            print(f"{grade.verdict:<10} {grade.reason:<24} {item.text}")


if __name__ == "__main__":
    main()
