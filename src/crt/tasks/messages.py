"""What is said to the model around a question: turns, instruction and a stated budget."""

from dataclasses import dataclass
from typing import Literal

from crt.errors import ConfigError

Message = dict[str, str]  # role, content
BudgetStyle = Literal["none", "l1-exact", "l1-max", "thinkprune", "number"]

BUDGET_SENTENCES: dict[str, str] = {
    "l1-exact": "Think for {n} tokens.",
    "l1-max": "Think for maximum {n} tokens.",
    "thinkprune": "The output of the assistant should be within {n} tokens.",
    "number": "{n}",
}
IN_SYSTEM = ("thinkprune", "number")


@dataclass(frozen=True)
class PromptSettings:
    """What is said to the model around a question."""

    instruction: str = (
        "{question}\nPlease reason step by step, and put your final answer within \\boxed{}."
    )
    """The user turn."""

    system: str | None = None
    """The system prompt; None leaves it to the template."""

    few_shot: tuple[tuple[str, str], ...] = ()
    """Pairs of a question and a full response, given as earlier turns."""

    enable_thinking: bool | None = None
    """Passed to the template if it is set; Qwen3 reads it."""

    budget: BudgetStyle = "none"
    """How a token budget is stated: L1 ends the user turn, ThinkPrune the system prompt.

    `number` ends the system prompt with the bare number, for a model that cannot read sentences.
    """

    budget_tokens: int | None = None
    """What a stated budget speaks of where the method draws none: measuring and evaluation."""

    plain: str | None = None
    """For a model without a chat template: a text with `{prompt}` in it."""

    special_text: Literal["refuse", "break"] = "refuse"
    """What to do when a question contains the text of a control token."""


def to_messages(question: str, settings: PromptSettings, budget: int | None) -> tuple[Message, ...]:
    """System prompt, earlier turns and the question, with the budget where its method puts it."""
    sentence = _budget_sentence(settings, settings.budget_tokens if budget is None else budget)
    user = settings.instruction.replace("{question}", question)
    system = settings.system
    if settings.budget in IN_SYSTEM:
        system = f"{system} {sentence}" if system else sentence
    elif sentence:
        user = f"{user} {sentence}"
    head = ({"role": "system", "content": system},) if system else ()
    return (*head, *_earlier(settings), {"role": "user", "content": user})


def _budget_sentence(settings: PromptSettings, budget: int | None) -> str:
    if settings.budget == "none":
        if budget is not None:
            raise ConfigError(f"a budget of {budget} tokens, but the prompt's budget is 'none'")
        return ""
    if budget is None or budget < 1:
        raise ConfigError(f"the prompt states a budget ({settings.budget}), which is {budget}")
    return BUDGET_SENTENCES[settings.budget].replace("{n}", str(budget))


def _earlier(settings: PromptSettings) -> tuple[Message, ...]:
    turns: list[Message] = []
    for question, answer in settings.few_shot:
        asked = settings.instruction.replace("{question}", question)
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return tuple(turns)
