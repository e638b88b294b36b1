"""The agent loop verl asks for each response: the recipe's own prompt, as token ids."""

from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (  # pyright: ignore[reportMissingImports]
    AgentLoopBase,
    AgentLoopOutput,
)
from verl.utils.profiler import simple_timer  # pyright: ignore[reportMissingImports]


class PromptAgent(AgentLoopBase):
    """One response to the prompt of the data file.

    verl would render the messages with its own tokenizer and settings; the reference was asked
    with these ids.
    """

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """verl's form of a response."""
        info = kwargs["extra_info"]
        prompt = [int(token) for token in info["prompt_ids"]]
        max_tokens = int(info["max_tokens"])  # training and validation have caps of their own
        measured: dict[str, Any] = {}
        with simple_timer("generate_sequences", measured):
            output = await self.server_manager.generate(
                request_id=uuid4().hex,
                prompt_ids=prompt,
                sampling_params={
                    **sampling_params,
                    "max_tokens": max_tokens,
                    "stop_token_ids": list(self.config.crt.eos_token_ids),
                },
            )
        tokens = list(output.token_ids)[:max_tokens]
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=tokens,
            response_mask=[1] * len(tokens),
            response_logprobs=list(output.log_probs)[:max_tokens] if output.log_probs else None,
            num_turns=2,
            metrics=measured,
            extra_fields={**output.extra_fields, "turn_scores": [], "tool_rewards": []},
        )
