"""A client's messages as plain turns, or put as the levels were measured."""

from crt.data.prompts import Message, PromptSettings, to_messages
from crt.errors import CrtError
from crt.serve.faults import ApiError
from crt.serve.protocol import ChatRequest

ROLES = {"developer": "system"}  # OpenAI's newer name for it


def turns_of(request: ChatRequest, measured_as: PromptSettings | None) -> list[Message]:
    """Role and text of every turn; with settings, the measured prompt around the one question."""
    turns = [
        {"role": ROLES.get(message.role, message.role), "content": message.text}
        for message in request.messages
    ]
    if turns[-1]["role"] == "assistant":
        raise ApiError(400, "The last message must not be the assistant's.", param="messages")
    if measured_as is None:
        return turns
    if len(turns) != 1 or turns[0]["role"] != "user":
        raise ApiError(
            400,
            "measured_prompt puts one question as the levels were measured: send one user message.",
            param="measured_prompt",
        )
    try:
        return list(to_messages(turns[0]["content"], measured_as, None))
    except CrtError as error:
        raise ApiError(400, f"The measured prompt cannot be used: {error}") from None
