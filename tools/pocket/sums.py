"""What the worlds of long sums have in common: worked answers in pieces, drills, batches."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedTokenizerFast

from crt.pocket import sums
from crt.pocket.sums import Sum, SumsWorld, written
from crt.pocket.tokenizer import prompt
from crt.types import Problem
from tools.pocket.vocabulary import END
from tools.pocket.worlds import Example

# A text in pieces. A result is what follows “=”; a slip is a wrong one, which is to be seen, but
# never learned.
Kind = Literal["text", "result", "slip"]
Pieces = list[tuple[str, Kind]]

BATCH = 32
DRILL_CHARACTERS = 190  # of one row: about a hundred tokens


@dataclass(frozen=True)
class Mixture:
    """What a batch consists of, up to a point of the supervised phase."""

    until: float  # between 0 and 1; above 1 for what comes after the phase
    drill: float  # part of the batch that is bare arithmetic
    drilled: tuple[float, ...]  # weights of the kinds of drill
    styles: tuple[float, ...]  # shares of the styles


@dataclass(frozen=True)
class Course:
    """How a world of sums is taught: its styles' answers, its drills, its mixtures in order."""

    trained: SumsWorld  # whose problems it learns from: those of its world, or more
    styles: Sequence[str]
    answer: Callable[[Sum, str, random.Random], Pieces]
    drills: Sequence[Callable[[Sum, random.Random], Pieces]]
    mixtures: Sequence[Mixture]

    def corpus(self, count: int, seed: int) -> Iterator[str]:
        """Texts to learn the tokenizer's merges from."""
        rng = random.Random(f"corpus-{seed}")
        for _, item in zip(range(count), sums.exercises(self.trained, "train", rng), strict=False):
            yield sums.problem(self.trained, item, rng).question + "\n"
            yield text_of(self.answer(item, rng.choice(self.styles), rng))

    def training_problem(self, rng: random.Random) -> Problem:
        """A problem of the training split."""
        return sums.problem(self.trained, self.exercise(rng), rng)

    def exercise(self, rng: random.Random) -> Sum:
        """A sum of the training split."""
        return next(sums.exercises(self.trained, "train", rng))

    def batch(
        self, tokenizer: PreTrainedTokenizerFast, progress: float, rng: random.Random
    ) -> list[Example]:
        """The examples of one step, shortest first."""
        mixture = next((m for m in self.mixtures if progress < m.until), self.mixtures[-1])
        count = round(mixture.drill * BATCH)
        found = [
            encode(tokenizer, self.drill(mixture, rng), learned=("result",)) for _ in range(count)
        ]
        found += [self.worked(tokenizer, mixture, rng) for _ in range(BATCH - count)]
        return sorted(found, key=lambda example: len(example[0]))

    def drill(self, mixture: Mixture, rng: random.Random) -> Pieces:
        """Working without problems, of which the results are to be learned."""
        pieces: Pieces = []
        while sum(len(piece) for piece, _ in pieces) < DRILL_CHARACTERS:
            make = rng.choices(self.drills, mixture.drilled)[0]
            pieces += [(" ", "text"), *make(self.exercise(rng), rng)]
        return pieces

    def worked(
        self, tokenizer: PreTrainedTokenizerFast, mixture: Mixture, rng: random.Random
    ) -> Example:
        """A problem with its answer, of which the answer is to be learned."""
        item = self.exercise(rng)
        asked = prompt(tokenizer, sums.problem(self.trained, item, rng).question)
        style = rng.choices(self.styles, mixture.styles)[0]
        reply: Pieces = [*self.answer(item, style, rng), (END, "text")]
        given = tokenizer.encode(asked, add_special_tokens=False)
        tokens, learned = encode(tokenizer, reply)
        return given + tokens, [False] * len(given) + learned


def text_of(pieces: Pieces) -> str:
    """The pieces as one text."""
    return "".join(piece for piece, _ in pieces)


def encode(
    tokenizer: PreTrainedTokenizerFast,
    pieces: Pieces,
    learned: Sequence[Kind] = ("text", "result"),
) -> Example:
    """The tokens of the whole text, and which of them begin in a piece that is to be learned."""
    marks = [kind in learned for piece, kind in pieces for _ in piece]
    encoded = tokenizer(text_of(pieces), add_special_tokens=False, return_offsets_mapping=True)
    return encoded["input_ids"], [marks[start] for start, _ in encoded["offset_mapping"]]


def equation(terms: Sequence[int], result: int | None = None) -> Pieces:
    """A sum with its result, or with a wrong one."""
    right = sum(terms)
    wrong = result is not None and result != right
    value = result if wrong else right
    return [(f"{written(tuple(terms))} =", "text"), (f" {value}", "slip" if wrong else "result")]


def closed(thought: Pieces, result: int) -> Pieces:
    """A thought with the answer behind it."""
    return [*thought, (f"\n</think>\n\\boxed{{{result}}}", "text")]
