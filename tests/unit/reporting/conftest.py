"""Small runs and evaluations, written by the product's own stores."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from crt.evaluation.series import Point, series
from crt.evaluation.store import Evaluation, load, open_store
from crt.io import write_json
from crt.recipes import config_of
from crt.run import Run
from crt.types import Rollout, Verdict

Answer = tuple[str, int, bool]  # text, tokens, right
CONFIG = {
    "name": "small",
    "seed": 3,
    "model": {"name": "pocket"},
    "data": {"train": ["pocket:40"]},
    "method": {"type": "crt"},
    "schedule": {"steps": 40},
    "evaluation": {"data": ["pocket/test:4"], "rollouts": 2, "max_tokens": 256},
}


def manifest(name: str, model: str, data: str, rollouts: int) -> dict:
    """What an evaluation of this model would say of itself."""
    return {
        "format": 1,
        "name": name,
        "model": {"name": model, "kind": "local", "hash": model},
        "data": [{"name": data, "hash": "same", "problems": 0, "skipped": 0}],
        "prompt": {"settings": None, "budget": None, "hash": "same"},
        "sampling": {"rollouts": rollouts, "temperature": 0.6, "top_p": 0.95, "max_tokens": 256},
        "grader": "1.0",
        "truncated": "wrong",
        "versions": {},
    }


def write_evaluation(
    folder: Path,
    answers: Sequence[Sequence[Answer]],
    *,
    model: str = "pocket",
    data: str = "own",
    questions: Sequence[str] = (),
    minute: int = 0,
) -> Evaluation:
    """An evaluation's folder: `answers[problem][rollout]`."""
    said = manifest(folder.name, model, data, len(answers[0]))
    said["started"] = f"2026-01-01T00:{minute:02}:00+00:00"
    asked = [*questions, *(f"What is {i} + 1?" for i in range(len(questions), len(answers)))]
    rows = [
        {"data": data, "id": f"p{i}", "question": text, "answer": str(i + 1)}
        for i, text in enumerate(asked)
    ]
    records = [
        Rollout(f"p{i}", text, tokens, "eos", verdict(right), str(i), dataset=data, index=r)
        for i, problem in enumerate(answers)
        for r, (text, tokens, right) in enumerate(problem)
    ]
    with open_store(folder, said) as store:
        store.write_problems(rows)
        store.write_rollouts(records)
        return store.finish(said)


def verdict(right: bool) -> Verdict:
    return Verdict.CORRECT if right else Verdict.WRONG


def plain_answers(tokens: int, right: Sequence[int], rollouts: int = 2) -> list[list[Answer]]:
    """Problems with `right` correct answers each, all of the same length."""
    return [
        [(f"Let me see. 1 + 1 = {r}. \\boxed{{{r}}}", tokens, r < n) for r in range(rollouts)]
        for n in right
    ]


def write_series(folder: Path, courses: Sequence[tuple[int, Sequence[Sequence[Answer]]]]) -> Path:
    """A series: (step, answers) for the base and every checkpoint."""
    done: list[tuple[Point, Evaluation]] = []
    for step, answers in courses:
        name = f"step-{step:04d}" if step else "base"
        model = f"checkpoints/{name}" if step else "pocket"
        write_evaluation(folder / name, answers, model=model)
        done.append((Point(name, step, model), load(folder / name)))
    write_json(folder / "series.json", series(done))
    return folder


def write_run(path: Path, steps: int = 6, finished: bool = False, **config: object) -> Run:
    """A run with a row a step, a checkpoint's record every two and a step's rollouts."""
    run = Run.create(path, config_of({**CONFIG, **config}))
    for step in range(1, steps + 1):
        run.add_step(step_row(step))
        run.add_rollouts(step, [rollout(i, step) for i in range(4)])
    for step in range(2, steps + 1, 2):
        run.checkpoint(step).mkdir()
        write_json(run.checkpoint(step) / "record.json", record(step))
    if finished:
        run.set_progress(finished=True, recommended=steps, feasible=True, stage_one_ended=4)
    return run


def step_row(step: int) -> dict:
    """Odd steps shorten, even ones repair; Stage II from step 5."""
    return {
        "step": step,
        "stage": 1 if step < 5 else 2,
        "goal": "length" if step % 2 else "accuracy",
        "rectified": float(step % 2 == 0),
        "accuracy": 0.80,
        "reference_accuracy": 0.75,
        "standard_error": 0.02,
        "slack": 0.02,
        "margin": 0.07,
        "tokens": 100.0 - step,
        "reference_tokens": 100.0,
        "multiplier": None,
    }


def record(step: int) -> dict:
    return {
        **{"step": step, "stage": 1, "accuracy": 0.9, "tokens": 100.0 - step, "problems": 8},
        **{"reference_accuracy": 0.92, "reference_tokens": 110.0, "standard_error": 0.01},
        **{"margin": 0.0, "feasible": True},
    }


def rollout(number: int, step: int) -> dict:
    text = f"Step {step} says 1 + {number} = 2. \\boxed{{2}}"
    return {
        **{
            "problem_id": f"t{number % 2}",
            "text": text,
            "verdict": "correct" if number else "wrong",
        },
        **{"extracted": "2", "tokens": 20 + number, "stop": "eos", "advantage": 0.0},
    }


@pytest.fixture(scope="session")
def evaluated() -> Callable[..., Evaluation]:
    return write_evaluation


@pytest.fixture(scope="session")
def answers() -> Callable[..., list[list[Answer]]]:
    return plain_answers


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    return write_run


@pytest.fixture(scope="session")
def make_series() -> Callable[..., Path]:
    return write_series


@pytest.fixture
def run_with_series(tmp_path: Path) -> Path:
    return write_run_with_series(tmp_path / "run")


@pytest.fixture(scope="session")
def the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, made once, for those who only read it."""
    return write_run_with_series(tmp_path_factory.mktemp("read") / "run")


def write_run_with_series(path: Path) -> Path:
    """A finished run with a series of four points over twelve problems."""
    run = write_run(path, finished=True)
    right = [2] * 9 + [1] * 3
    courses = [(step, plain_answers(100 - 10 * step, right)) for step in (0, 2, 4, 6)]
    write_series(run.path / "evaluations" / "own", courses)
    return run.path
