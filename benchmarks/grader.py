"""Measures the grader: agreement, speed beside plain math-verify, and a hostile corpus.

    python benchmarks/grader.py --data DIR

DIR holds JSON lines files with `answer` (and `question`, `solution`, `options` where they exist).
"""

import argparse
import collections
import json
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from grader_hostile import corpus
from grader_variants import near_misses, rephrasings

from crt.grading.extract import extract
from crt.grading.grader import GRADER_VERSION, Grader, Item
from crt.types import Problem, Verdict

Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of JSON lines files")
    parser.add_argument("--items", type=int, default=2000, help="responses in the speed part")
    parser.add_argument("--group", type=int, default=8, help="responses to each problem")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parts", nargs="+", default=["agreement", "speed", "hostile"])
    args = parser.parse_args()
    print(f"grader {GRADER_VERSION}")
    sets = {path.stem: _records(path) for path in sorted(args.data.glob("*.jsonl"))}
    parts = {
        "agreement": lambda: agreement(sets, args.workers),
        "speed": lambda: speed(sets, args.items, args.group),
        "hostile": lambda: hostile(args.workers),
    }
    for part in args.parts:
        print(f"\n## {part}")
        parts[part]()


def _records(path: Path) -> list[Record]:
    with path.open(encoding="utf-8") as lines:
        return [record for record in map(json.loads, lines) if record["answer"]]


def _item(text: str, answer: str, options: tuple[str, ...] = ()) -> Item:
    return Item(text, Problem("", "", answer, options=options))


def _boxed(prediction: str) -> str:
    return rf"<think>So it is.</think> The answer is \boxed{{{prediction}}}."


def agreement(sets: dict[str, list[Record]], workers: int) -> None:
    """Gold against itself, re-phrasings that must be correct, near-misses that must not be."""
    wrong: list[tuple[str, ...]] = []
    print(f"{'set':<18}{'gold = gold':>14}{'re-phrased':>16}{'near-misses':>16}{'ungraded':>10}")
    for name, records in sets.items():
        with Grader(workers=workers) as grader:
            counts = _agreement(name, records, grader, wrong)
        row = [
            f"{counts[kind, True]}/{counts[kind, True] + counts[kind, False]}" for kind in _KINDS
        ]
        print(f"{name:<18}{row[0]:>14}{row[1]:>16}{row[2]:>16}{counts['ungraded']:>10}")
    print(f"disagreements: {len(wrong)}")
    for line in wrong:
        print("  ", *map(repr, line))


_KINDS = ("itself", "rephrased", "near miss")


def _agreement(
    name: str, records: list[Record], grader: Grader, wrong: list[tuple[str, ...]]
) -> collections.Counter[Any]:
    items, wanted = [], []
    for kind, how, record, prediction in _variants(records):
        options = tuple(record.get("options") or ())
        items.append(_item(_boxed(prediction), record["answer"], options))
        wanted.append((kind, how))
    counts: collections.Counter[Any] = collections.Counter()
    for item, (kind, how), grade in zip(items, wanted, grader.grade_many(items), strict=True):
        agrees = (grade.verdict is Verdict.CORRECT) == (kind != "near miss")
        counts[kind, agrees] += 1
        counts["ungraded"] += grade.verdict is Verdict.UNGRADED
        if not agrees:
            wrong.append((name, kind, how, item.problem.answer, str(grade.extracted), grade.reason))
    return counts


def _variants(records: list[Record]) -> Iterator[tuple[str, str, Record, str]]:
    for record in records:
        gold, options = record["answer"], tuple(record.get("options") or ())
        yield "itself", "", record, gold
        for how, prediction in rephrasings(gold, options):
            yield "rephrased", how, record, prediction
        for how, prediction in near_misses(gold, options):
            yield "near miss", how, record, prediction


def rollouts(sets: dict[str, list[Record]], count: int, group: int) -> list[tuple[Item, bool]]:
    """Responses as a policy gives them to GSM8K and MATH, and whether each is right.

    In a group most answer alike: 65 % the gold (a quarter of them otherwise written), 20 % one of
    two near-misses, 7 % cut off in the thinking, 4 % without a box, 4 % something odd.
    """
    rng = random.Random(0)
    names = [name for name in ("gsm8k_train", "math_train") if name in sets] or list(sets)
    problems = [r for name in names for r in sets[name] if r.get("solution")]
    out: list[tuple[Item, bool]] = []
    while len(out) < count:
        record = rng.choice(problems)
        out += [_rollout(record, rng) for _ in range(group)]
    rng.shuffle(out)
    return out[:count]


