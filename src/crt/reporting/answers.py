"""Which answers the page holds, and how they are packed: one question at a time."""

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crt.data.datasets import DATASETS, load_mixture, parse
from crt.errors import CrtError
from crt.evaluation.counts import effective_verdict
from crt.reporting.figure_rows import ProblemTrajectories, problem_trajectories
from crt.reporting.figures.cases import example_questions
from crt.reporting.html import visible
from crt.reporting.load import EvaluationGroup, ProblemKey, Row, RunView
from crt.reporting.repetition import pieces, redundant_share
from crt.run import ROLLOUTS, Run
from crt.types import Problem, Rollout, Verdict

MOST_COLUMNS = 9  # checkpoints whose answers are in the page
MOST_STEPS = 12  # of training of which the page has rollouts
HEAD, TAIL = 5000, 2500  # characters kept of a very long answer
CHARACTERS_PER_TOKEN = 4  # about, to judge before reading what will fit
PACKING = 4  # the text's size over its size in the page, about
PIECE_CODES = {"": 0, "repeat": 1, "doubt": 2}
LEFT_OUT = 3  # the code of a piece that says how many characters were left out


@dataclass
class Selection:
    """Of one problem's responses: the first, the shortest that is right, the first that is not."""

    sample: Rollout | None = None
    shortest: Rollout | None = None
    wrong: Rollout | None = None

    def add(self, record: Rollout, verdict: Verdict) -> None:
        """Keeps the record if it is one of the three."""
        if self.sample is None or record.index < self.sample.index:
            self.sample = record
        if verdict is Verdict.CORRECT and (
            self.shortest is None or _size(record) < _size(self.shortest)
        ):
            self.shortest = record
        if verdict in (Verdict.WRONG, Verdict.NO_ANSWER) and (
            self.wrong is None or record.index < self.wrong.index
        ):
            self.wrong = record

    def rows(self, truncated: Any) -> Iterator[Row]:
        """The answers that were selected, each once."""
        roles: dict[int, tuple[Rollout, list[str]]] = {}
        for kind in ("sample", "shortest", "wrong"):
            record = getattr(self, kind)
            if record is not None:
                roles.setdefault(record.index, (record, []))[1].append(kind)
        for record, kinds in roles.values():
            yield answer_row(record, effective_verdict(record, truncated), kinds)


def _size(record: Rollout) -> tuple[int, int]:
    return (len(record.text) if record.length is None else record.length, record.index)


def answer_row(record: Rollout, verdict: Verdict, kinds: Sequence[str]) -> Row:
    """One answer as the explorer shows it; pieces as [code, text]."""
    parts = pieces(record.text)
    marked = [[PIECE_CODES[part.kind], visible(part.text)] for part in parts]
    return {
        "kinds": list(kinds),
        "verdict": str(verdict),
        "tokens": record.length,
        "cut": record.stop == "length",
        "extracted": None if record.extracted is None else visible(record.extracted)[:200],
        "redundant": round(100 * redundant_share(parts)),
        "pieces": shorten(marked),
    }


def shorten(marked: list[list[Any]]) -> list[list[Any]]:
    """The pieces without the middle of a very long answer."""
    total = sum(len(text) for _, text in marked)
    if total <= HEAD + TAIL:
        return marked
    kept: list[list[Any]] = []
    place = 0
    for code, text in marked:
        before = text[: max(0, HEAD - place)]
        after = text[max(0, total - TAIL - place) :] if place + len(text) > total - TAIL else ""
        if before:
            kept.append([code, before])
        if after and not any(piece[0] == LEFT_OUT for piece in kept):
            kept.append([LEFT_OUT, str(total - HEAD - TAIL)])
        if after:
            kept.append([code, after])
        place += len(text)
    return kept


def pack_question(question: object, answer: object, columns: Sequence[Sequence[Row]]) -> str:
    """A question and its answers as JSON, deflated, as text for a script element."""
    value = {"question": visible(str(question)), "answer": visible(str(answer)), "columns": columns}
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return deflate(raw.encode("utf-8", "replace"))


def deflate(raw: bytes) -> str:
    """Raw deflate as base64: what DecompressionStream of a browser reads."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(compressor.compress(raw) + compressor.flush()).decode()


def spaced(count: int, most: int) -> list[int]:
    """At most so many places, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return np.linspace(0, count - 1, most).round().astype(int).tolist()


def pack_group(group: EvaluationGroup, first: int, budget: int) -> tuple[Row, list[str]]:
    """An index of every question, and the packed ones, whose numbers begin with `first`.

    Questions are packed until the budget of bytes is used up, those of the figures before others.
    """
    trajectories = problem_trajectories(group)
    problems = group.problems()
    result = group.points.index(group.result) if group.result else 0
    columns = sorted({*spaced(len(group.points), MOST_COLUMNS), result})
    wanted = _fitting(trajectories, columns, example_questions(group), budget)
    selected = [_select(group, place, {trajectories.keys[n] for n in wanted}) for place in columns]
    truncated = group.points[0].evaluation.manifest["truncated"]
    chunks: dict[int, str] = {}
    for number in wanted:
        key = trajectories.keys[number]
        problem = problems.get(key, {})
        answers = [list(column.get(key, Selection()).rows(truncated)) for column in selected]
        chunk = pack_question(problem.get("question", key[1]), problem.get("answer", ""), answers)
        if sum(map(len, chunks.values())) + len(chunk) > budget:
            break
        chunks[number] = chunk
    numbers = {number: first + i for i, number in enumerate(chunks)}
    index = {
        "label": visible(group.label),
        "columns": [
            {"name": visible(point.name), "step": point.step, "texts": place in columns}
            for place, point in enumerate(group.points)
        ],
        **{"result": result, "rollouts": int(group.points[0].metrics["rollouts"])},
        "questions": [
            {
                "data": visible(key[0]),
                "text": _one_line(str(problems.get(key, {}).get("question", key[1]))),
                "chunk": numbers.get(number),
                "acc": _rounded(100 * trajectories.accuracy[:, number]),
                "len": _rounded(trajectories.length[:, number]),
            }
            for number, key in enumerate(trajectories.keys)
        ],
    }
    return index, list(chunks.values())


