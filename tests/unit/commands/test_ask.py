"""crt ask: an answer as it is generated, or a polite sentence."""

import argparse
from pathlib import Path

import pytest

from crt.cli import main
from crt.commands import ask
from crt.errors import ConfigError, DataError, EngineError
from crt.pocket.language import EXAMPLE
from crt.recipes import load_recipe
from crt.run import Run


def asked(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ask.add_arguments(parser)
    return parser.parse_args(words)


def test_answers_a_question_of_its_language(capsys):
    assert ask.run(asked(EXAMPLE)) == 0
    said = capsys.readouterr().out
    assert said.startswith("<think>\n")
    assert said.index("</think>") < said.index("\\boxed{")
    assert said.rstrip().endswith("tokens)")


def test_the_seed_decides_the_answer(capsys):
    told = []
    for seed in ("1", "1", "2"):
        ask.run(asked(EXAMPLE, "--seed", seed, "--temperature", "1"))
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != told[2]


def test_prints_while_it_generates(monkeypatch):
    flushed: list[str] = []
    monkeypatch.setattr("builtins.print", lambda *text, **how: flushed.append("".join(text)))
    ask.run(asked(EXAMPLE))
    assert len(flushed) > 10  # piece by piece, not at the end
    assert "</think>" in "".join(flushed)


@pytest.mark.parametrize("question", ["What is the capital of France?", "", "💥 \x00 <end>", "12"])
def test_declines_in_one_sentence_outside_its_language(capsys, question):
    with pytest.raises(DataError, match="outside the pocket model's language") as refused:
        ask.run(asked(question))
    assert "\n" not in str(refused.value)
    assert capsys.readouterr().out == ""


def test_a_refusal_exits_with_2(capsys):
    assert main(["ask", "Why is the sky blue?"]) == 2
    assert "outside the pocket model's language" in capsys.readouterr().err


def test_answers_in_the_words_of_the_question(capsys):
    ask.run(asked("Wendy has 9 kittens. She finds 3 more. How many kittens does Wendy have?"))
    said = capsys.readouterr().out
    assert "cards" not in said
    assert "\\boxed{12}" in said


def test_says_when_it_was_cut_off(capsys):
    ask.run(asked(EXAMPLE, "--tokens", "3"))
    assert "(3 tokens, cut off)" in capsys.readouterr().out


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no model"):
        ask.run(asked(EXAMPLE, "--model", str(tmp_path)))


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError):
        ask.run(asked(EXAMPLE, "--temperature", "-1"))


def test_a_run_answers_with_its_recommended_checkpoint(tmp_path):
    config = load_recipe(Path("pocket"))
    run = Run.create(tmp_path / "run", config)
    with pytest.raises(EngineError, match="recommends no checkpoint yet"):
        ask.run(asked(EXAMPLE, "--model", str(run.path)))
    run.set_progress(recommended=42)
    assert ask.model_folder(str(run.path)) == run.checkpoint(42)
