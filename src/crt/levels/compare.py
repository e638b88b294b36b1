"""One question to all levels of a family, side by side."""

from dataclasses import dataclass
from pathlib import Path

from crt.data.prompts import prepare, render_turns, to_messages
from crt.errors import DataError
from crt.evaluation.series import BASE
from crt.evaluation.store import load
from crt.evaluation.typical import typical_responses
from crt.grading.extract import extract
from crt.levels.family import Family, Level, level_files
from crt.pocket import is_world, read_question
from crt.sampling.base import InProcess, Sampling
from crt.sampling.models import with_weights
from crt.sampling.policy import respond


@dataclass(frozen=True)
class LevelAnswer:
    """What a level said to a question; `answer` is what stands in its box."""

    level: Level
    text: str
    tokens: int
    answer: str | None


def ask_levels(
    family: Family, file: Path, question: str, sampling: Sampling, seed: int
) -> list[LevelAnswer]:
    """What every level says to a question, the shortest first.

    The prompt is the measured one, and a pocket model is asked in words that it knows.
    """
    base = family.levels[-1].model
    reading = read_question(base if is_world(base) else None, question)
    answers: list[LevelAnswer] = []
    for level in family.levels:
        loaded = with_weights(level_files(level, file))
        settings, eos_token_ids = family.prompt_for(level), loaded.files.eos_token_ids
        template = prepare(loaded.tokenizer, settings)  # pyright: ignore[reportArgumentType]
        prompt = render_turns(to_messages(reading.question, settings, None), template)
        sampler = InProcess(loaded.model, eos_token_ids, sampling)
        [[response]] = respond([prompt], sampler, loaded.tokenizer, eos_token_ids, 1, seed)
        text = reading.restore(response.text)
        answer = extract(text, response.opens_thinking).answer
        answers.append(LevelAnswer(level, text, response.length or 0, answer))
    return answers


def typical_answers(family: Family, file: Path) -> tuple[str, list[LevelAnswer]]:
    """The evaluation's question that shows best what the levels are, and its responses."""
    series = file.parent / "evaluations" / family.measured.evaluation
    names = [*(Path(level.model).name for level in family.levels[:-1]), BASE]
    evaluations = [load(series / name) for name in names]
    rollouts = [evaluation.rollouts() for evaluation in evaluations]
    typical = typical_responses(rollouts, [level.len.value for level in family.levels])
    if typical is None:
        raise DataError(
            f"{series} has no question that all levels answer right, each with fewer tokens than "
            "the next: give a question."
        )
    questions = {(row["data"], row["id"]): row["question"] for row in evaluations[-1].problems()}
    answers = [
        LevelAnswer(level, rollout.text, rollout.length or 0, rollout.extracted)
        for level, rollout in zip(family.levels, typical, strict=True)
    ]
    return questions[typical[0].dataset, typical[0].problem_id], answers
