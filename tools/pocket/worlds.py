"""What the building machinery needs to know of a world, and the worlds there are."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from transformers import PreTrainedTokenizerFast

from crt.pocket import check_world
from crt.types import Problem

Example = tuple[list[int], list[bool]]  # tokens, and which of them are to be learned
MODULES = {
    "pocket": "tools.pocket.default",
    "pocket:chunks": "tools.pocket.chunks",
    "pocket:checks": "tools.pocket.checks",
}


@dataclass(frozen=True)
class Style:
    """A way of working: the word that begins its answers, and its name in the card."""

    first_word: str
    title: str


@dataclass(frozen=True)
class Shape:
    """The size of a model."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4


@dataclass(frozen=True)
class Plan:
    """How much is done of each phase, and on how many problems the result is measured."""

    supervised: int = 2600
    second: int = 0  # supervised steps of a second cycle of the learning rate
    polish: int = 50
    problems: int = 1200
    copies: int = 4


@dataclass(frozen=True)
class World:
    """One kind of problems and ways of working, and how a model of it is made."""

    name: str
    title: str  # of its card
    about: str  # what its card says first
    levels: Mapping[int, str]  # what is asked
    styles: Mapping[str, Style]
    corpus: Callable[[int, int], Iterator[str]]  # count, seed: texts for the tokenizer
    training_problem: Callable[[random.Random], Problem]
    batch: Callable[[PreTrainedTokenizerFast, float, random.Random], list[Example]]
    """Examples at a point of the supervised phase below 1; at 1, those of what comes after it."""
    start: str = ""  # the world whose finished model it begins with
    plan: Plan = Plan()
    shape: Shape = Shape()


def find_world(name: str) -> World:
    """The world of this name; `chunks` is short for `pocket:chunks`."""
    full = name if name in MODULES or ":" in name else f"pocket:{name}"
    world = import_module(MODULES[check_world(full)]).WORLD
    assert isinstance(world, World)
    return world
