"""Against the base: paired, with counts, certificates and honest gaps."""

import json

import pytest

from crt.algorithm.metrics import zip_ratio
from crt.evaluation import compare, score
from crt.evaluation.metrics import counts_by_dataset
from crt.evaluation.paired import (
    MATCHED_ROLLOUTS,
    compare_all,
    compare_pairs,
    length_matched,
    uncertifiable,
)
from tests.support.counts import count_row


def tally(rows, data="a"):
    """rows: problem -> (correct of 4, mean tokens), or None for tokens."""
    return counts_by_dataset(
        count_row(data, p, 4, 4, c, 0, None if t is None else 4 * t, 0, 1)
        for p, (c, t) in rows.items()
    )[data]


BASE = tally({"p": (4, 100), "q": (2, 200), "r": (2, 300), "s": (0, 400)})
OURS = tally({"p": (3, 50), "q": (2, 100), "r": (4, 150), "s": (0, 500)})


def test_changes_savings_and_scores():
    found = compare_pairs([(OURS, BASE)])
    # accuracies: base (100 + 50 + 50 + 0)/4 = 50, ours (75 + 50 + 100 + 0)/4 = 56.25
    assert found.changes["acc"].value == pytest.approx(6.25)
    # lengths: base 250, ours 200
    assert found.changes["len"].value == -50
    assert found.values["saved"].value == pytest.approx(20.0)
    assert found.tokens == (3200, 4000)
    # ΔL = 0.2, ΔA = 6.25/50 = 0.125 ≥ 0: 0.2 + 3 · 0.125 for both
    assert found.values["aes1"].value == pytest.approx(0.575)
    assert found.values["aes2"].value == pytest.approx(0.575)


def test_transitions_with_counts():
    found = compare_pairs([(OURS, BASE)])
    # p, q and r got shorter: p lost, q kept, r gained; s got longer and does not count
    assert found.transitions is not None
    assert (found.transitions.decreased, found.transitions.preserved) == (1, 1)
    assert found.transitions.improved == 1
    assert found.values["ad"].value == pytest.approx(100 / 3)
    assert found.values["ad"].problems == 3


def test_a_lost_point_costs_more_in_the_second_score():
    worse = tally({"p": (2, 50), "q": (2, 100), "r": (2, 150), "s": (0, 200)})
    found = compare_pairs([(worse, BASE)])
    # accuracy 37.5 against 50: ΔA = −0.25; length 125 against 250: ΔL = 0.5
    assert found.values["aes1"].value == pytest.approx(0.5 - 5 * 0.25)
    assert found.values["aes2"].value == pytest.approx(0.5 - 10 * 0.25)


def test_problems_are_paired_by_id_and_not_by_place():
    turned = OURS.select(["s", "r", "q", "p"])
    assert (
        compare_pairs([(OURS, BASE)]).as_json()
        == compare_all({"a": turned}, {"a": BASE})["sets"]["a"].as_json()
    )


def test_without_token_counts_only_what_needs_them_is_absent():
    silent = tally({"p": (3, None), "q": (2, 100), "r": (4, 150), "s": (0, 500)})
    found = compare_pairs([(silent, BASE)])
    assert not found.values and found.transitions is None
    assert found.changes["acc"].value == pytest.approx(6.25)
    assert found.certificate is not None


def test_a_base_that_solves_nothing_has_no_score():
    nothing = tally({"p": (0, 100), "q": (0, 200)})
    some = tally({"p": (1, 50), "q": (1, 100)})
    assert "aes1" not in compare_pairs([(some, nothing)]).values


def test_the_certificate_passes_when_the_data_show_it():
    same = {f"p{i}": (i % 5, 100) for i in range(300)}
    found = compare_pairs([(tally(same), tally(same))])
    assert found.certificate is not None and found.certificate.passed
    assert found.as_json()["certificate"]["held"] is True  # the key that files have
    worse = {p: (max(0, c - 1), t) for p, (c, t) in same.items()}
    lost = compare_pairs([(tally(worse), tally(same))])
    assert lost.certificate is not None and not lost.certificate.passed


