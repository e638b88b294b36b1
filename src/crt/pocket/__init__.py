"""The pocket models: miniature reasoners for seeing, testing and teaching the method.

May import: nothing.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crt.errors import DataError, did_you_mean
from crt.types import Problem

if TYPE_CHECKING:
    from crt.pocket.language import Reading

DEFAULT = "pocket"
WORLDS = (DEFAULT, "pocket:chunks", "pocket:checks")  # each a model and a data set
SPLITS = ("train", "validation", "test")
ASSETS = Path(__file__).resolve().parent.parent / "assets"


class QuestionError(DataError):
    """A question that a pocket model cannot be asked: why, and what it can be asked."""


def is_world(name: str) -> bool:
    """Whether a model or data set is named as a world of the pocket models, known or not."""
    return re.fullmatch(r"pocket(:[A-Za-z][\w-]*)?", name) is not None


def check_world(name: str) -> str:
    """The world's name; a sentence where there is no such world."""
    if name not in WORLDS:
        raise DataError(f"there is no world {name!r}. {did_you_mean(name, WORLDS)}")
    return name


def path(world: str = DEFAULT) -> Path:
    """The folder of a world's weights and tokenizer, in Hugging Face format."""
    return ASSETS / check_world(world).replace(":", "-")


def level_of(problem: Problem) -> int:
    """The difficulty of a problem of any world, from 1."""
    return int(problem.source.rsplit("-", 1)[1])


def make_problems(
    world: str, split: str, count: int, seed: int, levels: Collection[int] = ()
) -> list[Problem]:
    """`count` different problems of a world's split, of some levels only if they are given."""
    check_world(world)
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}: one of {', '.join(SPLITS)}")
    if world == DEFAULT:
        from crt.pocket.problems import LEVELS, problems

        highest, drawn = max(LEVELS), problems(split, seed)
    else:
        from crt.pocket import sums

        made = sums.WORLDS[world]
        highest, drawn = len(made.levels), sums.problems(made, split, seed)
    if unknown := sorted(set(levels) - set(range(1, highest + 1))):
        raise DataError(f"{world} has no level {unknown[0]}: its levels are 1 to {highest}")
    different = islice(_without_repeats(drawn), 8 * count + 64)
    of_levels = (item for item in different if not levels or level_of(item) in levels)
    chosen = list(islice(of_levels, count))
    if len(chosen) < count:
        raise DataError(f"{world} has too few problems of these levels for {count} in {split}")
    return chosen


def _without_repeats(problems: Iterable[Problem]) -> Iterator[Problem]:
    seen: set[str] = set()
    for problem in problems:
        if problem.id not in seen:
            seen.add(problem.id)
            yield problem


def world_of(folder: Path) -> str | None:
    """The world a model or a checkpoint of it belongs to, or None if it is no pocket model."""
    from crt.pocket.tokenizer import INSTRUCTION

    try:
        config = json.loads((folder / "config.json").read_bytes())
        tokenizer = (folder / "tokenizer.json").read_text()
    except (OSError, ValueError):
        return None
    # the instruction is one token of the pocket models' vocabulary and of no other
    if json.dumps(INSTRUCTION)[1:-1] not in tokenizer:
        return None
    return config.get("pocket_world", DEFAULT)


def read_question(world: str | None, question: str) -> "Reading":
    """The question as a world's model is asked it; `QuestionError` if it cannot be asked.

    Another model is asked the question as it stands.
    """
    from crt.pocket import sums
    from crt.pocket.language import Outside, Reading, apology, read

    if world == DEFAULT:
        try:
            return read(question)
        except Outside as reason:
            raise QuestionError(apology(str(reason))) from None
    if world in sums.WORLDS and (sentence := sums.outside(sums.WORLDS[world], question)):
        raise QuestionError(sentence)
    return Reading(question, {})


def load(folder: Path) -> tuple[Any, Any]:
    """A model and its tokenizer in float32, ready to sample, from the folder alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} holds no model: give a folder with config.json and weights")
    logging.disable_progress_bar()  # a bar for a few megabytes only disturbs what is printed
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype="float32")
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)
