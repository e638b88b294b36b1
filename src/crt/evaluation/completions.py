"""Completions that somebody else produced: lines of a file, each matched with its problem."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crt.data.datasets import Loaded
from crt.errors import ConfigError, DataError
from crt.evaluation.records import STOPS, Stop, clean, read_lines
from crt.evaluation.tally import MOST, TruncatedIs
from crt.types import Problem

FIELDS = {  # field -> names it may have, the first there counts
    "id": ("problem_id", "id", "unique_id"),
    "question": ("question", "problem"),
    "response": ("response", "completion", "output", "generation"),
    "tokens": ("tokens", "completion_tokens", "num_tokens"),
    "stop": ("stop", "finish_reason", "stop_reason"),
    "data": ("data",),
    "opens_thinking": ("opens_thinking",),
}
ENDS: dict[str, Stop] = {
    "eos": "eos",
    "stop": "eos",
    "end_turn": "eos",
    "length": "length",
    "max_tokens": "length",
}

Counter = Callable[[str], int]  # text -> tokens
Finder = Callable[[Mapping[str, Any]], tuple[str, Problem]]  # line -> its set and problem


@dataclass(frozen=True)
class Completion:
    """A response with the problem it belongs to; `stop` and `tokens` may be unknown."""

    data: str
    problem: Problem
    text: str
    tokens: int | None
    stop: Stop | None
    opens_thinking: bool


@dataclass(frozen=True)
class Scoring:
    """How completions are scored."""

    data: tuple[str, ...]
    truncated: TruncatedIs = "wrong"
    max_tokens: int | None = None  # the cap they were sampled with, if it is known
    temperature: float | None = None
    top_p: float | None = None
    tokenizer: str | None = None  # counts tokens where the file does not say
    opens_thinking: bool = False  # the responses start inside <think>
    skip_bad: bool = False
    load: Mapping[str, Any] | None = None


def read_completions(
    path: Path, sets: Sequence[Loaded], scoring: Scoring
) -> tuple[list[Completion], list[str]]:
    """The completions, and what is wrong with the lines left out."""
    count = token_counter(scoring.tokenizer) if scoring.tokenizer else None
    find = _finder(sets)
    found: list[Completion] = []
    faults: list[str] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            found += list(_completions(line, find, scoring, count))  # all of a line, or none
        except DataError as error:
            fault = f"{path}, line {number}: {error}"
            if not scoring.skip_bad:
                raise DataError(f"{fault}; mend it, or go on without it: --skip-bad") from None
            faults.append(fault)
    return found, faults


def _completions(
    line: str, find: Finder, scoring: Scoring, count: Counter | None
) -> Iterator[Completion]:
    """A line's completions: one, or several where `response` is a list."""
    row = _row(line)
    texts, several = _texts(row.get("response"))
    data, problem = find(row)
    opens = row.get("opens_thinking")
    for index, text in enumerate(texts):
        said = clean(text)
        tokens = _tokens(_one(row.get("tokens"), index, several))
        if tokens is None and count is not None:
            tokens = count(said)
        stop = _stop(_one(row.get("stop"), index, several), tokens, scoring.max_tokens)
        inside = scoring.opens_thinking if opens is None else bool(opens)
        yield Completion(data, problem, said, tokens, stop, inside)


def _row(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise DataError(f"a line is an object, this is {type(value).__name__}")
    return {
        field: next((value[name] for name in names if value.get(name) is not None), None)
        for field, names in FIELDS.items()
    }


def _texts(response: Any) -> tuple[list[str], bool]:
    if isinstance(response, str):
        return [response], False
    if isinstance(response, list) and response and all(isinstance(r, str) for r in response):
        return response, True
    names = ", ".join(FIELDS["response"])
    raise DataError(f"no response: a text, or a list of texts, in one of {names}")


def _one(value: Any, index: int, several: bool) -> Any:
    if not several or not isinstance(value, list):
        return value
    if index >= len(value):
        raise DataError("a list beside the responses has fewer elements than they are")
    return value[index]


def _tokens(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST:
        raise DataError(f"tokens is {value!r:.60}, not a number of tokens")
    return value


def _stop(value: Any, tokens: int | None, cap: int | None) -> Stop | None:
    """How it ended: as the line says, or by the cap if both are known."""
    if value is not None:
        if not isinstance(value, str) or value not in ENDS:
            raise DataError(f"stop is {value!r}: use {', '.join(STOPS)}, or leave it out")
        return ENDS[value]
    if tokens is None or cap is None:
        return None
    return "length" if tokens >= cap else "eos"


def _finder(sets: Sequence[Loaded]) -> Finder:
    """From a line to its problem: by id, or by the question's words."""
    by_id: dict[str, list[tuple[str, Problem]]] = {}
    by_question: dict[str, list[tuple[str, Problem]]] = {}
    for each in sets:
        for problem in each:
            by_id.setdefault(problem.id, []).append((each.name, problem))
            by_question.setdefault(_words(problem.question), []).append((each.name, problem))

    def find(row: Mapping[str, Any]) -> tuple[str, Problem]:
        key, question, data = row.get("id"), row.get("question"), row.get("data")
        if key is None and not isinstance(question, str):
            raise DataError("neither a problem id nor a question")
        found = by_id.get(str(key), []) if key is not None else []
        if not found and isinstance(question, str):
            found = by_question.get(_words(question), [])
        found = [(n, p) for n, p in found if data is None or n == data] or found
        names = ", ".join(each.name for each in sets)
        if not found:
            what = f"problem {key!r}" if key is not None else f"the question {question!r:.60}"
            raise DataError(f"{what} is not in {names}")
        if len({name for name, _ in found}) > 1:
            raise DataError(f"the problem is in several sets: say which with `data` ({names})")
        return found[0]

    return find


def token_counter(name: str) -> Counter:
    """Counts a response's tokens with a tokenizer, and one more for the EOS that is not in it."""
    from crt.sampling.models import load_tokenizer, tokenizer_folder

    try:
        tokenizer = load_tokenizer(tokenizer_folder(name))
    except ImportError:
        raise ConfigError(
            "--tokenizer needs transformers, which is not installed: give `tokens` in the file."
        ) from None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False)) + 1


def _words(question: str) -> str:
    return " ".join(question.split())
