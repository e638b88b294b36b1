"""Score: completions that somebody else produced in, an evaluation out. No torch needed."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from crt.config import GradingConfig
from crt.data.datasets import Loaded
from crt.errors import ConfigError, DataError
from crt.evaluation.datasets import load_sets
from crt.evaluation.harnesses import as_row, read_records
from crt.evaluation.metrics import MAX_TOKENS, TruncatedIs
from crt.evaluation.store import (
    OLD_KEYS,
    Evaluation,
    Manifest,
    evaluation_of,
    make_manifest,
    open_store,
    read_lines,
)
from crt.grading.extract import CLOSE_THINKING, OPEN_THINKING
from crt.grading.grader import grader_identity, make_grader
from crt.io import sha256
from crt.sampling.policy import Response, grade_responses
from crt.types import Problem, Rollout, Stop, Verdict

FIELDS = {  # field -> names it may have, the first there counts
    "id": ("problem_id", "id", "unique_id"),
    "question": ("question", "problem"),
    "prompt": ("prompt",),
    "response": ("response", "completion", "output", "generation"),
    "tokens": ("tokens", "completion_tokens", "num_tokens"),
    "thinking": ("thinking_tokens", "reasoning_tokens"),
    "stop": ("stop", "finish_reason", "stop_reason"),
    "data": ("data",),
    "opens_thinking": ("opens_thinking",),
    "correct": ("correct",),
    "verdict": ("verdict",),
    "filter": ("lm_eval_filter",),
}
BY_FILE = "verdicts of the file"  # the grader of completions that were graded elsewhere
STOPS: dict[str, Stop] = {
    "eos": "eos",
    "stop": "eos",
    "end_turn": "eos",
    "length": "length",
    "max_tokens": "length",
}
CHUNK = 2000  # completions graded together

TokenCounter = Callable[[str], int]  # text -> tokens
Finder = Callable[[Mapping[str, Any]], tuple[str, Problem]]  # line -> its set and problem


@dataclass(frozen=True)
class Completion:
    """A response with the problem it belongs to."""

    dataset: str
    problem: Problem
    response: Response
    verdict: Verdict | None = None  # made elsewhere

    @property
    def key(self) -> tuple[str, str]:
        return self.dataset, self.problem.id


@dataclass(frozen=True)
class Scoring:
    data: tuple[str, ...]
    truncated: TruncatedIs = "wrong"
    max_tokens: int | None = None  # the cap they were sampled with, if it is known
    temperature: float | None = None
    top_p: float | None = None
    tokenizer: str | None = None  # counts tokens where the file does not say
    opens_thinking: bool = False  # the responses start inside <think>
    skip_bad: bool = False
    load: Mapping[str, Any] | None = None
    grading: GradingConfig = field(default_factory=GradingConfig)
    regrade: bool = False  # although the file has verdicts


def score(
    path: Path | str,
    data: Sequence[str],
    out: Path | str | None = None,
    *,
    name: str | None = None,
    note: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> Evaluation:
    """Grades and measures a file of completions, into `out` if given; settings as of `Scoring`."""
    source, scoring = Path(path), Scoring(tuple(data), **settings)
    sets = load_sets(scoring.data, **(scoring.load or {}))
    completions, faults = read_completions(source, sets, scoring)
    if faults:
        note(f"{len(faults)} lines left out, such as {faults[0]}")
    if not completions:
        raise DataError(f"{source} has no usable completion" + (f": {faults[0]}" if faults else ""))
    answered = Counter(completion.key for completion in completions)
    for loaded in sets:
        missing = [problem.id for problem in loaded if (loaded.name, problem.id) not in answered]
        if missing:
            note(
                f"{loaded.name}: {len(missing)} of {len(loaded)} problems have no completion, "
                f"such as {missing[0]}: the figures are of the others."
            )
    label = name or source.name.partition(".")[0]
    elsewhere = sum(completion.verdict is not None for completion in completions)
    if elsewhere:
        note(f"{elsewhere} of {len(completions)} verdicts are those of the file (or --regrade)")
    grader = BY_FILE if elsewhere else grader_identity(scoring.grading)
    manifest = _manifest(source, scoring, sets, set(answered.values()), label, grader)
    if out is None:
        return evaluation_of(manifest, grade_completions(completions, scoring.grading))
    with open_store(Path(out), manifest) as store:
        store.write_problems(
            {"data": loaded.name, **asdict(problem)}
            for loaded in sets
            for problem in loaded
            if (loaded.name, problem.id) in answered
        )
        store.write_rollouts(grade_completions(completions, scoring.grading))
        return store.finish(manifest)


def grade_completions(
    completions: Sequence[Completion], grading: GradingConfig
) -> Iterator[Rollout]:
    """Rollouts in the order of the completions; a problem's are numbered as they come."""
    seen: Counter[tuple[str, str]] = Counter()
    with make_grader(grading) as grader:
        grader.check(each.problem for each in completions if each.verdict is None)
        for start in range(0, len(completions), CHUNK):
            chunk = completions[start : start + CHUNK]
            open_ones = [each for each in chunk if each.verdict is None]
            responses = [[each.response] for each in open_ones]
            graded = iter(grade_responses([e.problem for e in open_ones], responses, grader))
            for completion in chunk:
                rollout = next(graded) if completion.verdict is None else _graded(completion)
                yield replace(rollout, dataset=completion.dataset, index=seen[completion.key])
                seen[completion.key] += 1