def test_the_certificate_of_an_average_rests_on_every_set():
    # 300 problems without a difference are enough, 30 beside them are not: −1/31 of one set alone
    many = tally({f"p{i}": (4, 100) for i in range(300)}, "gsm8k")
    few = tally({f"p{i}": (4, 100) for i in range(30)}, "math500")
    found = compare_pairs([(many, many), (few, few)]).certificate
    assert found is not None and not found.passed and found.problems == 330
    assert found.difference == 0 and found.lower_bound < -0.03
    # the harmonic mean of 300 and 30 is 54.5; 299 are needed: 330 · 299 / 54.5
    assert found.needed == pytest.approx(330 * 299 / (600 / 11), abs=1)


def test_too_few_problems_are_named_before_anything_is_sampled():
    (sentence,) = uncertifiable({"aime24": 30, "gsm8k": 1319}, rollouts=16)
    assert "aime24 (30)" in sentence and "gsm8k" not in sentence
    assert "299 problems" in sentence and "16 rollouts" in sentence
    assert uncertifiable({"gsm8k": 299}, rollouts=16) == []


def test_macro_counts_are_pooled_and_averages_are_not():
    many = {f"g{i}": (4, 100) for i in range(3)}
    pairs = [
        (tally(dict.fromkeys(many, (3, 50)), "gsm8k"), tally(many, "gsm8k")),
        (tally({"m": (4, 50)}, "math500"), tally({"m": (2, 100)}, "math500")),
    ]
    found = compare_pairs(pairs)
    assert found.transitions is not None
    assert (found.transitions.decreased, found.transitions.improved) == (3, 1)
    # gsm8k −25, math500 +50: the average is +12.5
    assert found.changes["acc"].value == pytest.approx(12.5)


TEXT = "First 2 + 3 = 5. Wait, let me check: 2 + 3 = 5. Yes, so the answer is \\boxed{5}"
SHORT = "2 + 3 = \\boxed{5}"  # 17 bytes


def scored(folder, name, responses):
    """Two problems; problem p has these responses, q the base's."""
    problems = folder / "two.jsonl"
    rows = [{"id": key, "question": f"{key}?", "answer": "5"} for key in ("p", "q")]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / f"{name}.jsonl"
    rows = [{"id": "p", "response": text, "tokens": 9, "stop": "eos"} for text in responses]
    rows += [{**row, "id": "q", "response": TEXT} for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return score(file, [str(problems)], folder / name, name=name, max_tokens=99)


def test_each_response_is_paired_with_the_base_s_of_the_same_number(tmp_path):
    base = scored(tmp_path, "base", [TEXT, "another " + TEXT])
    short = scored(tmp_path, "short", [SHORT, SHORT])
    matched = length_matched(short, base)["two"].matched
    # both responses to p are cut to 17 bytes; to q all give the base's own text
    cut = zip_ratio(TEXT[:17]) + zip_ratio(("another " + TEXT)[:17])
    assert matched[0].tolist() == pytest.approx([2 * zip_ratio(SHORT), cut, 2])
    assert matched[1].tolist() == pytest.approx([2 * zip_ratio(TEXT), 2 * zip_ratio(TEXT), 2])


def test_only_the_first_responses_are_packed_again(tmp_path):
    base = scored(tmp_path, "base", [TEXT] * 6)
    same = scored(tmp_path, "same", [TEXT] * 6)
    assert length_matched(same, base)["two"].matched[:, 2].tolist() == [MATCHED_ROLLOUTS] * 2


def test_the_comparison_shows_it(tmp_path):
    base, short = scored(tmp_path, "base", [TEXT]), scored(tmp_path, "short", [SHORT])
    tables = {table.key: table for table in compare([base, short], anyway=True).tables}
    table = tables["redundancy_two"]
    place = [column.key for column in table.columns].index("r_zip_matched_base")
    rows = dict(table.rows)
    assert rows["base"][place].interval is None
    ours = rows["short"][place - 1].interval.value
    assert ours == pytest.approx((zip_ratio(SHORT) + zip_ratio(TEXT)) / 2)
    value = rows["short"][place].interval.value
    assert value == pytest.approx((zip_ratio(TEXT[:17]) + zip_ratio(TEXT)) / 2)
    assert "Equal length" in table.notes[0]


def test_without_the_texts_it_is_not_known(tmp_path):
    base, short = scored(tmp_path, "base", [TEXT]), scored(tmp_path, "short", [SHORT])
    (tmp_path / "base" / "rollouts.jsonl.zst").unlink()
    assert not length_matched(short, base)["two"].matched.any()
    table = next(t for t in compare([base, short], anyway=True).tables if "redun" in t.key)
    assert table.notes == ()
