"""The part of vLLM's public interface that crt calls, without a model behind it.

Names, fields and refusals are those that vLLM 0.28.0 was seen to have (`LLM.generate`,
`SamplingParams`, `RequestOutput`, `CompletionOutput`, `Logprob`); what it "says" depends on the
seed alone.
"""

import random
from dataclasses import dataclass, field
from typing import ClassVar


class VLLMValidationError(Exception):
    """What vLLM raises for a request that cannot be."""


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 16
    stop_token_ids: list[int] = field(default_factory=list)
    seed: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if self.temperature == 0 and self.n > 1:
            raise VLLMValidationError(f"n must be 1 when using greedy sampling, got {self.n}.")
        if self.max_tokens < 1:
            raise VLLMValidationError(f"max_tokens must be at least 1, got {self.max_tokens}.")


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = True


@dataclass
class LLM:
    model: str
    dtype: str = "auto"
    max_model_len: int | None = None
    trust_remote_code: bool = False
    enable_prefix_caching: bool | None = None
    logprobs_mode: str = "raw_logprobs"
    distributed_executor_backend: str | None = None
    asked: list[tuple[dict, SamplingParams]] = field(default_factory=list)
    loaded: ClassVar[list] = []  # every engine that was made

    def __post_init__(self) -> None:
        LLM.loaded.append(self)

    def generate(self, prompts, sampling_params, use_tqdm=True):
        """One request a prompt, with its own parameters; the k-th sample has the seed plus k."""
        assert len(prompts) == len(sampling_params)
        self.asked += list(zip(prompts, sampling_params, strict=True))
        for prompt in prompts:
            if self.max_model_len and len(prompt["prompt_token_ids"]) >= self.max_model_len:
                raise VLLMValidationError(
                    f"This model's maximum context length is {self.max_model_len} tokens."
                )
        return [
            RequestOutput(
                str(i), None, prompt["prompt_token_ids"], [said(how, k) for k in range(how.n)]
            )
            for i, (prompt, how) in enumerate(zip(prompts, sampling_params, strict=True))
        ]


def said(how: SamplingParams, index: int) -> CompletionOutput:
    rng = random.Random(0 if how.temperature == 0 else how.seed + index)
    end = how.stop_token_ids[0]
    tokens = [4 + rng.randrange(3) for _ in range(rng.randrange(how.max_tokens + 3))]
    stopped = len(tokens) < how.max_tokens
    tokens = [*tokens, end] if stopped else tokens[: how.max_tokens]
    logprobs = [{token: Logprob(-0.5 * token, 1)} for token in tokens]
    total = sum(-0.5 * token for token in tokens)
    # the token that ends a response is the model's own: then vLLM names no reason
    return CompletionOutput(index, "", tokens, total, logprobs, "stop" if stopped else "length")
