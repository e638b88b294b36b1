"""How many of a response's tokens are thinking, and which of them the model made."""

import pytest

from crt.sampling.policy import made_by_model, thinking_length
from crt.types import Rollout, Verdict


class Letters:
    """A token per letter; `marked` has the end of thinking as one token, 1000."""

    unk_token_id = 0

    def __init__(self, marked: bool) -> None:
        self.marked = marked

    def convert_tokens_to_ids(self, token):
        return 1000 if self.marked else 0

    def decode(self, ids):
        return "".join("</think>" if i == 1000 else chr(i) for i in ids)

    def encode(self, text):
        parts = text.split("</think>") if self.marked else [text]
        ids = [[ord(letter) for letter in part] for part in parts]
        return [token for part in ids for token in [*part, 1000]][:-1]


@pytest.mark.parametrize("marked", [True, False])
def test_up_to_the_last_mark(marked):
    tokenizer = Letters(marked)
    end = 1 if marked else len("</think>")
    ids = tokenizer.encode("ab</think>cd</think>efg")
    assert thinking_length(tokenizer, ids) == 4 + 2 * end
    assert thinking_length(tokenizer, tokenizer.encode("ab</think>"), opened=True) == 2 + end


@pytest.mark.parametrize("marked", [True, False])
def test_without_a_mark(marked):
    tokenizer = Letters(marked)
    ids = tokenizer.encode("abc")
    assert thinking_length(tokenizer, ids) == 0  # the model does not think
    assert thinking_length(tokenizer, ids, opened=True) == 3  # it never ended
    assert thinking_length(tokenizer, tokenizer.encode("<think>ab")) == 9


def test_what_a_tool_wrote_is_nobodys_length():
    whole = Rollout("p", "text", 8, "eos", Verdict.CORRECT, thinking=6)
    # six of eight are the model's, four of them before the end of the thinking
    own = made_by_model(whole, [1, 1, 0, 0, 1, 1, 1, 1])
    assert (own.length, own.thinking) == (6, 4)
    unmarked = Rollout("p", "text", 3, "eos", Verdict.CORRECT)
    assert made_by_model(unmarked, [1, 0, 1]).thinking is None
