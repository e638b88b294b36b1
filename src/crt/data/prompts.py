"""From a problem to messages, text and token ids, through the model's own chat template."""

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from crt.errors import ConfigError, DataError, first_line
from crt.grading.extract import CLOSE_THINKING, OPEN_THINKING
from crt.types import Problem

Message = dict[str, str]  # role, content
BudgetStyle = Literal["none", "l1-exact", "l1-max", "thinkprune", "number"]

BUDGET_SENTENCES: dict[str, str] = {
    "l1-exact": "Think for {n} tokens.",
    "l1-max": "Think for maximum {n} tokens.",
    "thinkprune": "The output of the assistant should be within {n} tokens.",
    "number": "{n}",
}
IN_SYSTEM = ("thinkprune", "number")
TEMPLATE_SECONDS = 5.0  # a sound template takes milliseconds

_PROBE = "How many are 1 and 1?"
_CONTROL = re.compile(r"[<\[].+[>\]]")


@dataclass(frozen=True)
class PromptSettings:
    """What the prompt has around the question."""

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
    """The stated budget where the method draws none: in measurements and evaluation."""

    plain: str | None = None
    """For a model without a chat template: a text with `{prompt}` in it."""

    special_text: Literal["refuse", "break"] = "refuse"
    """What to do when a question contains the text of a control token."""


def to_messages(question: str, settings: PromptSettings, budget: int | None) -> tuple[Message, ...]:
    """System prompt, earlier turns and the question, with the budget where its method puts it."""
    sentence = _budget_sentence(settings, settings.budget_tokens if budget is None else budget)
    system, user = settings.system or "", settings.instruction.replace("{question}", question)
    if settings.budget in IN_SYSTEM:
        system = f"{system} {sentence}" if system else sentence
    elif sentence:
        user = f"{user} {sentence}"
    turns = [("system", system)] if system else []
    for earlier, answer in settings.few_shot:
        turns.append(("user", settings.instruction.replace("{question}", earlier)))
        turns.append(("assistant", answer))
    return tuple({"role": role, "content": text} for role, text in (*turns, ("user", user)))


def _budget_sentence(settings: PromptSettings, budget: int | None) -> str:
    if settings.budget == "none":
        if budget is not None:
            raise ConfigError(f"a budget of {budget} tokens, but the prompt's budget is 'none'")
        return ""
    if budget is None or budget < 1:
        raise ConfigError(f"the prompt states a budget ({settings.budget}), which is {budget}")
    return BUDGET_SENTENCES[settings.budget].replace("{n}", str(budget))


@dataclass(frozen=True)
class Template:
    """A tokenizer's template with our settings, checked once, ready to render."""

    tokenizer: Any  # of transformers, which is not loaded here
    settings: PromptSettings
    control_tokens: tuple[str, ...]
    hash: str
    """Of template and settings: part of cache keys and manifests."""
    notes: tuple[str, ...]
    """What a user should know about this template, one sentence each."""


@dataclass(frozen=True)
class Prompt:
    """What was sent for one problem; `opens_thinking`: the response starts inside `<think>`."""

    problem_id: str
    messages: tuple[Message, ...]
    text: str
    token_ids: tuple[int, ...]
    opens_thinking: bool
    budget: int | None = None


def prepare(
    tokenizer: Any, settings: PromptSettings, seconds: float = TEMPLATE_SECONDS
) -> Template:
    """Checks template and settings once, with a probe that may not take long."""
    _check(tokenizer, settings)
    template = Template(
        tokenizer, settings, control_tokens(tokenizer), _hash(tokenizer, settings), ()
    )
    if settings.plain is not None:
        return template
    probe = to_messages(_PROBE, settings, None if settings.budget == "none" else 1)
    with_prompt = _with_deadline(seconds, lambda: _text(template, probe))
    without = _with_deadline(seconds, lambda: _text(template, probe, generation_prompt=False))
    _after_user_turn(with_prompt, probe[-1]["content"])
    notes: list[str] = []
    if with_prompt == without:
        notes.append(
            "the chat template ignores add_generation_prompt: see that its text ends right"
        )
    if settings.enable_thinking is not None and "enable_thinking" not in str(
        tokenizer.chat_template
    ):
        notes.append("the chat template does not read enable_thinking: the setting has no effect")
    return replace(template, notes=tuple(notes))


