"""crt ask --levels: one question to every level of a family, or a question of its evaluation."""

import json
import shutil

import pytest

from crt.cli import main
from crt.levels.family import Family
from tests.support.levels import QUESTION, level, plain_family, pocket, weights_hash


@pytest.fixture
def family(tmp_path):
    """Two levels with the pocket model's weights."""
    shutil.copytree(pocket(), tmp_path / "short")
    same = weights_hash(pocket())
    made = [level("concise", 57.0, model="short", folder=True, hash=same)]
    content = plain_family([*made, level("full", 129.0, hash=same)])
    Family.model_validate(content)
    (tmp_path / "family.json").write_text(json.dumps(content))
    return tmp_path


def test_every_level_answers_the_question(family, capsys):
    assert main(["ask", "--levels", str(family), QUESTION]) == 0
    printed = capsys.readouterr().out
    first, second = printed.index("concise, "), printed.index("full, ")
    assert printed.startswith(QUESTION) and first < second
    # the same weights: the same answer, nothing saved
    assert printed.count("\\boxed{301}") == 2 and "0 %" in printed


def test_what_cannot_be_asked_is_one_sentence(family, capsys):
    assert main(["ask", "--levels", str(family), "Why is the sky blue?"]) == 2
    assert "outside the pocket model's language" in capsys.readouterr().err
    assert main(["ask"]) == 2
    assert "give a question, or --levels RUN" in capsys.readouterr().err
    assert main(["ask", "--levels", str(family)]) == 2  # it has no evaluation
    assert "Traceback" not in capsys.readouterr().err
    shutil.rmtree(family / "short")
    assert main(["ask", "--levels", str(family), QUESTION]) == 2
    assert "the model of the level concise, is not there" in capsys.readouterr().err
