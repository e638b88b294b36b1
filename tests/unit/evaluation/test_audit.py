"""The audit's figures by hand, and what hostile completions do to them: nothing."""

import json
import math

import pytest

from crt.config import EvaluationConfig, GradingConfig, ModelConfig
from crt.errors import ConfigError
from crt.evaluation import score
from crt.evaluation.audit import (
    MOST_CHARACTERS,
    MOST_SENTENCES,
    Load,
    Reading,
    audit,
    figures,
    find_evaluation,
    has_own_number,
    read_all,
    repeated_share,
    sentence_ends,
    sums,
)
from crt.evaluation.backends import Plan
from crt.types import Problem

QUESTION = "What is 3 times 4?"
RIGHT = "3 x 4 = 12. Wait, let me check. \\boxed{12}!!"  # 11 + 20 + 13 = 44 characters
WRONG = "3 x 4 = 12. No, 7. \\boxed{7}"  # 11 + 7 + 10 = 28 characters


@pytest.fixture
def evaluated(tmp_path):
    """Completions that are graded, as an evaluation in a folder."""

    def make(*responses, problem=None, **settings):
        rows = [{"id": "p", "question": QUESTION, "answer": "12"} | (problem or {})]
        (tmp_path / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        lines = [{"id": "p", **dict(response)} for response in responses]
        file = tmp_path / "mine.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        out = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
        return score(file, [str(tmp_path / "one.jsonl")], out, **settings)

    return make


def response(text, tokens=100, stop="stop"):
    return {"response": text, "tokens": tokens, "stop": stop}


def values(found):
    return {name: value["value"] for name, value in found["figures"]["averages"]["all"].items()}


def only(evaluation, grading=None, measure=None):
    """The reading of the only response."""
    ((reading,),) = read_all(evaluation, grading or GradingConfig(), measure)["one"].values()
    return reading


# ---- By hand


def test_every_figure_of_a_right_and_a_wrong_response(evaluated):
    found = audit(evaluated(response(RIGHT, 40), response(WRONG, 20)))
    figure = values(found)
    assert found["numbers"] == 100
    # the right one has its answer after 11 of 44 characters: 40 · (1 − 1/4) tokens follow
    assert (figure["stated"], figure["tokens_after"]) == (25, 30)
    assert figure["share_after"] == 75
    assert figure["lost"] == 100  # the wrong one had said 12
    assert (figure["len_correct"], figure["len_wrong"]) == (40, 20)
    # the shortest right one has 40 tokens, the mean is 30: longer, for the wrong one is short
    assert (figure["shortest"], figure["mean_of_solved"]) == (40, 30)
    assert figure["shortest_share"] == pytest.approx(400 / 3)
    assert figure["saved_tokens"] == -10
    assert figure["saved"] == pytest.approx(-100 / 3)
    # after whole sentences within 25, 50 and 75 %: right at 11/44, 11/44, 31/44; the wrong one
    # has said nothing by 25 % (11/28 is later), 12 by 50 %, and 7 by 75 % (18/28)
    assert [figure[f"cut_{cut}"] for cut in (25, 50, 75)] == [50, 100, 50]
    # "Wait" and "let me check", in one of two responses of 60 tokens together
    assert figure["doubts"] == pytest.approx(1000 * 2 / 60)
    assert figure["doubted"] == 50
    assert figure["repeated"] == 0
    assert found["by_difficulty"][0] == {
        **{"solved": "up to half", "kind": "all", "value": 30.0, "low": 30.0, "high": 30.0},
        "problems": 1,
    }


def test_the_curve_counts_right_responses_that_have_stated_their_answer(evaluated):
    found = audit(evaluated(response(RIGHT), response("\\boxed{12}")))["stated_by"]
    # at 11/44 = 25 % and at the end
    shares = {row["cut"]: row["share"] for row in found}
    assert (shares[24], shares[25], shares[99], shares[100]) == (0, 50, 50, 100)


def test_shortest_right_and_estimate_over_two_problems():
    def reading(correct, tokens):
        return Reading("text", correct, tokens, math.nan, None)

    solved = [reading(True, 60.0), reading(True, 20.0), reading(False, 10.0)]  # mean 30
    unsolved = [reading(False, 90.0), reading(False, 110.0)]  # mean 100 stays as it is
    figure = figures([[sums(solved), sums(unsolved)]])
    assert figure["shortest"].value == 20 and figure["mean_of_solved"].value == 30
    assert figure["saved_tokens"].value == (10 + 0) / 2
    assert figure["saved"].value == 100 * 10 / 130
    assert "cut_50" not in figure and "share_after" not in figure  # nobody read them


def test_one_response_says_nothing_of_the_shortest(evaluated):
    figure = values(audit(evaluated(response(RIGHT, 40))))
    assert figure["share_after"] == 75
    assert not {"shortest", "shortest_share", "saved"} & figure.keys()


def test_tokens_and_money_of_a_month(evaluated):
    evaluation = evaluated(response(RIGHT, 40), response("\\boxed{12}", 20))
    month = audit(evaluation, month=Load(requests=1000, price=2.0))["month"]
    # 1,000 requests of 30 tokens, each at 2 per million; the shortest right one has 20
    assert month["tokens"]["value"] == 30_000
    assert month["cost"]["value"] == pytest.approx(0.06)
    assert month["saved_tokens"]["value"] == 10_000
    assert month["saved_cost"]["value"] == pytest.approx(0.02)
    assert audit(evaluation)["month"] is None
    with pytest.raises(ConfigError, match="0 or more"):
        Load(requests=-1)
    with pytest.raises(ConfigError, match="0 or more"):
        Load(requests=float("nan"))


def test_lengths_that_are_not_known_are_not_made_up(evaluated):
    found = audit(evaluated({"response": RIGHT}, {"response": WRONG}), month=Load(1000, 1))
    figure = values(found)
    assert figure["cut_50"] == 100 and figure["lost"] == 100 and figure["stated"] == 25
    assert not {"tokens_after", "share_after", "len_correct", "saved", "doubts"} & figure.keys()
    assert found["month"] is None


def test_repeated_sequences_of_words():
    # abcd bcda cdab dabc abcd: four different ones of five
    assert repeated_share("a b c d a b c d") == pytest.approx(0.2)
    assert repeated_share("a b c d e f") == 0
    assert math.isnan(repeated_share("a b c"))


def test_problems_are_resampled_and_data_sets_weigh_the_same():
    def problem(tokens):
        return sums([Reading("t", True, tokens, 0.5, (False, False, False))])

    small, large = [problem(100.0)], [problem(10.0), problem(30.0), problem(20.0)]
    figure = figures([small, large])["tokens_after"]
    assert figure.value == (50 + 10) / 2 and figure.problems == 4
    assert figure.low < figure.value < figure.high
    assert figures([large])["tokens_after"].value == 10


# ---- Where an answer is taken to be


def test_numbers_of_the_question_and_labels_of_steps_are_no_answers(evaluated):
    assert has_own_number(Problem("", QUESTION, "12"))
    assert not has_own_number(Problem("", "From 12.0 take nothing.", "12"))
    assert not has_own_number(Problem("", "Now 1,200 of them", "1200"))
    assert not has_own_number(Problem("", "x?", "\\frac{1}{2}"))
    assert not has_own_number(Problem("", "Which?", "2", options=("1", "2")))
    steps = "Step 12: think.\n12. Then think.\n\\boxed{12}"
    assert only(evaluated(response(steps))).first_right == 1.0
    repeat = {"question": "From 12 take 0.", "answer": "12"}
    assert only(evaluated(response("So 12. \\boxed{12}"), problem=repeat)).first_right == 1.0


def test_a_box_in_the_thinking_counts_and_the_tags_do_not(evaluated):
    text = "<think>\nSo \\boxed{12}.\nAgain.\n</think>\n\\boxed{12}"
    reading = only(evaluated(response(text)))
    assert reading.first_right == pytest.approx(len("<think>\nSo \\boxed{12}.") / len(text))


def test_sentences_end_at_marks_and_lines_and_never_at_a_list_s_number():
    text = "It is 3.5 now. Good!\n1. First\n2. **Second**"
    ends = sentence_ends(text)
    parts = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    assert parts == ["It is 3.5 now.", " Good!", "\n", "1. First\n", "2. **Second**"]
    assert sentence_ends("") == []


def test_a_long_response_is_read_at_so_many_places_and_no_further():
    ends = sentence_ends("Yes. " * 1000)
    assert len(ends) == MOST_SENTENCES and ends[-1] == 5000
    assert sentence_ends("x" * (MOST_CHARACTERS + 5)) == [MOST_CHARACTERS]


@pytest.mark.parametrize("run", ["." * 150_000 + "x", "?!" * 75_000 + "'x", "a" + "\n" * 150_000])
def test_a_response_that_repeats_one_mark_is_read_once(evaluated, run):
    """Each would take minutes if its marks were read again from each of them."""
    reading = only(evaluated(response(run + "is 12. \\boxed{12}")))
    assert reading.first_right == pytest.approx((len(run) + 6) / (len(run) + 17))


def test_places_in_tokens_where_a_tokenizer_tells_them(evaluated):
    def ends(text):  # one token for the first sentence, one for each other character
        return [11, *range(12, len(text) + 1)]

    reading = only(evaluated(response(RIGHT)), measure=ends)
    assert reading.first_right == pytest.approx(1 / 34)


def test_a_verifier_that_runs_code_is_not_asked_at_every_sentence(evaluated, tmp_path):
    log = tmp_path / "asked"
    code = (
        f"def right(response, problem):\n    open({str(log)!r}, 'a').write('x')\n    return True\n"
    )
    (tmp_path / "mine.py").write_text(code)
    grading = GradingConfig(verifier=f"{tmp_path / 'mine.py'}:right")
    evaluation = evaluated(response(RIGHT), response(WRONG), grading=grading)
    figure = values(audit(evaluation, grading))
    assert log.read_text() == "xx"  # the verdicts alone
    assert "cut_50" not in figure and "share_after" not in figure and "saved" in figure


def test_another_grader_than_that_of_the_verdicts_is_said(evaluated):
    evaluation = evaluated(response(RIGHT), grading=GradingConfig(verifier="number"))
    assert any("verifier=number" in sentence for sentence in audit(evaluation)["warnings"])
    assert not audit(evaluation, GradingConfig(verifier="number"))["warnings"]


# ---- What is audited


def test_figures_are_those_of_the_responses_whatever_figures_json_says(evaluated):
    evaluation = evaluated(response(RIGHT, 40))
    found = audit(evaluation)
    evaluation.metrics["averages"].clear()
    assert audit(evaluation) == found and found["metrics"]["averages"]["all"]["len"]["value"] == 40


def test_a_folder_of_several_evaluations_is_refused_with_one_of_them(evaluated, tmp_path):
    evaluated(response(RIGHT))
    series = tmp_path / "series"
    series.mkdir()
    (series / "series.json").write_text("{}")
    with pytest.raises(ConfigError, match="crt eval makes them"):
        find_evaluation(str(series), lambda: pytest.fail("sampled"), None)
    (tmp_path / "out-0").rename(series / "base")
    with pytest.raises(ConfigError, match="name one, such as "):
        find_evaluation(str(series), lambda: pytest.fail("sampled"), None)
    found = find_evaluation(str(series / "base"), lambda: pytest.fail("sampled"), None)
    assert list(found.counts) == ["one"]


def test_a_server_is_sampled_and_audited(serve, problems, tmp_path):
    server = serve()
    model = ModelConfig(name=server.url)
    settings = EvaluationConfig(data=(str(problems),), rollouts=2, max_tokens=50)
    evaluation = find_evaluation(server.url, lambda: Plan(model, settings), tmp_path / "served")
    found = audit(evaluation)
    # "It is \\boxed{1}. 123456": all are right, and right at the end of their first sentence
    assert found["metrics"]["averages"]["all"]["acc"]["value"] == 100
    assert values(found)["share_after"] > 0
    assert len(server.asked) == 12


# ---- Hostile completions

HOSTILE = {
    "ten megabytes": "x" * 10_000_000,
    "ten megabytes of sentences": "12. " * 2_500_000,
    "a terminal's escapes": "\x1b[2J\x1b]0;title\x07 7.",
    "markup": "</script><script>window.hacked=1</script>",
    "huge numbers": "9" * 5000 + ". 1e999999. -1e-999999.",
    "no numbers": "NaN. Infinity. -inf.",
    "open boxes": "\\boxed{" * 20_000,
    "half a surrogate pair and a turned direction": "\ud800 \u202e21.",
    "nothing": "",
    "list numbers": "1. \n" * 50_000,
}


def test_hostile_completions_change_nothing(evaluated):
    plain = values(audit(evaluated(response(RIGHT, 40), response(WRONG, 20))))
    hostile = [response(text) for text in HOSTILE.values()]
    found = audit(evaluated(response(RIGHT, 40), *hostile, response(WRONG, 20)))
    figure = values(found)
    assert figure["tokens_after"] == plain["tokens_after"]  # they are wrong, and have no part in it
    assert figure["len_correct"] == plain["len_correct"]
    assert found["metrics"]["averages"]["all"]["acc"]["value"] == pytest.approx(100 / 12)
    json.dumps(found, allow_nan=False)
