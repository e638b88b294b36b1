"""The page: whole in one file, inert, and honest about what it leaves out."""

import base64
import json
import re
import zlib
from datetime import UTC, datetime

import pytest

from crt.report import summary
from crt.report.answers import HEAD, TAIL, shortened, spaced
from crt.report.page import drawings, page
from crt.report.sources import gather

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
    "{{payload}}{{script}} <!-- \u202e \\boxed{1}"
)


def made(*places, **options) -> str:
    material = gather(places)
    return page(material, drawings(material), NOW, **options)


def payload(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', text, re.S)
    return json.loads(found[1])


def chunk(text: str, number: int) -> dict:
    found = re.search(rf'id="chunk-{number}">(.*?)</script>', text)
    return json.loads(zlib.decompress(base64.b64decode(found[1]), -15))


def test_nothing_is_loaded_from_anywhere(run_with_series):
    text = made(run_with_series)
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "default-src 'none'" in text


def test_only_our_two_scripts_may_run(run_with_series):
    text = made(run_with_series)
    policy = re.search(r'content="(default-src[^"]*)"', text)[1]
    assert policy.count("sha256-") == 2
    assert "script-src 'sha256-" in policy and "unsafe-eval" not in policy
    assert re.findall(r"<script>", text) == ["<script>"]


def test_hostile_text_stays_text(evaluated, tmp_path):
    said = [[(HOSTILE, 9, True), (HOSTILE, 8, False)]]
    evaluated(tmp_path / "a<b>", said, questions=[HOSTILE])
    evaluated(tmp_path / "b", said, questions=[HOSTILE])
    text = made(tmp_path / "a<b>", tmp_path / "b")
    assert "window.hacked" not in re.sub(r'<script type="application/json".*?</script>', "", text)
    assert text.count("</script>") == 4  # the payload, one packed question, the library, ours
    assert "a&lt;b&gt;" in text and "<b>a<b>" not in text
    (first,) = payload(text)["explorer"]["lineups"][0]["questions"]
    assert first["text"].startswith("</script><script>") and "⟨U+202E⟩" in first["text"]
    answer = chunk(text, 0)["columns"][0][0]
    assert "".join(piece for _, piece in answer["pieces"]) == HOSTILE.replace("\u202e", "⟨U+202E⟩")


def test_the_first_the_shortest_right_and_a_wrong_answer_are_there(evaluated, answers, tmp_path):
    mine = [[("first", 50, True), ("short", 20, True), ("bad", 10, False), ("long", 90, True)]]
    evaluated(tmp_path / "a", mine)
    evaluated(tmp_path / "b", [[("sole", 5, True)] * 4])
    text = made(tmp_path / "a", tmp_path / "b")
    ours, theirs = chunk(text, 0)["columns"]
    said = {kind: a["pieces"][0][1] for a in ours for kind in a["kinds"]}
    assert said == {"sample": "first", "shortest": "short", "wrong": "bad"}
    assert [a["kinds"] for a in theirs] == [["sample", "shortest"]]  # once, in two roles


def test_what_does_not_fit_is_left_out_and_said(evaluated, answers, tmp_path):
    right = [2] * 40
    for name, tokens in (("a", 300), ("b", 100)):
        evaluated(tmp_path / name, answers(tokens, right))
    full = payload(made(tmp_path / "a", tmp_path / "b"))["explorer"]["lineups"][0]
    small = payload(made(tmp_path / "a", tmp_path / "b", budget=3000))["explorer"]["lineups"][0]
    assert all(q["chunk"] is not None for q in full["questions"])
    kept = [q for q in small["questions"] if q["chunk"] is not None]
    assert 0 < len(kept) < 40 and len(small["questions"]) == 40


def test_the_middle_of_a_very_long_answer_goes():
    text = "a" * HEAD + "b" * 1000 + "c" * TAIL
    assert shortened([[0, text]]) == [[0, "a" * HEAD], [3, "1000"], [0, "c" * TAIL]]
    parts = [[0, "a" * HEAD], [1, "b" * 400], [0, "b" * 600], [2, "c" * TAIL]]
    assert shortened(parts) == [[0, "a" * HEAD], [3, "1000"], [2, "c" * TAIL]]
    assert shortened([[0, "short"]]) == [[0, "short"]]


def test_columns_are_spaced_with_both_ends():
    assert spaced(20, 9) == [0, 2, 5, 7, 10, 12, 14, 17, 19]
    assert spaced(3, 9) == [0, 1, 2]


def test_three_sentences_with_the_figures(run_with_series):
    first, second, third = summary.sentences(gather([run_with_series]))
    assert first == (
        "small trains pocket on pocket:40 with CRT in two stages, seed 3: 6 steps, Stage I for 4 "
        "of them; the recommended checkpoint is that of step 6 (the shortest that kept the "
        "reference's accuracy on the validation problems)."
    )
    # 9 of 12 problems always right, 3 in one of two: 87.5 %
    assert second == (
        "On 12 problems (24 responses) step-0006 takes 40 tokens where base takes 100, 60 % fewer, "
        "and is right in 87.5 % instead of 87.5 % (+0.0 points, 95 % interval +0.0 to +0.0)."
    )
    assert third.startswith("The certificate that accuracy lost at most 1 point is not passed")
    assert "needs about 299 problems" in third and "has 12" in third


def test_of_several_runs_the_best_is_spoken_of(make_run, evaluated, answers, tmp_path):
    for name, tokens in (("slow", 90), ("quick", 40)):
        run = make_run(tmp_path / name, name=name)
        evaluated(run.path / "evaluations" / "base", answers(100, [2] * 12))
        evaluated(run.path / "evaluations" / "end", answers(tokens, [2] * 12))
    told = summary.sentences(gather([tmp_path / "slow", tmp_path / "quick"]))
    assert told[0] == "2 runs: quick, slow; 2 of them are going on."
    # 60 of 100 tokens saved, nothing lost
    start = "quick has the highest AES2, +0.60: on 12 problems (24 responses) end takes 40 tokens"
    assert told[1].startswith(start)


def test_a_certificate_that_is_not_passed(evaluated, answers, tmp_path):
    evaluated(tmp_path / "base", answers(100, [2] * 12))
    evaluated(tmp_path / "worse", answers(50, [2] * 6 + [1] * 6))
    found = summary.certificate(gather([tmp_path / "base", tmp_path / "worse"]))
    assert found.state == "open" and "is not passed" in found.sentence


def test_nothing_is_claimed_before_anything_is_measured(make_run, tmp_path):
    material = gather([make_run(tmp_path / "run", steps=1).path])
    told = summary.sentences(material)
    assert "1 of at most 40 steps so far" in told[0]
    assert told[1] == "No checkpoint has been measured yet."
    assert "Nothing was evaluated on held-out problems yet" in told[2]
    assert summary.certificate(material).state == "none"
    assert "no certificate yet" in page(material, drawings(material), NOW)


def test_rollouts_of_training_can_be_read_before_an_evaluation(make_run, tmp_path):
    text = made(make_run(tmp_path / "run").path)
    (lineup,) = payload(text)["explorer"]["lineups"]
    assert [column["name"] for column in lineup["columns"]] == [f"step {s}" for s in range(1, 7)]
    first = lineup["questions"][0]
    # t0 is answered twice a step, one of them right
    assert first["text"] == "t0" and first["acc"] == [50] * 6 and first["len"] == [21] * 6
    assert chunk(text, first["chunk"])["columns"][5][0]["pieces"][0][1].startswith("Step 6 says")


@pytest.mark.parametrize("refresh", [0, 7])
def test_a_page_says_whether_it_refreshes_itself(run_with_series, refresh):
    text = made(run_with_series, refresh=refresh)
    assert payload(text)["refresh"] == refresh
    assert f'data-state="{"live" if refresh else "still"}"' in text
