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


def test_a_prompt_that_opened_the_thinking(letters):
    thought, output, splitter = read(letters, "\nI add.\n</think>\n\n\\boxed{3}", phase="thinking")
    assert (thought, output) == ("I add.", "\\boxed{3}")
    # "\nI add.\n</think>" is 16 letters, "\n\n\\boxed{3}" 11, and one token ends it
    assert (splitter.reasoning_tokens, splitter.tokens) == (16, 28)


def test_a_response_that_opens_it_itself(letters):
    thought, output, splitter = read(letters, "<think>I add.</think>3")
    assert (thought, output, splitter.reasoning_tokens) == ("I add.", "3", 21)


def test_a_response_that_does_not_think(letters):
    assert read(letters, "<thing> is no mark")[:2] == ("", "<thing> is no mark")
    assert read(letters, "<thi")[:2] == ("", "<thi")


def test_thinking_that_is_never_closed(letters):
    thought, output, splitter = read(letters, "I add </thi", phase="thinking")
    assert (thought, output, splitter.reasoning_tokens) == ("I add </thi", "", 12)


def test_letters_of_several_tokens(letters):
    assert read(letters, "7 × 6 = 42 🙂</think>π", phase="thinking")[:2] == ("7 × 6 = 42 🙂", "π")


def test_spaces_inside_the_thinking_stay(letters):
    assert read(letters, "a  b\n\nc</think>d", phase="thinking")[0] == "a  b\n\nc"


def test_a_stop_cuts_the_answer(letters):
    _, output, splitter = read(letters, "one. END two", phase="answer", stops=("END", "two"))
    assert output == "one. " and splitter.tokens == 8  # up to the stop


def test_a_stop_in_the_thinking_means_nothing(letters):
    text = "first\n\nthen</think>yes\n\nno"
    thought, output, _ = read(letters, text, phase="thinking", stops=("\n\n",))
    assert (thought, output) == ("first\n\nthen", "yes")


def test_a_stop_that_only_begins_is_told(letters):
    assert read(letters, "price EN", phase="answer", stops=("END",))[1] == "price EN"


def test_overlap():
    assert overlap("abc</thi", "</think>") == 5
    assert overlap("abc", "</think>") == 0
    assert overlap("</think>", "</think>") == 0  # that is the mark, not its beginning
