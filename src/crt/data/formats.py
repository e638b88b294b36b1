"""Rows as each data set writes them, read as problems: question, answer, options, tolerance."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from crt.errors import DataError
from crt.grading.extract import last_box
from crt.grading.verifiers import Item
from crt.types import Problem

Fields = Mapping[str, Any]  # by the names in COLUMNS, values as stored

COLUMNS: dict[str, tuple[str, ...]] = {  # field -> columns it may be in, the first one counts
    "id": ("id", "unique_id"),
    "question": ("question", "problem"),
    "answer": ("answer",),
    "solution": ("solution",),
    "options": ("options", "choices"),
    "tolerance": ("tolerance",),
    "multiple": ("multiple",),
    "verifier": ("verifier",),
    "tests": ("test_list", "test"),
    "entry_point": ("entry_point",),
    "setup": ("test_imports", "test_setup_code"),
}

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_LABEL = re.compile(r"\s*(?:\(([A-Z])\)|([A-Z])[).:])\s*")
_DOLLAR = re.compile(r"(?<!\\)\$")
_SURROGATE = re.compile("[\ud800-\udfff]")


def select_fields(
    row: Mapping[str, Any], columns: Mapping[str, tuple[str, ...]] = COLUMNS
) -> dict[str, Any]:
    """The row's fields by our names; a field that no column has is None."""
    return {
        field: next((row[name] for name in names if row.get(name) is not None), None)
        for field, names in columns.items()
    }


# Each reader returns a problem whose id and source are still empty.


def read_plain(fields: Fields) -> Problem:
    """The question and the answer as they are; without an answer, the solution's last box.

    A list of answers are several of which each is accepted; a table is kept as JSON, for a
    verifier that reads it.
    """
    if fields.get("tests") and fields.get("answer") is None:
        return read_code(fields)
    verifier, answer, accepted = fields.get("verifier"), fields.get("answer"), ()
    verifier = "" if verifier is None else _text(verifier, "verifier")
    if fields.get("options"):
        return replace(read_multiple_choice(fields), verifier=verifier)
    if isinstance(answer, Mapping) and verifier:
        answer = json.dumps(answer, sort_keys=True)
    elif isinstance(answer, Sequence) and not isinstance(answer, str) and answer:
        answer, *others = answer
        accepted = tuple(_text(other, "answer") for other in others)
    if verifier and answer is not None:
        answer = _text(answer, "answer")  # as it is: a pattern or a program may have dollars
    else:
        answer = _answer_or_box({**fields, "answer": answer})
    question, tolerance = _text(fields.get("question"), "question"), _tolerance(fields)
    return Problem("", question, answer, tolerance=tolerance, accepted=accepted, verifier=verifier)


def read_code(fields: Fields) -> Problem:
    """A program to write, in the forms of MBPP (a list of tests) and HumanEval (`check`).

    MBPP shows its tests, because they have the name of the function. HumanEval's prompt is the
    beginning of the program; what it defines before the function is given to program and tests.
    """
    question, tests = _text(fields.get("question"), "question"), fields["tests"]
    name, setup = fields.get("entry_point"), fields.get("setup") or ""
    setup = setup if isinstance(setup, str) else "\n".join(_texts(setup, "setup"))
    if name is None:
        texts = [tests] if isinstance(tests, str) else _texts(tests, "test")
        gold = {"tests": [*([setup] if setup else []), *texts]}
        question += "\n\nThe program must pass these tests:\n\n" + "\n".join(texts)
    else:
        name = _text(name, "entry_point")
        before = re.split(rf"^def {re.escape(name)}\b", question, maxsplit=1, flags=re.MULTILINE)[0]
        gold = {"setup": before, "tests": [_text(tests, "test"), f"check({name})"]}
    return Problem("", question, json.dumps(gold), verifier="code")


def read_gsm8k(fields: Fields) -> Problem:
    """GSM8K: the number after the last `####`, without thousands separators."""
    answer = _text(fields.get("answer"), "answer").rpartition("####")[2].strip()
    answer = _not_empty(_without_thousands(answer.lstrip("$")), "answer")
    return Problem("", _text(fields.get("question"), "question"), answer)


def read_multiple_choice(fields: Fields) -> Problem:
    """Multiple choice: the options are shown below the stem; the answer is a letter."""
    options, letter = read_choices(fields.get("options"), fields.get("answer"))
    stem = _text(fields.get("question"), "question")
    if stem.startswith("Q: ") and "Answer Choices:" in stem:  # as AGIEval's hub copies wrap it
        stem = stem.removeprefix("Q: ").rpartition("Answer Choices:")[0].strip()
    shown = "\n".join(f"({chr(65 + i)}) {option}" for i, option in enumerate(options))
    question = stem if stem.endswith(shown) else f"{stem}\n{shown}"
    return Problem("", question, letter, options=options)


def read_olympiad(fields: Fields) -> Problem:
    """OlympiadBench: a list of LaTeX answers; inner `$` goes, a unit held apart stays apart."""
    raw = fields.get("answer")
    items = [] if raw is None else _texts(raw, "answer")
    bare = [_DOLLAR.sub("", item).strip().rstrip(".") for item in items]
    answer = ", ".join(item.strip() for item in bare)
    # "2500,7500" may be two answers, and then never one number with separators.
    several = fields.get("multiple")
    answer = re.sub(r",\s*", ", ", answer) if several else _without_thousands(answer)
    question = _text(fields.get("question"), "question")
    return Problem("", question, _not_empty(answer, "answer"), tolerance=_tolerance(fields))


