"""Which answers the page holds, how they are marked, and how they are packed."""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crt.data.datasets import DATASETS, load_mixture, parse
from crt.errors import CrtError
from crt.evaluation.audit import DOUBT_WORDS
from crt.evaluation.metrics import count_rollouts, counts_by_dataset, effective_verdict
from crt.evaluation.store import Evaluation
from crt.reporting.figures.cases import example_questions
from crt.reporting.load import (
    EvaluationGroup,
    EvaluationPoint,
    ProblemKey,
    ProblemTrajectories,
    Row,
    RunView,
    problem_trajectories,
)
from crt.run import ROLLOUTS, Run
from crt.types import Rollout, Verdict

MOST_COLUMNS = 9  # checkpoints whose answers are in the page
MOST_STEPS = 12  # of training of which the page has rollouts
HEAD, TAIL = 5000, 2500  # characters kept of a very long answer
CHARACTERS_PER_TOKEN = 4  # about, to judge before reading what will fit
PACKING = 4  # the text's size over its size in the page, about
NEW, REPEAT, DOUBT, LEFT_OUT = range(4)  # kinds of pieces; explorer.js has the same
FEWEST_WORDS = 3  # a shorter sentence is no repetition: "So.", "Yes."
ROLES = ("sample", "shortest", "wrong")

Selection = dict[str, Rollout]  # role → response: the first, the shortest right, the first wrong
Selections = dict[ProblemKey, Selection]
Problems = Mapping[ProblemKey, tuple[str, str]]  # question and answer

# Control, format, surrogate and private-use characters (Cc, Cf, Cs, Co) but newline and tab.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ud800-\uf8ff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f\U000f0000-\U000ffffd\U00100000-\U0010fffd]"
)
_SENTENCE = re.compile(r"\S.*?(?:(?<=[.!?])(?=\s)|$)", re.MULTILINE)
_FORMULA = re.compile(
    r"(?:\d|[.,](?=\d)|\b[A-Za-z]\b|\\(?:times|cdot|div|frac|sqrt)|[+\-−–×*·/÷^(){}%$€£ =])+"
)
_SIGNS = str.maketrans({"−": "-", "–": "-", "·": "*", "×": "*", "÷": "/", "’": "'"})


# Packing: an index of every question, and the answers to one question per chunk


def pack_group(group: EvaluationGroup, first: int, budget: int) -> tuple[Row, list[str]]:
    """An index of every question, and the packed ones, whose numbers begin with `first`.

    Questions are packed until the budget of bytes is used up, those of the figures before others.
    """
    trajectories = problem_trajectories(group)
    result = group.points.index(group.result) if group.result else 0
    columns = sorted({*spaced(len(group.points), MOST_COLUMNS), result})
    order = _interesting_first(trajectories, columns, example_questions(group), budget)
    keys = {trajectories.keys[number] for number in order}
    selections = {n: select(read_rollouts(group.points[n].evaluation), keys) for n in columns}
    problems = {
        key: (str(row["question"]), str(row.get("answer", "")))
        for key, row in group.problems().items()
    }
    index, chunks = _pack(group, order, problems, selections, first, budget)
    rollouts = int(group.points[0].metrics["rollouts"])
    return index | {"result": result, "rollouts": rollouts}, chunks


def pack_training(run: RunView, budget: int) -> tuple[Row, list[str]]:
    """The same of the responses in training, before anything is evaluated."""
    files = (run.path / ROLLOUTS).glob("step-*.jsonl.zst")
    saved = sorted(int(file.name.removeprefix("step-").split(".")[0]) for file in files)
    steps = [saved[place] for place in spaced(len(saved), MOST_STEPS)]
    rollouts = [read_training_rollouts(run, step) for step in steps]
    points = tuple(
        EvaluationPoint(name, step, Evaluation(name, {}, counts_by_dataset(counts)), None)
        for step, part in zip(steps, rollouts, strict=True)
        for name, counts in [(f"step {step}", count_rollouts(part, "grade"))]
    )
    group = EvaluationGroup(f"{run.name}, training rollouts", points, False, run)
    keys = problem_trajectories(group).keys
    selections = {place: select(part, keys) for place, part in enumerate(rollouts)}
    order = range(len(keys))
    return _pack(group, order, _training_problems(run), selections, 0, budget)


