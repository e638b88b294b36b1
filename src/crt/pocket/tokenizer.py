"""The prompt that the pocket models have learned."""

from typing import Any

# One token, because every prompt of the product's default set-up carries it.
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


def prompt(tokenizer: Any, question: str) -> str:
    """The user turn of the product's default prompt as text, up to the opened `<think>` block."""
    turn = {"role": "user", "content": f"{question}\n{INSTRUCTION}"}
    return str(tokenizer.apply_chat_template([turn], tokenize=False, add_generation_prompt=True))
