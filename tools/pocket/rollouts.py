"""Rollouts of the pocket model: problems in, graded responses out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from crt.grading.grader import Grader
from crt.pocket.tokenizer import prompt
from crt.sampling.hf import Sample, sample
from crt.sampling.policy import Response, decode_response, grade_responses
from crt.types import Problem, Rollout, Verdict
from tools.pocket.model import CAP


@dataclass(frozen=True)
class Sampled:
    """Responses to some problems, problem by problem; `token_ids` leave out a forced first word."""

    rollouts: list[Rollout]
    prompts: list[list[int]]
    token_ids: list[list[int]]


def is_correct(rollout: Rollout) -> bool:
    """Whether the grader found the answer right."""
    return rollout.verdict is Verdict.CORRECT


def sample_rollouts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    problems: Sequence[Problem],
    num_samples: int,
    generator: torch.Generator,
    first_word: str = "",
) -> Sampled:
    """Graded responses at temperature 1, begun with a word or freely; the word counts as length."""
    forced = tokenizer.encode(first_word, add_special_tokens=False) if first_word else []
    prompts = [
        tokenizer.encode(prompt(tokenizer, problem.question), add_special_tokens=False)
        for problem in problems
    ]
    eos_token_ids = [model.config.eos_token_id]
    groups = sample(
        model,
        [prompt + forced for prompt in prompts],
        num_samples,
        CAP - len(forced),
        eos_token_ids,
        generator=generator,
    )

    def response(drawn: Sample) -> Response:
        token_ids = forced + drawn.tokens
        text = decode_response(tokenizer, token_ids, eos_token_ids)
        return Response(text, len(token_ids), drawn.stop, opens_thinking=True)

    responses = [[response(drawn) for drawn in group] for group in groups]
    with Grader(workers=1) as grader:
        rollouts = grade_responses(problems, responses, grader)
    return Sampled(
        rollouts,
        [prompt for prompt in prompts for _ in range(num_samples)],
        [drawn.tokens for group in groups for drawn in group],
    )
