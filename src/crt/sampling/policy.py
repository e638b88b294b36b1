"""A model that answers problems: prompts in, responses or graded rollouts out."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crt.data.prompts import Prompt, Template, render
from crt.grading.grader import Grader, item_of
from crt.sampling.base import Sampler
from crt.types import Problem, Rollout


@dataclass(frozen=True, slots=True)
class Response:
    """What was written, in how many tokens (the one that ended it counts), and how it stopped."""

    text: str
    tokens: int
    stop: Literal["eos", "length"]


def respond(
    prompts: Sequence[Prompt],
    sampler: Sampler,
    tokenizer: Any,
    ends: Collection[int],
    copies: int,
    seed: int,
) -> list[list[Response]]:
    """`copies` responses to each prompt."""
    groups = sampler([prompt.token_ids for prompt in prompts], copies, seed)
    return [
        [
            Response(
                response_text(tokenizer, one.tokens, ends),
                # an engine may keep the ending token to itself: it was generated all the same
                len(one.tokens) + (one.stop == "eos" and not set(one.tokens[-1:]) & set(ends)),
                one.stop,
            )
            for one in group
        ]
        for group in groups
    ]


class Policy:
    """A sampler with its prompts and the grader."""

    def __init__(
        self, sampler: Sampler, ends: Collection[int], template: Template, grader: Grader
    ) -> None:
        self.sampler, self.template, self.grader = sampler, template, grader
        self.ends = frozenset(ends)

    def rollouts(self, problems: Sequence[Problem], copies: int, *seeds: int) -> list[Rollout]:
        """`copies` graded responses to each problem, in order; the seeds decide what is drawn.

        What is drawn for a problem does not depend on the problems asked with it.
        """
        prompts = [render(problem, self.template) for problem in problems]
        longest = max((len(prompt.token_ids) for prompt in prompts), default=0)
        size = max(1, self.sampler.rows(longest) // copies)
        drawn: list[Rollout] = []
        for first in range(0, len(problems), size):
            some = slice(first, first + size)
            drawn += self._some(problems[some], prompts[some], copies, mixed(*seeds))
        return drawn

    def _some(
        self, problems: Sequence[Problem], prompts: Sequence[Prompt], copies: int, seed: int
    ) -> list[Rollout]:
        groups = respond(prompts, self.sampler, self.template.tokenizer, self.ends, copies, seed)
        told = [
            (problem, prompt, one)
            for problem, prompt, group in zip(problems, prompts, groups, strict=True)
            for one in group
        ]
        grades = self.grader.grade_many(
            item_of(one.text, problem, prompt.opens_thinking) for problem, prompt, one in told
        )
        return [
            Rollout(problem.id, one.text, one.tokens, one.stop, grade.verdict, grade.extracted)
            for (problem, _, one), grade in zip(told, grades, strict=True)
        ]


def mixed(*seeds: int) -> int:
    """One seed of 63 bits from several, another for every combination."""
    return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> np.uint64(1))


def response_text(tokenizer: Any, tokens: Sequence[int], ends: Collection[int]) -> str:
    """What was written, without the token that ended it; `<think>` stays, whatever kind it is."""
    kept = list(tokens[:-1] if tokens and tokens[-1] in ends else tokens)
    return tokenizer.decode(kept, skip_special_tokens=False)
