"""The reward function of training: is the response correct?"""

from typing import Any

from crt.data.prompts import Prompt
from crt.grading.grader import Item
from crt.sampling.models import LoadedModel
from crt.sampling.policy import decode_response
from crt.training.context import RunContext
from crt.types import Problem, Verdict


class Correctness:
    """The reward function: is the response correct? It notes what it saw for the run's files."""

    __name__ = "correct"

    def __init__(
        self,
        context: RunContext,
        policy: LoadedModel,
        problems: list[Problem],
        prompts: list[Prompt],
    ) -> None:
        self.context, self.policy = context, policy
        self.opens_thinking = {prompt.problem_id: prompt.opens_thinking for prompt in prompts}
        self.problems = {problem.id: problem for problem in problems}

    def __call__(
        self, completion_ids: Any, problem_id: Any, log_extra: Any, **_: Any
    ) -> list[float | None]:
        """1 for correct, 0 for wrong or no answer, None for what could not be graded."""
        tokenizer, eos_token_ids = self.policy.tokenizer, self.policy.files.eos_token_ids
        texts = [decode_response(tokenizer, ids, eos_token_ids) for ids in completion_ids]
        grades = self.context.grader.grade_many(
            Item(text, self.problems[name], self.opens_thinking[name])
            for text, name in zip(texts, problem_id, strict=True)
        )
        log_extra("problem_id", list(problem_id))
        log_extra("text", texts)
        log_extra("verdict", [grade.verdict.value for grade in grades])
        log_extra("extracted", [grade.extracted for grade in grades])
        return [
            None if grade.verdict is Verdict.UNGRADED else float(grade.verdict is Verdict.CORRECT)
            for grade in grades
        ]