def _fitting(
    trajectories: ProblemTrajectories, columns: Sequence[int], first: Sequence[int], budget: int
) -> list[int]:
    """Questions in the order of their interest, as many as will about fit."""
    rest = [n for n in _spread_order(len(trajectories.keys)) if n not in set(first)]
    tokens = np.nan_to_num(trajectories.length[list(columns)], nan=1000.0)
    sizes = 2.5 * np.minimum(CHARACTERS_PER_TOKEN * tokens, HEAD + TAIL) / PACKING
    order = [*first, *rest]
    within = np.cumsum(sizes.sum(axis=0)[order]) <= 1.5 * budget  # rough; packing decides
    return [number for number, fits in zip(order, within, strict=True) if fits] or order[:1]


def _spread_order(count: int) -> list[int]:
    """Every number once, early ones far apart, so that any beginning is spread over all."""
    step = max(1, round(count * 0.618))
    while np.gcd(step, count) != 1:
        step += 1
    return [(i * step) % count for i in range(count)]


def _select(
    group: EvaluationGroup, place: int, wanted: set[ProblemKey]
) -> dict[ProblemKey, Selection]:
    evaluation = group.points[place].evaluation
    selections: dict[ProblemKey, Selection] = {}
    for record in evaluation.rollouts():
        key = (record.dataset, record.problem_id)
        if key in wanted:
            verdict = effective_verdict(record, evaluation.manifest["truncated"])
            selections.setdefault(key, Selection()).add(record, verdict)
    return selections


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())[:160]


def _rounded(values: Any) -> list[int | None]:
    return [None if np.isnan(value) else round(float(value)) for value in values]


def pack_training_rollouts(run: RunView, budget: int) -> tuple[Row, list[str]]:
    """The same of the responses in training, before anything is evaluated."""
    files = (run.path / ROLLOUTS).glob("step-*.jsonl.zst")
    saved = sorted(int(file.name.removeprefix("step-").split(".")[0]) for file in files)
    steps = [saved[place] for place in spaced(len(saved), MOST_STEPS)]
    problems = _training_problems(run)
    chunks: list[str] = []
    questions: list[Row] = []
    for problem_id, by_step in _responses(run, steps).items():
        columns = [by_step.get(step, []) for step in steps]
        problem = problems.get(problem_id)
        text = problem.question if problem else problem_id
        chunk = pack_question(text, problem.answer if problem else "", list(_selected(columns)))
        fits = sum(map(len, chunks)) + len(chunk) <= budget
        questions.append(
            {
                **{"data": "training", "text": _one_line(text)},
                "chunk": len(chunks) if fits else None,
                "acc": _rounded([_accuracy(column) for column in columns]),
                "len": _rounded([_mean([r.length for r in column]) for column in columns]),
            }
        )
        chunks += [chunk] if fits else []
    index = {
        "label": visible(f"{run.name}, training rollouts"),
        "columns": [{"name": f"step {step}", "step": step, "texts": True} for step in steps],
        **{"rollouts": 0, "result": 0, "questions": questions},
    }
    return index, chunks


def _responses(run: RunView, steps: Sequence[int]) -> dict[str, dict[int, list[Rollout]]]:
    """Problem → step → responses; a step whose file is gone or damaged has none.

    A run that is resumed takes steps back, so a file may go while it is read.
    """
    responses_by_problem: dict[str, dict[int, list[Rollout]]] = {}
    opened = Run(run.path, run.config)
    for step in steps:
        try:
            rows = opened.rollouts(step)
        except CrtError:
            continue
        for row in rows:
            responses = responses_by_problem.setdefault(str(row["problem_id"]), {}).setdefault(
                step, []
            )
            responses.append(_record(row, len(responses)))
    return responses_by_problem


def _record(row: Row, number: int) -> Rollout:
    verdict, text = Verdict(row["verdict"]), str(row["text"])
    values = (text, row.get("tokens"), row.get("stop"), verdict, row.get("extracted"))
    return Rollout(str(row["problem_id"]), *values, dataset="training", index=number)


def _training_problems(run: RunView) -> dict[str, Problem]:
    """The questions, where they can be read without a network: else their ids must do."""
    data = run.config.data
    options: Row = {"columns": data.columns, "folder": data.folder, "skip_bad": data.skip_bad}
    try:
        names = [name for name in data.train if _is_local(name)]
        return {problem.id: problem for problem in load_mixture(names, **options)}
    except CrtError:
        return {}


def _is_local(name: str) -> bool:
    """Made by a function, or a file; a set of the hub would be downloaded."""
    dataset = DATASETS.get(parse(name).name)
    return bool(dataset.generator) if dataset else Path(parse(name).name).is_file()


def _selected(columns: Sequence[Sequence[Rollout]]) -> Iterator[list[Row]]:
    for records in columns:
        selection = Selection()
        for record in records:
            selection.add(record, record.verdict)
        yield list(selection.rows("grade"))


def _accuracy(records: Sequence[Rollout]) -> float:
    graded = [r.verdict is Verdict.CORRECT for r in records if r.verdict is not Verdict.UNGRADED]
    return 100 * _mean(graded)


def _mean(values: Sequence[Any]) -> float:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else float("nan")
