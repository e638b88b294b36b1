from dataclasses import asdict
from pathlib import Path

import numpy as np

from crt.algorithm.statistics import non_inferiority, problems_needed
from crt.cli import main
from crt.demo import certificate_sentence
from crt.recipes import load_recipe


def test_the_demo_shows_every_method(capsys):
    assert main(["demo", "--tabular", "--seed", "2"]) == 0
    shown = capsys.readouterr().out
    for name in ("base", "length only", "primal-dual", "CRT, Stage I", "CRT, both stages"):
        assert name in shown
    assert "Stage II, goal of each step" in shown


def sentence(problems):
    """Of a policy that answers as the base does."""
    found = non_inferiority(np.ones(problems), np.ones(problems), 0.01)
    return certificate_sentence({**asdict(found), "held": found.passed})


def test_the_demo_says_how_many_problems_a_certificate_needs():
    # 0.05^(1/100) − 1 is −3 points, 0.05^(1/400) − 1 is −0.7
    assert sentence(100) == (
        "Certificate: accuracy is +0.0 points against the base, with 95 % confidence not below "
        "-3.0; within 1 point: not passed. To certify an equally good policy within 1 point needs "
        "about 299 problems (80 % power); this evaluation has 100."
    )
    assert sentence(400).endswith("not below -0.7; within 1 point: passed.")
    assert certificate_sentence({"held": False}) == "Certificate: no problem was graded."


def test_the_demo_evaluates_enough_problems_to_certify_every_checkpoint():
    config = load_recipe(Path("pocket"))
    problems = int(config.evaluation.data[0].partition(":")[2])
    checkpoints = config.schedule.steps // config.schedule.save_every + 1  # and Stage I's end
    needed = problems_needed(0.01, level=1 - 0.05 / checkpoints)
    assert needed is not None and problems >= needed