def _pack(
    group: EvaluationGroup,
    order: Iterable[int],
    problems: Problems,
    selections: Mapping[int, Selections],
    first: int,
    budget: int,
) -> tuple[Row, list[str]]:
    """The index and the packed questions; `selections` are of the columns with texts.

    A packed question is its answers as JSON, deflated, as long as the budget allows.
    """
    trajectories = problem_trajectories(group)
    chunks: dict[int, str] = {}  # by the question's number
    for number in order:
        key = trajectories.keys[number]
        question, answer = problems.get(key, (key[1], ""))
        columns = [_answers(column.get(key, {})) for column in selections.values()]
        value = {"question": visible(question), "answer": visible(answer), "columns": columns}
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        chunk = deflate(text.encode("utf-8", "replace"))
        if len(chunk) <= budget:
            chunks[number] = chunk
            budget -= len(chunk)
    index = {
        "label": visible(group.label),
        "columns": [
            {"name": visible(point.name), "step": point.step, "texts": place in selections}
            for place, point in enumerate(group.points)
        ],
        "result": 0,
        "rollouts": 0,
        "questions": _questions(trajectories, problems, chunks, first),
    }
    return index, list(chunks.values())


def read_rollouts(evaluation: Evaluation) -> Iterator[Rollout]:
    """The responses of an evaluation, each with the verdict that it counts as."""
    for rollout in evaluation.rollouts():
        verdict = effective_verdict(rollout, evaluation.manifest["truncated"])
        yield replace(rollout, verdict=verdict)


def read_training_rollouts(run: RunView, step: int) -> list[Rollout]:
    """The responses of a step; none if its file is damaged, or gone as a resumed run goes back."""
    try:
        rows = Run(run.path, run.config).rollouts(step)
    except CrtError:
        return []
    return [
        Rollout(
            str(row["problem_id"]),
            str(row["text"]),
            row.get("tokens"),
            row.get("stop"),
            Verdict(row["verdict"]),
            row.get("extracted"),
            dataset="training",
            index=number,
        )
        for number, row in enumerate(rows)
    ]


def _training_problems(run: RunView) -> Problems:
    """The questions, where they can be read without a network: else their ids must do."""
    data = run.config.data
    options: Row = {"columns": data.columns, "folder": data.folder, "skip_bad": data.skip_bad}
    try:
        names = [name for name in data.train if _is_local(name)]
        return {("training", p.id): (p.question, p.answer) for p in load_mixture(names, **options)}
    except CrtError:
        return {}


def _is_local(name: str) -> bool:
    """Made by a function, or a file; a set of the hub would be downloaded."""
    dataset = DATASETS.get(parse(name).name)
    return bool(dataset.generator) if dataset else Path(parse(name).name).is_file()


def select(rollouts: Iterable[Rollout], keys: Iterable[ProblemKey]) -> Selections:
    """Per problem the first response, the shortest that is right and the first that is wrong."""
    selections: Selections = {key: {} for key in keys}
    for rollout in rollouts:
        selection = selections.get((rollout.dataset, rollout.problem_id))
        if selection is None:
            continue
        roles = ["sample"]
        roles += ["shortest"] if rollout.verdict is Verdict.CORRECT else []
        roles += ["wrong"] if rollout.verdict in (Verdict.WRONG, Verdict.NO_ANSWER) else []
        for role in roles:
            if role not in selection or _rank(role, rollout) < _rank(role, selection[role]):
                selection[role] = rollout
    return selections


def _rank(role: str, rollout: Rollout) -> tuple[int, int]:
    length = len(rollout.text) if rollout.length is None else rollout.length
    return (length if role == "shortest" else 0), rollout.index


def _answers(selection: Selection) -> list[Row]:
    """The selected answers as the explorer shows them, each once."""
    rows: dict[int, Row] = {}
    for role in ROLES:
        if role in selection:
            index = selection[role].index
            rows.setdefault(index, answer_row(selection[role]))["kinds"].append(role)
    return list(rows.values())


def answer_row(rollout: Rollout) -> Row:
    """One answer as the explorer shows it; pieces as [kind, text]."""
    parts = pieces(rollout.text)
    return {
        "kinds": [],
        "verdict": str(rollout.verdict),
        "tokens": rollout.length,
        "cut": rollout.stop == "length",
        "extracted": None if rollout.extracted is None else visible(rollout.extracted)[:200],
        "redundant": round(100 * redundant_share(parts)),
        "pieces": shorten([[part.kind, visible(part.text)] for part in parts]),
    }


def _questions(
    trajectories: ProblemTrajectories, problems: Problems, chunks: Iterable[int], first: int
) -> list[Row]:
    numbers = {number: first + place for place, number in enumerate(chunks)}
    return [
        {
            "data": visible(key[0]),
            "text": " ".join(visible(problems.get(key, (key[1], ""))[0]).split())[:160],
            "chunk": numbers.get(number),
            "acc": _rounded(100 * trajectories.accuracy[:, number]),
            "len": _rounded(trajectories.length[:, number]),
        }
        for number, key in enumerate(trajectories.keys)
    ]


