"""The one place that samples, decodes and grades: problems in, graded rollouts out."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crt.data.prompts import Prompt, Template, render
from crt.grading.extract import CLOSE_THINKING, OPEN_THINKING
from crt.grading.grader import Grader, Item
from crt.sampling.base import Sampler, Seed, hash_seed
from crt.types import Problem, Rollout, Stop


@dataclass(frozen=True, slots=True)
class Response:
    """A response before it is graded; None is what its source does not say."""

    text: str
    length: int | None  # generated tokens, the one that ended it included
    stop: Stop | None
    opens_thinking: bool = False  # the prompt ended inside <think>
    thinking: int | None = None  # of its tokens, up to the end of the thinking


class Policy:
    """A model that answers problems: its sampler, its prompts and the grader."""

    def __init__(
        self,
        sampler: Sampler,
        eos_token_ids: Collection[int],
        template: Template,
        grader: Grader,
    ) -> None:
        self.sampler, self.template, self.grader = sampler, template, grader
        self.eos_token_ids = frozenset(eos_token_ids)

    def rollouts(
        self,
        problems: Sequence[Problem],
        num_samples: int,
        *seeds: int,
        tell: Callable[[int], None] = lambda answered: None,
    ) -> list[Rollout]:
        """`num_samples` graded responses per problem, in order; the seeds decide what is drawn.

        What is drawn for a problem does not depend on the problems asked with it. `tell` is called
        with the number of problems that are answered, at first with 0.
        """
        prompts = [render(problem, self.template) for problem in problems]
        longest = max((len(prompt.token_ids) for prompt in prompts), default=0)
        size = max(1, self.sampler.batch_size(longest) // num_samples)
        seed = mix_seeds(*seeds)
        own = [hash_seed(seed, problem.id) for problem in problems]
        rollouts: list[Rollout] = []
        for first in range(0, len(problems), size):
            tell(first)
            part = slice(first, first + size)
            groups = respond(
                prompts[part],
                self.sampler,
                self.template.tokenizer,
                self.eos_token_ids,
                num_samples,
                own[part],
            )
            rollouts += grade_responses(problems[part], groups, self.grader)
        return rollouts


def respond(
    prompts: Sequence[Prompt],
    sampler: Sampler,
    tokenizer: Any,
    eos_token_ids: Collection[int],
    num_samples: int,
    seed: Seed,
) -> list[list[Response]]:
    """`num_samples` responses per prompt, sampled together and decoded."""
    groups = sampler([prompt.token_ids for prompt in prompts], num_samples, seed)
    return [
        [
            Response(
                decode_response(tokenizer, sample.tokens, eos_token_ids),
                response_length(sample.tokens, sample.stop, eos_token_ids),
                sample.stop,
                prompt.opens_thinking,
                thinking_length(tokenizer, sample.tokens, prompt.opens_thinking),
            )
            for sample in group
        ]
        for prompt, group in zip(prompts, groups, strict=True)
    ]


def grade_responses(
    problems: Sequence[Problem], groups: Sequence[Sequence[Response]], grader: Grader
) -> list[Rollout]:
    """The responses to each problem with their verdicts, in order."""
    pairs = [
        (problem, index, response)
        for problem, group in zip(problems, groups, strict=True)
        for index, response in enumerate(group)
    ]
    grades = grader.grade_many(
        Item(response.text, problem, response.opens_thinking) for problem, _, response in pairs
    )
    return [
        Rollout(
            problem.id,
            response.text,
            response.length,
            response.stop,
            grade.verdict,
            grade.extracted,
            reason=grade.reason,
            dataset=problem.source,
            index=index,
            thinking=response.thinking,
        )
        for (problem, index, response), grade in zip(pairs, grades, strict=True)
    ]


def decode_response(
    tokenizer: Any, token_ids: Sequence[int], eos_token_ids: Collection[int]
) -> str:
    """The text without the token that ended it; `<think>` stays, special token or not."""
    ended = bool(token_ids) and token_ids[-1] in eos_token_ids
    return tokenizer.decode(list(token_ids[:-1] if ended else token_ids), skip_special_tokens=False)


def thinking_length(tokenizer: Any, token_ids: Sequence[int], opened: bool = False) -> int:
    """Tokens up to the last `</think>`, which counts; 0 if the model marks no thinking.

    Thinking that is not closed is all there is. `opened`: the prompt ended inside `<think>`.
    """
    end = tokenizer.convert_tokens_to_ids(CLOSE_THINKING)
    if end is not None and end != tokenizer.unk_token_id and end in token_ids:
        return len(token_ids) - list(reversed(token_ids)).index(end)

    def closed(count: int) -> int:
        return tokenizer.decode(list(token_ids[:count])).count(CLOSE_THINKING)

    text = tokenizer.decode(list(token_ids))
    if total := text.count(CLOSE_THINKING):  # a vocabulary without the marker spells it out
        return bisect_left(range(len(token_ids)), total, key=closed)
    return len(token_ids) if opened or OPEN_THINKING in text else 0


def made_by_model(rollout: Rollout, mask: Sequence[int]) -> Rollout:
    """The rollout with the tokens that a tool or an environment wrote (0 in the mask) left out."""
    thinking = None if rollout.thinking is None else sum(mask[: rollout.thinking])
    return replace(rollout, length=sum(mask), thinking=thinking)


def response_length(token_ids: Sequence[int], stop: Stop, eos_token_ids: Collection[int]) -> int:
    """Generated tokens. An engine may keep the ending token to itself: it was generated too."""
    kept_back = stop == "eos" and not (token_ids and token_ids[-1] in eos_token_ids)
    return len(token_ids) + kept_back


def mix_seeds(*seeds: int) -> int:
    """One seed of 63 bits from several, another for every combination."""
    return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> np.uint64(1))