def render(problem: Problem, template: Template, budget: int | None = None) -> Prompt:
    """One problem's prompt; `budget` is the number of tokens that the prompt states."""
    tokens = [token for token in template.control_tokens if token in problem.question]
    if tokens and template.settings.special_text == "refuse":
        raise DataError(
            f"the question of {problem.id!r} contains {tokens[0]!r}, which is a control token "
            "here: remove the problem, or set special_text = 'break' to put a space in it"
        )
    question = _break_control(problem.question, template)
    messages = to_messages(question, template.settings, budget)
    text = _text(template, messages)
    tail = _after_user_turn(text, messages[-1]["content"])
    ids = _token_ids(text, template)
    return Prompt(problem.id, messages, text, ids, opens_thinking(tail), budget)


def render_turns(turns: Sequence[Message], template: Template) -> Prompt:
    """A conversation from outside; what would become a control token in it is broken up."""
    safe = tuple({**turn, "content": _break_control(turn["content"], template)} for turn in turns)
    text = _text(template, safe)
    last_turn = safe[-1]["content"].strip()
    tail = text.rpartition(last_turn)[2] if last_turn else text
    return Prompt("", safe, text, _token_ids(text, template), opens_thinking(tail))


def opens_thinking(tail: str) -> bool:
    """Whether the text after the user's turn leaves a `<think>` open."""
    return tail.rfind(OPEN_THINKING) > tail.rfind(CLOSE_THINKING)


def control_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Texts the tokenizer turns into control tokens wherever they stand, a question included."""
    marked = {token for token in tokenizer.get_added_vocab() if _CONTROL.fullmatch(token)}
    return tuple(sorted({*tokenizer.all_special_tokens, *marked}))


def _break_control(text: str, template: Template) -> str:
    """The text with a space after the first letter of every control token: it stays text."""
    for token in template.control_tokens:
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


def _text(
    template: Template, messages: Sequence[Message], *, generation_prompt: bool = True
) -> str:
    settings = template.settings
    if settings.plain is not None:
        joined = "\n\n".join(message["content"] for message in messages)
        return settings.plain.replace("{prompt}", joined)
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": generation_prompt}
    if settings.enable_thinking is not None:
        options["enable_thinking"] = settings.enable_thinking
    try:
        turns = [dict(message) for message in messages]
        return template.tokenizer.apply_chat_template(turns, **options)
    except TimeoutError:
        raise
    except Exception as error:  # a template is a program: it may raise anything
        roles = ", ".join(message["role"] for message in messages)
        raise ConfigError(
            f"the chat template cannot render the turns {roles}: {first_line(error)}; change "
            "system or few_shot, or set plain"
        ) from None


def _token_ids(text: str, template: Template) -> tuple[int, ...]:
    """The text's tokens; a template writes its own BOS, a plain text gets the tokenizer's."""
    tokenizer = template.tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False)
    bos = tokenizer.bos_token_id
    if template.settings.plain is not None and bos is not None and ids[:1] != [bos]:
        adds_bos = tokenizer.encode("", add_special_tokens=True)[:1] == [bos]
        ids = [bos, *ids] if adds_bos else ids
    return tuple(ids)


def _after_user_turn(text: str, user_turn: str) -> str:
    before, _, tail = text.rpartition(user_turn.strip())
    if not before and not text.startswith(user_turn.strip()):
        raise ConfigError("the chat template leaves out or changes the user's turn: set plain")
    return tail


def _with_deadline(seconds: float, action: Callable[[], str]) -> str:
    """The action's result, or an error once its Python code has run for too long.

    Watching each line works in any thread and without a signal; only the probe pays for it.
    """
    end = time.monotonic() + seconds

    def watch(frame: Any, event: str, argument: Any) -> Any:
        if time.monotonic() > end:
            raise TimeoutError
        return watch

    previous = sys.gettrace()
    sys.settrace(watch)
    try:
        return action()
    except TimeoutError:
        raise ConfigError(
            f"the chat template did not finish in {seconds:g} s: mend it, or set plain"
        ) from None
    finally:
        sys.settrace(previous)


def _check(tokenizer: Any, settings: PromptSettings) -> None:
    if settings.instruction.count("{question}") != 1:
        raise ConfigError(
            f"instruction {settings.instruction!r} must have {{question}} in it, once"
        )
    if settings.plain is not None and settings.plain.count("{prompt}") != 1:
        raise ConfigError(f"plain {settings.plain!r} must have {{prompt}} in it, once")
    if settings.plain is None and not tokenizer.chat_template:
        raise ConfigError(
            "the model's tokenizer has no chat template: set plain, such as '{prompt}\\n\\n', or "
            "use the model's instruct version"
        )


def _hash(tokenizer: Any, settings: PromptSettings) -> str:
    described = {
        "settings": asdict(settings),
        "template": None if settings.plain is not None else tokenizer.chat_template,
        "sentence": BUDGET_SENTENCES.get(settings.budget),
        "special": tokenizer.all_special_tokens,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
