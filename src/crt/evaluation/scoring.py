"""Score: a file of completions in, an evaluation out. No torch needed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crt.config import GradingConfig
from crt.data.datasets import Loaded
from crt.errors import DataError
from crt.evaluation.completions import Completion, Scoring, read_completions
from crt.evaluation.manifest import manifest, prompt_part
from crt.evaluation.records import Record
from crt.evaluation.sampling import record
from crt.evaluation.sets import load_sets
from crt.evaluation.store import Evaluation, evaluation_of, opened
from crt.grading.grader import Grader, Item
from crt.io import sha256
from crt.sampling.policy import Response

CHUNK = 2000  # completions graded together


def score(
    path: Path | str,
    scoring: Scoring,
    out: Path | str | None = None,
    *,
    name: str | None = None,
    note: Callable[[str], None] | None = None,
) -> Evaluation:
    """The evaluation of a file of completions, written to `out` if it is given."""
    say = note or (lambda _: None)
    source = Path(path)
    sets = load_sets(scoring.data, **(scoring.load or {}))
    found, faults = read_completions(source, sets, scoring)
    if faults:
        say(f"{len(faults)} lines left out, such as {faults[0]}")
    if not found:
        raise DataError(f"{source} has no usable completion" + (f": {faults[0]}" if faults else ""))
    for sentence in _coverage(sets, found):
        say(sentence)
    wanted = _manifest(source, scoring, sets, found, name or source.name.partition(".")[0])
    if out is None:
        return evaluation_of(wanted, graded(found))
    with opened(Path(out), wanted) as store:
        store.describe(_rows(sets, found))
        store.write(graded(found))
        return store.finish(wanted)


def graded(completions: Sequence[Completion]) -> Iterator[Record]:
    """Records in the order of the completions; a problem's rollouts are numbered as they come."""
    seen: dict[tuple[str, str], int] = {}
    settings = GradingConfig()
    with Grader(settings.workers, settings.deadline_seconds, settings.memory_mb) as grader:
        for start in range(0, len(completions), CHUNK):
            chunk = completions[start : start + CHUNK]
            items = (Item(each.text, each.problem, each.opens_thinking) for each in chunk)
            for each, grade in zip(chunk, grader.grade_many(items), strict=True):
                key = (each.data, each.problem.id)
                seen[key] = seen.get(key, -1) + 1
                answer = Response(each.text, each.tokens, each.stop)
                yield record(each.data, each.problem.id, seen[key], answer, grade)


def _coverage(sets: Sequence[Loaded], found: Sequence[Completion]) -> Iterator[str]:
    """Says which problems have no completion: the figures are then not of the whole set."""
    have = {(each.data, each.problem.id) for each in found}
    for each in sets:
        missing = [problem.id for problem in each if (each.name, problem.id) not in have]
        if missing:
            yield (
                f"{each.name}: {len(missing)} of {len(each)} problems have no completion, such as "
                f"{missing[0]}: the figures are of the others."
            )


def _manifest(
    path: Path, scoring: Scoring, sets: Sequence[Loaded], found: Sequence[Completion], name: str
) -> dict[str, Any]:
    per_problem: dict[tuple[str, str], int] = {}
    for each in found:
        key = (each.data, each.problem.id)
        per_problem[key] = per_problem.get(key, 0) + 1
    sizes = set(per_problem.values())
    sampling = {
        "rollouts": sizes.pop() if len(sizes) == 1 else None,
        "temperature": scoring.temperature,
        "top_p": scoring.top_p,
        "max_tokens": scoring.max_tokens,
    }
    model = {
        "name": name,
        "kind": "completions",
        "hash": sha256(path),
        "tokenizer": scoring.tokenizer,
        "opens_thinking": scoring.opens_thinking,
    }
    prompt = prompt_part(None, None, None)
    return manifest(name, model, sets, prompt, sampling, scoring.truncated, datetime.now(UTC))


def _rows(sets: Sequence[Loaded], found: Sequence[Completion]) -> Iterator[dict[str, Any]]:
    have = {(each.data, each.problem.id) for each in found}
    for each in sets:
        for problem in each:
            if (each.name, problem.id) in have:
                yield {"data": each.name, **asdict(problem)}
