"""R_zip at equal length: of two responses to a problem the longer one is cut to the shorter."""

import json

import pytest

from crt.algorithm.metrics import zip_ratio
from crt.evaluation import compare, score
from crt.evaluation.matched import MOST_ROLLOUTS, length_matched

BASE = "First 2 + 3 = 5. Wait, let me check: 2 + 3 = 5. Yes, so the answer is \\boxed{5}"
SHORT = "2 + 3 = \\boxed{5}"  # 17 bytes


def scored(folder, name, responses):
    """Two problems; problem p has these responses, q the base's."""
    problems = folder / "two.jsonl"
    rows = [{"id": key, "question": f"{key}?", "answer": "5"} for key in ("p", "q")]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / f"{name}.jsonl"
    rows = [{"id": "p", "response": text, "tokens": 9, "stop": "eos"} for text in responses]
    rows += [{**row, "id": "q", "response": BASE} for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return score(file, [str(problems)], folder / name, name=name, max_tokens=99)


def test_each_response_is_paired_with_the_base_s_of_the_same_number(tmp_path):
    base = scored(tmp_path, "base", [BASE, "another " + BASE])
    short = scored(tmp_path, "short", [SHORT, SHORT])
    matched = length_matched(short, base)["two"].matched
    # both responses to p are cut to 17 bytes; to q all give the base's own text
    cut = zip_ratio(BASE[:17]) + zip_ratio(("another " + BASE)[:17])
    assert matched[0].tolist() == pytest.approx([2 * zip_ratio(SHORT), cut, 2])
    assert matched[1].tolist() == pytest.approx([2 * zip_ratio(BASE), 2 * zip_ratio(BASE), 2])


def test_only_the_first_responses_are_packed_again(tmp_path):
    base = scored(tmp_path, "base", [BASE] * 6)
    same = scored(tmp_path, "same", [BASE] * 6)
    assert length_matched(same, base)["two"].matched[:, 2].tolist() == [MOST_ROLLOUTS] * 2


def test_the_comparison_shows_it(tmp_path):
    base, short = scored(tmp_path, "base", [BASE]), scored(tmp_path, "short", [SHORT])
    tables = {table.key: table for table in compare([base, short], anyway=True).tables}
    table = tables["redundancy_two"]
    place = [column.key for column in table.columns].index("r_zip_matched_base")
    rows = dict(table.rows)
    assert rows["base"][place].interval is None
    ours = rows["short"][place - 1].interval.value
    assert ours == pytest.approx((zip_ratio(SHORT) + zip_ratio(BASE)) / 2)
    value = rows["short"][place].interval.value
    assert value == pytest.approx((zip_ratio(BASE[:17]) + zip_ratio(BASE)) / 2)
    assert "Equal length" in table.notes[0]


def test_without_the_texts_it_is_not_known(tmp_path):
    base, short = scored(tmp_path, "base", [BASE]), scored(tmp_path, "short", [SHORT])
    (tmp_path / "base" / "rollouts.jsonl.zst").unlink()
    assert length_matched(short, base)["two"].matched is None
    table = next(t for t in compare([base, short], anyway=True).tables if "redun" in t.key)
    assert table.notes == ()
