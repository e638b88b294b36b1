"""What a run says while it trains: for reading before anything is evaluated."""

from pathlib import Path
from typing import Any

import numpy as np

from crt.data.datasets import DATASETS, load_mixture, parse
from crt.errors import CrtError
from crt.evaluate.records import Record
from crt.report.answers import Picked, answers_of, pack, spaced
from crt.report.html import visible
from crt.report.sources import Row, RunView
from crt.run import ROLLOUTS, Run
from crt.types import Problem, Verdict

MOST_STEPS = 12  # of which the page has rollouts
Seen = dict[str, dict[int, list[Record]]]  # problem → step → its responses


def sampled(run: RunView, first: int, budget: int) -> tuple[Row, list[str]]:
    """An index for the explorer and packed questions, whose numbers begin with `first`."""
    steps = _steps(run)
    seen = _seen(run, steps)
    asked = _asked(run)
    chunks: list[str] = []
    questions: list[Row] = []
    for problem_id, by_step in seen.items():
        columns = [by_step.get(step, []) for step in steps]
        problem = asked.get(problem_id)
        text = visible(problem.question if problem else problem_id)
        packed = _packed(text, problem, columns)
        fits = sum(map(len, chunks)) + len(packed) <= budget
        chunk = first + len(chunks) if fits else None
        chunks += [packed] if fits else []
        figures = {"acc": [_right(c) for c in columns], "len": [_length(c) for c in columns]}
        line = " ".join(text.split())[:160]
        questions.append({"data": "training", "text": line, "chunk": chunk, **figures})
    names = [{"name": f"step {step}", "step": step, "texts": True} for step in steps]
    label = f"{run.name}, training rollouts"
    return {
        "label": label,
        "columns": names,
        "rollouts": 0,
        "result": 0,
        "questions": questions,
    }, chunks


def _steps(run: RunView) -> list[int]:
    files = (run.path / ROLLOUTS).glob("step-*.jsonl.zst")
    found = sorted(int(file.name.removeprefix("step-").split(".")[0]) for file in files)
    return [found[place] for place in spaced(len(found), MOST_STEPS)] if found else []


def _seen(run: RunView, steps: list[int]) -> Seen:
    found: Seen = {}
    opened = Run(run.path, run.config)
    for step in steps:
        for row in _rollouts(opened, step):
            by_step = found.setdefault(str(row["problem_id"]), {})
            responses = by_step.setdefault(step, [])
            responses.append(_record(row, len(responses)))
    return found


def _rollouts(run: Run, step: int) -> list[Row]:
    """None of a step whose file went or is damaged: a run that is resumed takes steps back."""
    try:
        return run.rollouts(step)
    except CrtError:
        return []


def _record(row: Row, number: int) -> Record:
    return Record(
        data="training",
        problem_id=str(row["problem_id"]),
        rollout=number,
        response=str(row["text"]),
        tokens=row.get("tokens"),
        stop=row.get("stop"),
        verdict=Verdict(row["verdict"]),
        extracted=row.get("extracted"),
        reason="",
        zip_ratio=None,
    )


def _asked(run: RunView) -> dict[str, Problem]:
    """The questions, where they can be made without a network: else their ids must do."""
    data = run.config.data
    options: Row = {"columns": data.columns, "folder": data.folder, "skip_bad": data.skip_bad}
    try:
        names = [name for name in data.train if _is_here(name)]
        return {problem.id: problem for problem in load_mixture(names, **options)}
    except CrtError:
        return {}


def _is_here(name: str) -> bool:
    """Made by a function, or a file; a set of the hub would be downloaded."""
    known = DATASETS.get(parse(name).name)
    return bool(known.generator) if known else Path(parse(name).name).is_file()


def _packed(text: str, problem: Problem | None, columns: list[list[Record]]) -> str:
    answers: list[list[Row]] = []
    for records in columns:
        picked = Picked()
        for record in records:
            picked.see(record, record.verdict)
        answers.append(list(answers_of(picked, "grade")))
    answer = visible(problem.answer) if problem else ""
    return pack({"question": text, "answer": answer, "columns": answers})


def _right(records: list[Record]) -> int | None:
    graded = [r.verdict is Verdict.CORRECT for r in records if r.verdict is not Verdict.UNGRADED]
    return round(100 * float(np.mean(graded))) if graded else None


def _length(records: list[Record]) -> int | None:
    lengths: list[Any] = [record.tokens for record in records if record.tokens is not None]
    return round(float(np.mean(lengths))) if lengths else None