def _rounded(values: Any) -> list[int | None]:
    return [None if np.isnan(value) else round(float(value)) for value in values]


def _interesting_first(
    trajectories: ProblemTrajectories, columns: Sequence[int], first: Sequence[int], budget: int
) -> list[int]:
    """Those questions and then others from all over, as many as will about fit."""
    others = np.random.default_rng(0).permutation(len(trajectories.keys)).tolist()
    order = list(dict.fromkeys([*first, *others]))
    tokens = np.nan_to_num(trajectories.length[list(columns)], nan=1000.0)
    sizes = 2.5 * np.minimum(CHARACTERS_PER_TOKEN * tokens, HEAD + TAIL) / PACKING
    within = np.cumsum(sizes.sum(axis=0)[order]) <= 1.5 * budget  # rough; packing decides
    return order[: max(1, int(within.sum()))]


def spaced(count: int, most: int) -> list[int]:
    """At most so many places, evenly spaced, the first and the last among them."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()


def shorten(marked: list[list[Any]]) -> list[list[Any]]:
    """The pieces without the middle of a very long answer."""
    total = sum(len(text) for _, text in marked)
    if total <= HEAD + TAIL:
        return marked
    start: list[list[Any]] = []
    end: list[list[Any]] = []
    place = 0
    for kind, text in marked:
        start.append([kind, text[: max(0, HEAD - place)]])
        end.append([kind, text[max(0, total - TAIL - place) :]])
        place += len(text)
    kept = [*start, [LEFT_OUT, str(total - HEAD - TAIL)], *end]
    return [piece for piece in kept if piece[1]]


def deflate(raw: bytes) -> str:
    """Raw deflate as base64: what DecompressionStream of a browser reads."""
    return base64.b64encode(zlib.compress(raw, 9, wbits=-15)).decode()


def visible(text: str) -> str:
    """Marks that turn the reading direction, and other characters nobody sees, are spelled out."""
    return _HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


# Marking: what a response repeats, and where it doubts itself


class Piece(NamedTuple):
    """A stretch of a response: new, repeated, or a sign of doubt."""

    kind: int
    text: str


def pieces(text: str) -> list[Piece]:
    """The whole text, in order; together the pieces are the text again."""
    kinds = bytearray(len(text))
    for start, end in _repeats(text):
        kinds[start:end] = bytes([REPEAT]) * (end - start)
    for doubt in DOUBT_WORDS.finditer(text):
        kinds[doubt.start() : doubt.end()] = bytes([DOUBT]) * len(doubt[0])
    characters = zip(kinds, text, strict=True)
    return [
        Piece(kind, "".join(character for _, character in run))
        for kind, run in groupby(characters, key=lambda pair: pair[0])
    ]


def redundant_share(parts: Sequence[Piece]) -> float:
    """Share of the characters that are repeats or doubts; 0 for an empty text."""
    total = sum(len(part.text) for part in parts)
    return sum(len(part.text) for part in parts if part.kind) / total if total else 0.0


def _repeats(text: str) -> Iterator[tuple[int, int]]:
    """Sentences that came before, and in new sentences the equations that came before."""
    sentences: set[str] = set()
    equations: set[str] = set()
    for match in _SENTENCE.finditer(text):
        start = match.start()
        sentence = _normalise(match[0])
        formulas = list(_equations(match[0]))
        substantial = len(sentence.split()) >= FEWEST_WORDS or bool(formulas)
        if substantial and sentence in sentences:
            yield match.span()
        else:
            yield from ((start + a, start + b) for a, b, plain in formulas if plain in equations)
        sentences.add(sentence)
        equations |= {plain for _, _, plain in formulas}


def _equations(sentence: str) -> Iterator[tuple[int, int, str]]:
    """Where equations stand, and each without its spaces; a = b = c is two."""
    for formula in _FORMULA.finditer(sentence):
        start = formula.start()
        for left, right in pairwise(formula[0].split("=")):
            end = start + len(left) + 1 + len(right.rstrip())
            begin = start + len(left) - len(left.lstrip())
            if left.strip() and right.strip():
                yield begin, end, re.sub(r"[\s$]", "", sentence[begin:end]).translate(_SIGNS)
            start += len(left) + 1


def _normalise(sentence: str) -> str:
    """Two sentences with the same words are the same, whatever doubt introduces them."""
    words = DOUBT_WORDS.sub(" ", sentence.translate(_SIGNS).casefold()) or sentence
    return " ".join(re.findall(r"[^\s,.;:!?$]+", words)) or sentence.casefold()
