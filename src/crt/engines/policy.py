"""A model that answers problems: prompts in, graded rollouts out."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from crt.engines.rollouts import generator_for
from crt.engines.sampler import sample
from crt.tasks.grade import Grader, item_of
from crt.tasks.prompts import Template, render
from crt.types import Problem, Rollout

ROWS_AT_ONCE = 256  # rollouts in one batch of the sampler


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0


class Policy:
    """A loaded model with its prompts and the grader, drawing with the fast sampler."""

    def __init__(
        self,
        model: PreTrainedModel,
        ends: Iterable[int],
        template: Template,
        grader: Grader,
        sampling: Sampling,
    ) -> None:
        self.model, self.template, self.grader, self.sampling = model, template, grader, sampling
        self.ends = frozenset(ends)

    def rollouts(self, problems: Sequence[Problem], copies: int, *seeds: int) -> list[Rollout]:
        """`copies` graded responses to each problem, in order; the seeds decide what is drawn."""
        size = max(1, ROWS_AT_ONCE // copies)
        was_training = self.model.training
        self.model.eval()
        drawn: list[Rollout] = []
        for first in range(0, len(problems), size):
            drawn += self._some(problems[first : first + size], copies, (*seeds, first))
        self.model.train(was_training)
        return drawn

    def _some(
        self, problems: Sequence[Problem], copies: int, seeds: tuple[int, ...]
    ) -> list[Rollout]:
        prompts = [render(problem, self.template) for problem in problems]
        groups = sample(
            self.model,
            [prompt.token_ids for prompt in prompts],
            copies,
            self.sampling.max_tokens,
            self.ends,
            generator=generator_for(*seeds),
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
        )
        asked = [(problems[i], prompts[i], one) for i, group in enumerate(groups) for one in group]
        texts = [response_text(self.template.tokenizer, one.tokens, self.ends) for *_, one in asked]
        grades = self.grader.grade_many(
            item_of(text, problem, prompt.opens_thinking)
            for text, (problem, prompt, _) in zip(texts, asked, strict=True)
        )
        return [
            Rollout(problem.id, text, len(one.tokens), one.stop, grade.verdict, grade.extracted)
            for (problem, _, one), text, grade in zip(asked, texts, grades, strict=True)
        ]


def response_text(tokenizer: Any, tokens: Sequence[int], ends: Collection[int]) -> str:
    """What was written, without the token that ended it; `<think>` stays, whatever kind it is."""
    kept = list(tokens[:-1] if tokens and tokens[-1] in ends else tokens)
    return tokenizer.decode(kept, skip_special_tokens=False)