def _graded(completion: Completion) -> Rollout:
    """The rollout of a completion that was graded elsewhere."""
    response, verdict = completion.response, completion.verdict or Verdict.UNGRADED
    values = (completion.problem.id, response.text, response.length, response.stop, verdict)
    return Rollout(*values, reason=BY_FILE, thinking=response.thinking)


def _manifest(
    path: Path,
    scoring: Scoring,
    sets: Sequence[Loaded],
    rollouts: set[int],
    name: str,
    grader: str,
) -> Manifest:
    sampling = {
        "rollouts": rollouts.pop() if len(rollouts) == 1 else None,
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
    prompt: Manifest = {"settings": None, "budget": None, "hash": None}  # somebody else's
    return make_manifest(name, model, sets, prompt, sampling, scoring.truncated, grader)


def read_completions(
    path: Path, sets: Sequence[Loaded], scoring: Scoring
) -> tuple[list[Completion], list[str]]:
    """The completions, and what is wrong with the lines left out."""
    count = token_counter(scoring.tokenizer) if scoring.tokenizer else None
    find = _finder(sets)
    completions: list[Completion] = []
    faults: list[str] = []
    records, kind = read_records(path), "sample"
    if records is None:
        records, kind = read_lines(path), "line"
    first_filter = None  # lm-eval repeats the responses for each of its filters
    for number, record in enumerate(records, start=1):
        if isinstance(record, str) and not record.strip():
            continue
        try:
            row = _row(record)
            first_filter = first_filter or row["filter"]
            if row["filter"] == first_filter:
                completions += list(_completions(row, find, scoring, count))  # all, or none
        except DataError as error:
            fault = f"{path}, {kind} {number}: {error}"
            if not scoring.skip_bad:
                raise DataError(f"{fault}; mend it, or go on without it: --skip-bad") from None
            faults.append(fault)
    return completions, faults


def _completions(
    row: Mapping[str, Any], find: Finder, scoring: Scoring, count: TokenCounter | None
) -> Iterator[Completion]:
    """A line's completions: one, or several where `response` is a list."""
    dataset, problem = find(row)
    opens = row["opens_thinking"]
    opens_thinking = scoring.opens_thinking if opens is None else bool(opens)
    several = isinstance(row["response"], list)
    texts = row["response"] if several else [row["response"]]
    if not texts or not all(isinstance(text, str) for text in texts):
        names = ", ".join(FIELDS["response"])
        raise DataError(f"no response: a text, or a list of texts, in one of {names}")
    beside = {name: row[name] for name in ("tokens", "thinking", "stop", "correct", "verdict")}
    lists = {
        k: v if several and isinstance(v, list) else [v] * len(texts) for k, v in beside.items()
    }
    if any(len(values) < len(texts) for values in lists.values()):
        raise DataError("a list beside the responses has fewer elements than they are")
    for text, tokens, thinking, stop, *verdict in zip(texts, *lists.values(), strict=False):
        text = text.encode("utf-8", errors="replace").decode()  # no half of a surrogate pair
        is_number = isinstance(tokens, int) and not isinstance(tokens, bool)
        if tokens is not None and not (is_number and 0 <= tokens < MAX_TOKENS):
            raise DataError(f"tokens is {tokens!r:.60}, not a number of tokens")
        length = count(text) if tokens is None and count else tokens
        stop = _stop(stop, length, scoring.max_tokens)
        made_elsewhere = None if scoring.regrade else _verdict(*verdict)
        thought = thinking_of(text, opens_thinking, length, thinking, count)
        response = Response(text, length, stop, opens_thinking, thought)
        yield Completion(dataset, problem, response, made_elsewhere)


def thinking_of(
    text: str, opened: bool, length: int | None, given: Any, count: TokenCounter | None = None
) -> int | None:
    """Tokens of thinking: as given, or by the marks in the text, as far as they can be counted."""
    if type(given) is int and 0 <= given <= (MAX_TOKENS if length is None else length):
        return given
    end = text.rfind(CLOSE_THINKING)
    if end < 0:
        return length if opened or OPEN_THINKING in text else 0
    return count(text[: end + len(CLOSE_THINKING)]) - 1 if count else None


def _row(record: str | dict[str, Any]) -> dict[str, Any]:
    try:
        value = json.loads(record) if isinstance(record, str) else record
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise DataError(f"a line is an object, this is {type(value).__name__}")
    if {"dataset", "text", "verdict"} <= value.keys():  # an evaluation's own rollouts
        value |= {old: value.get(new) for old, new in OLD_KEYS.items()}
        value["thinking_tokens"] = value.get("thinking")
        del value["verdict"]  # it is graded anew
    value = as_row(value)
    return {
        field: next((value[name] for name in names if value.get(name) is not None), None)
        for field, names in FIELDS.items()
    }


def _verdict(correct: Any, verdict: Any) -> Verdict | None:
    """A verdict that was made elsewhere, if the line has one."""
    if verdict is not None:
        if verdict not in list(Verdict):
            raise DataError(f"verdict is {verdict!r:.40}: use {', '.join(Verdict)}, or --regrade")
        return Verdict(verdict)
    if correct is None:
        return None
    if correct not in (True, False):
        raise DataError(f"correct is {correct!r:.40}, not true or false; or --regrade")
    return Verdict.CORRECT if correct else Verdict.WRONG


def _stop(value: Any, tokens: int | None, cap: int | None) -> Stop | None:
    """How it ended: as the line says, or by the cap if both are known."""
    if value is not None:
        if not isinstance(value, str) or value not in STOPS:
            raise DataError(f"stop is {value!r}: use eos, length, or leave it out")
        return STOPS[value]
    if tokens is None or cap is None:
        return None
    return "length" if tokens >= cap else "eos"


def _finder(sets: Sequence[Loaded]) -> Finder:
    """From a line to its problem: by id, or by the question's words."""
    places: dict[tuple[str, str], list[tuple[str, Problem]]] = {}
    for loaded in sets:
        for problem in loaded:
            for key in (("id", problem.id), ("question", _words(problem.question))):
                places.setdefault(key, []).append((loaded.name, problem))
    names = ", ".join(loaded.name for loaded in sets)
    questions = [words for kind, words in places if kind == "question" and words]

    @lru_cache(maxsize=1000)
    def asked_in(prompt: str) -> str:
        """The question that stands last in a prompt: those before it are examples."""
        ends = {words: prompt.rfind(words) + len(words) for words in questions if words in prompt}
        return max(ends, key=lambda words: (ends[words], len(words)), default="")

    def find(row: Mapping[str, Any]) -> tuple[str, Problem]:
        key, question, data = row["id"], row["question"], row["data"]
        words = _words(question) if isinstance(question, str) else None
        prompt = _words(row["prompt"]) if isinstance(row["prompt"], str) else ""
        if key is None and words is None and not prompt:
            raise DataError("neither a problem id nor a question")
        matches = places.get(("id", str(key))) or places.get(("question", words or "")) or []
        matches = matches or places.get(("question", asked_in(prompt)), [])
        matches = [match for match in matches if data in (None, match[0])] or matches
        if not matches:
            asked = question or row["prompt"]
            what = f"problem {key!r}" if key is not None else f"the question {asked!r:.60}"
            raise DataError(f"{what} is not in {names}")
        if len({name for name, _ in matches}) > 1:
            raise DataError(f"the problem is in several sets: say which with `data` ({names})")
        return matches[0]

    return find


def token_counter(name: str) -> TokenCounter:
    """Counts a response's tokens with a tokenizer, and one more for the EOS that is not in it."""
    tokenizer = _tokenizer(name)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False)) + 1


def token_ends(name: str) -> Callable[[str], Sequence[int]]:
    """Where each token of a text ends, in characters."""
    tokenizer = _tokenizer(name)

    def ends(text: str) -> Sequence[int]:
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return [end for _, end in encoded["offset_mapping"]]

    return ends


def _tokenizer(name: str) -> Any:
    from crt.sampling.models import load_tokenizer, tokenizer_folder

    try:
        return load_tokenizer(tokenizer_folder(name))
    except ImportError:
        raise ConfigError(
            "--tokenizer needs transformers, which is not installed: give `tokens` in the file."
        ) from None


def _words(question: str) -> str:
    return " ".join(question.split())
