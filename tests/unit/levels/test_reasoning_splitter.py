"""Thinking and answer are told apart however the tokens fall, and stops cut the answer alone."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from crt.levels.answers import ReasoningSplitter, Vocabulary, overlap


@pytest.fixture(scope="module")
def letters():
    """A tokenizer with a token for every byte, so that marks and letters are cut anywhere."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def read(letters, text, **settings):
    """Thinking, answer, and the splitter, after one token a byte and an end."""
    end = letters.get_vocab_size()
    splitter = ReasoningSplitter(Vocabulary(letters, frozenset({end})), **settings)
    pieces = [splitter.feed([token]) for token in letters.encode(text).ids]
    pieces.append(splitter.feed([end], "stop"))
    thought, output = map("".join, zip(*pieces, strict=True))
    return thought, output, splitter


OPENED = {"phase": "thinking"}  # the prompt did
ANSWER = {"phase": "answer"}


@pytest.mark.parametrize(
    ("text", "settings", "thought", "output"),
    [
        ("<think>I add.</think>3", {}, "I add.", "3"),
        ("<thing> is no mark", {}, "", "<thing> is no mark"),
        ("<thi", {}, "", "<thi"),
        ("7 × 6 = 42 🙂</think>π", OPENED, "7 × 6 = 42 🙂", "π"),  # letters of several tokens
        ("a  b\n\nc</think>d", OPENED, "a  b\n\nc", "d"),
        ("price EN", {**ANSWER, "stops": ("END",)}, "", "price EN"),  # a stop that only begins
        # a stop in the thinking means nothing
        ("1\n\n2</think>yes\n\nno", {**OPENED, "stops": ("\n\n",)}, "1\n\n2", "yes"),
    ],
)
def test_thinking_and_answer(letters, text, settings, thought, output):
    assert read(letters, text, **settings)[:2] == (thought, output)


def test_tokens_of_thinking_are_counted(letters):
    thought, output, splitter = read(letters, "\nI add.\n</think>\n\n\\boxed{3}", **OPENED)
    assert (thought, output) == ("I add.", "\\boxed{3}")
    # "\nI add.\n</think>" is 16 letters, "\n\n\\boxed{3}" 11, and one token ends it
    assert (splitter.reasoning_tokens, splitter.tokens) == (16, 28)
    assert read(letters, "<think>I add.</think>3")[2].reasoning_tokens == 21
    thought, output, splitter = read(letters, "I add </thi", **OPENED)  # never closed
    assert (thought, output, splitter.reasoning_tokens) == ("I add </thi", "", 12)


def test_a_stop_cuts_the_answer(letters):
    _, output, splitter = read(letters, "one. END two", **ANSWER, stops=("END", "two"))
    assert output == "one. " and splitter.tokens == 8  # up to the stop


def test_overlap():
    assert overlap("abc</thi", "</think>") == 5
    assert overlap("abc", "</think>") == 0
    assert overlap("</think>", "</think>") == 0  # that is the mark, not its beginning
