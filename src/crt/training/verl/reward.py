"""verl's reward manager: is the response correct? It notes what the run's files need."""

import asyncio
from pathlib import Path
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import (  # pyright: ignore[reportMissingImports]
    RewardManagerBase,
)

from crt.grading.grader import Grader
from crt.run import Run
from crt.sampling.models import load_tokenizer
from crt.sampling.policy import decode_response
from crt.training.verl.data import problem_of
from crt.types import Verdict


class Correctness(RewardManagerBase):
    """1 for a correct response, 0 for any other; the verdict itself goes beside it."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        grading = Run.open(Path(config.crt.run)).config.grading
        self.grader = Grader(grading.workers, grading.deadline_seconds, grading.memory_mb)
        self.words = load_tokenizer(
            Path(config.actor_rollout_ref.model.path),
            config.actor_rollout_ref.model.trust_remote_code,
        )
        self.eos_token_ids = frozenset(config.crt.eos_token_ids)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """verl's form of a reward."""
        item = data[-1]
        tokens = item.batch["responses"].tolist()
        info = item.non_tensor_batch["extra_info"]
        text = decode_response(self.words, tokens, self.eos_token_ids)
        grade = await asyncio.to_thread(
            self.grader.grade_problem, text, problem_of(info), bool(info["opens_thinking"])
        )
        right = float(grade.verdict is Verdict.CORRECT)
        return {
            "reward_score": right,
            "reward_extra_info": {
                "acc": right,
                "verdict": grade.verdict.value,
                "extracted": grade.extracted,
                "text": text,
                "tokens": len(tokens),
                "stop": "eos" if tokens and tokens[-1] in self.eos_token_ids else "length",
            },
        }
