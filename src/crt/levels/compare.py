"""One question to all levels of a family, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crt.data.prompts import prepare, render_turns, to_messages
from crt.grading.extract import extract
from crt.levels.family import Example, Family, Level, level_files
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
    right: bool | None  # None where the right answer is not known


def ask_levels(
    family: Family,
    file: Path,
    examples: Sequence[Example],
    sampling: Sampling,
    seed: int,
    is_right: Callable[[str, str], bool],
) -> list[list[LevelAnswer]]:
    """For each question the answers of all levels, shortest level first.

    The prompt is the measured one, and a pocket model is asked in words that it knows.
    """
    base = family.levels[-1].model
    world = base if is_world(base) else None
    readings = [read_question(world, example.question) for example in examples]
    by_level: list[list[LevelAnswer]] = []
    for level in family.levels:
        loaded = with_weights(level_files(level, file))
        settings, eos_token_ids = family.prompt_for(level), loaded.files.eos_token_ids
        template = prepare(loaded.tokenizer, settings)  # pyright: ignore[reportArgumentType]
        prompts = [
            render_turns(to_messages(reading.question, settings, None), template)
            for reading in readings
        ]
        sampler = InProcess(loaded.model, eos_token_ids, sampling)
        groups = respond(prompts, sampler, loaded.tokenizer, eos_token_ids, 1, seed)
        answers: list[LevelAnswer] = []
        for example, reading, [response] in zip(examples, readings, groups, strict=True):
            text = reading.restore(response.text)
            right = is_right(text, example.answer) if example.answer else None
            found = extract(text, response.opens_thinking).answer
            answers.append(LevelAnswer(level, text, response.length or 0, found, right))
        by_level.append(answers)
    return [list(answers) for answers in zip(*by_level, strict=True)]


def shows_the_dial(answers: Sequence[LevelAnswer]) -> bool:
    """Every level is right, and each is shorter than the next."""
    return all(answer.right for answer in answers) and all(
        shorter.tokens < longer.tokens for shorter, longer in pairwise(answers)
    )