def read_item(row: Mapping[str, Any], thinking_opened: bool = False) -> Item:
    """A line with a `response` and the answer it is graded against, read as data files are.

    The question may be absent, and an empty answer is left for the grader to refuse.
    """
    fields, empty = select_fields(row), row.get("answer") == ""
    if row.get("response") is None:
        raise DataError("no response")
    if fields["answer"] is None and fields["tests"] is None:
        raise DataError("no answer")
    if not isinstance(row["response"], str):
        raise DataError(f"response {_shortened(row['response'])} is not text")
    placeholder = {"answer": "?"} if empty else {}
    problem = read_plain({**fields, "question": fields["question"] or "?", **placeholder})
    question = str(fields["question"] or "")
    problem = replace(problem, question=question, answer="" if empty else problem.answer)
    return Item(row["response"], problem, bool(row.get("thinking_opened", thinking_opened)))


def read_choices(options: Any, answer: Any) -> tuple[tuple[str, ...], str]:
    """The options without their labels, and the answer's letter.

    `options` is a list of texts or one text `A) … B) …`. `answer` is a letter (`D`, `(D)`), an
    index from 0 (3 or [3]), or the words of one option.
    """
    items = _split_at_labels(options) if isinstance(options, str) else options
    if not isinstance(items, Sequence) or not 2 <= len(items) <= 26:
        raise DataError(f"options {_shortened(options)} are not a list of 2 to 26 texts")
    texts = tuple(_without_label(_text(item, "option"), i) for i, item in enumerate(items))
    return texts, _letter(answer, texts)


def _split_at_labels(text: str) -> list[str]:
    """`A) 2 B) 4` cut before A, before B and so on: a label counts only in its turn."""
    starts: list[int] = []
    for match in re.finditer(r"(?<![A-Za-z\\])(?:\(([A-Z])\)|([A-Z])[).:])", text):
        if (match[1] or match[2]) == chr(65 + len(starts)):
            starts.append(match.start())
    return [text[a:b].strip().rstrip(",") for a, b in pairwise([*starts, len(text)])]


def _without_label(option: str, index: int) -> str:
    match = _LABEL.match(option)
    if match and (match[1] or match[2]) == chr(65 + index):
        return _not_empty(option[match.end() :].strip(), "option")
    return option


def _letter(answer: Any, options: tuple[str, ...]) -> str:
    if isinstance(answer, Sequence) and not isinstance(answer, str) and len(answer) == 1:
        answer = answer[0]
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)  # a column of integers with a gap is read as floats
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        return chr(65 + answer)
    letter = _text(answer, "answer").strip("().: ").upper()
    if len(letter) == 1 and 0 <= ord(letter) - 65 < len(options):
        return letter
    if isinstance(answer, str) and options.count(answer.strip()) == 1:
        return chr(65 + options.index(answer.strip()))
    raise DataError(
        f"answer {_shortened(answer)} is not a letter, an index from 0 or the words of one of the "
        f"{len(options)} options"
    )


def _answer_or_box(fields: Fields) -> str:
    if fields.get("answer") is not None:
        answer = _text(fields["answer"], "answer")
        if answer.startswith(r"\boxed"):
            answer = last_box(answer, enumeration=False).answer or ""
    else:
        solution = _text(fields.get("solution"), "answer")
        answer, reason = last_box(solution, enumeration=False)
        if answer is None:
            raise DataError(f"no answer; in the solution: {reason}")
    bare = answer.strip("$").strip()
    wrapped = answer.startswith("$") and answer.endswith("$") and "$" not in bare
    return _not_empty(bare if wrapped else answer, "answer")


def _without_thousands(number: str) -> str:
    """`1,080` as `1080`; anything but one number with separators stays as it is."""
    return number.replace(",", "") if _THOUSANDS.fullmatch(number) else number


def _tolerance(fields: Fields) -> float | None:
    value = fields.get("tolerance")
    if value is None or value == "":
        return None
    try:
        tolerance = float(value)
    except (TypeError, ValueError, OverflowError):
        tolerance = math.nan
    if not 0 <= tolerance < math.inf or isinstance(value, bool):
        raise DataError(f"tolerance {_shortened(value)} is not a number from 0 up")
    return tolerance


def _text(value: Any, field: str) -> str:
    """The value as clean text: numbers are written out, everything else must be a string."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of integers with a gap is read as floats
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        value = str(value)
    if value is None or value != value:
        raise DataError(f"no {field}")
    if not isinstance(value, str):
        raise DataError(f"{field} {_shortened(value)} is {type(value).__name__}, not text")
    if "\0" in value:
        raise DataError(f"{field} contains a NUL character")
    if _SURROGATE.search(value):
        raise DataError(f"{field} is not valid UTF-8")
    return _not_empty(value.strip(), field)


def _texts(value: Any, field: str) -> list[str]:
    several = isinstance(value, Sequence) and not isinstance(value, str)
    return [_text(item, field) for item in (value if several else [value])]


def _not_empty(text: str, field: str) -> str:
    if not text:
        raise DataError(f"empty {field}")
    return text


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