def _rollout(record: Record, rng: random.Random) -> tuple[Item, bool]:
    gold, thoughts = record["answer"], record["solution"].replace(r"\boxed", "")
    draw = rng.random()
    if draw < 0.07:
        return _item(f"<think>{thoughts[: len(thoughts) // 2]}", gold), False
    if draw < 0.11:
        return _item(f"<think>{thoughts}</think> That is it.", gold), False
    right = draw >= 0.35
    if draw < 0.15:
        said = rng.choice([r"\text{It cannot be told}", "x + y", r"\frac{1}{0}", "2^{2^{10}}"])
    elif not right:
        said = rng.choice([text for _, text in near_misses(gold)][:2] or ["0.123"])
    else:
        forms = [text for _, text in rephrasings(gold)]
        said = rng.choice(forms) if rng.random() < 0.25 else gold
    reply = f"{thoughts}\n\n**Final answer**\n\\[ \\boxed{{{said}}} \\]"
    return _item(f"<think>\n{thoughts}\n</think>\n\n{reply}", gold), right


def speed(sets: dict[str, list[Record]], count: int, group: int) -> None:
    """Both graders on the same responses, in alternating blocks, one item at a time."""
    from math_verify import parse, verify

    def plain(item: Item) -> bool:
        return verify(parse(f"${item.problem.answer}$"), parse(item.text))

    data = rollouts(sets, count, group)
    with Grader(workers=1) as grader:

        def ours(item: Item) -> bool:
            return grader.grade(item.text, item.problem.answer).verdict is Verdict.CORRECT

        grader.self_test()  # imports and compiled patterns are not counted on either side
        plain(data[0][0])
        times, errors = _alternating(data, {"crt": ours, "math-verify": plain})
    print(f"{len(data)} responses, {len({item.problem.answer for item, _ in data})} golds")
    heads = ("items/s", "p50 ms", "p99 ms", "worst ms", "took wrong", "missed right")
    print(f"{'':<14}" + "".join(f"{head:>13}" for head in heads))
    for name, seconds in times.items():
        cuts = statistics.quantiles(seconds, n=100)
        figures = (cuts[49] * 1e3, cuts[98] * 1e3, max(seconds) * 1e3)
        rate = len(seconds) / sum(seconds)
        row = "".join(f"{figure:>13.3f}" for figure in figures)
        print(f"{name:<14}{rate:>13.0f}{row}{errors[name, True]:>13}{errors[name, False]:>13}")
    new = _first_seen([item for item, _ in data])
    for what, chosen in {"all": range(len(data)), "pairs seen for the first time": new}.items():
        ratio = sum(times["math-verify"][k] for k in chosen) / sum(times["crt"][k] for k in chosen)
        print(f"{what} ({len(chosen)}): {ratio:.0f} times the throughput of math-verify")


def _first_seen(items: list[Item]) -> list[int]:
    """The items whose prediction and gold did not occur before: no cache can help with these."""
    first: dict[tuple[str | None, str], int] = {}
    for k, item in enumerate(items):
        first.setdefault((extract(item.text).answer, item.problem.answer), k)
    return list(first.values())


def _alternating(
    data: list[tuple[Item, bool]], graders: dict[str, Callable[[Item], bool]], block: int = 100
) -> tuple[dict[str, list[float]], collections.Counter[tuple[str, bool]]]:
    """Seconds an item, and how often each took a wrong answer (True) or missed a right one."""
    times: dict[str, list[float]] = {name: [] for name in graders}
    errors: collections.Counter[tuple[str, bool]] = collections.Counter()
    for start in range(0, len(data), block):
        for name, grader in graders.items():
            for item, right in data[start : start + block]:
                began = time.perf_counter()
                verdict = grader(item)
                times[name].append(time.perf_counter() - began)
                errors[name, verdict] += verdict != right
    return times, errors


def hostile(workers: int, deadline_seconds: float = 2.0) -> None:
    """Nothing may crash, hang, eat memory or be judged correct."""
    counts: collections.Counter[str] = collections.Counter()
    longest, slowest, fooled = 0.0, "", []
    with Grader(workers=workers, deadline_seconds=deadline_seconds) as grader:
        grader.self_test()
        for name, response, gold in corpus():
            began = time.perf_counter()
            grade = grader.grade(response, gold)
            seconds = time.perf_counter() - began
            counts[grade.verdict] += 1
            if seconds > longest:
                longest, slowest = seconds, f"{name}: {response[:60]!r}"
            if grade.verdict is Verdict.CORRECT:
                fooled.append((name, response[:80], gold, grade.reason))
        grader.self_test()
    print(f"{counts.total()} items, deadline {deadline_seconds:g} s: {dict(counts)}")
    print(f"longest {longest:.2f} s ({slowest})")
    print(
        f"peak memory: this process {_peak(resource.RUSAGE_SELF)} MB, "
        f"largest worker {_peak(resource.RUSAGE_CHILDREN)} MB"
    )
    print(f"judged correct: {len(fooled)}", *fooled, sep="\n  ")


def _peak(who: int) -> int:
    return resource.getrusage(who).ru_maxrss // 1024


if __name__ == "__main__":
    main()
