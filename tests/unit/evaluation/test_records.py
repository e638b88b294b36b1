"""Records survive a kill, and damage is found."""

import pytest
import zstandard

from crt.errors import DataError
from crt.evaluation.records import Record, clean, packed, read_records
from crt.evaluation.store import Store
from crt.types import Verdict


def record(rollout, response="so \\boxed{1}"):
    return Record("a", "p", rollout, response, 3, "eos", Verdict.CORRECT, "1", "equal", 0.5)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + zstandard.decompress(packed([record(0)])))
    assert list(read_records(path)) == [record(0)]


def test_there_and_back_with_odd_text(tmp_path):
    odd = [record(0, 'line\nbreak "quote" \x00 \u2028 é 数 😀'), record(1, "")]
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(packed(odd))
    assert list(read_records(path)) == odd


def test_half_a_surrogate_pair_becomes_a_question_mark():
    assert clean("a\ud83db") == "a?b"


def test_frames_one_after_the_other_are_one_file(tmp_path):
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(packed([record(0)]) + packed([record(1), record(2)]))
    assert [each.rollout for each in read_records(path)] == [0, 1, 2]


def test_a_file_cut_anywhere_is_damaged_not_shorter(tmp_path):
    path = tmp_path / "r.jsonl.zst"
    first, second = packed([record(0)]), packed([record(1)])
    for cut in range(1, len(first) + len(second)):
        path.write_bytes((first + second)[:cut])
        if cut == len(first):  # whole frames: the number of rows and the checksum tell
            continue
        with pytest.raises(DataError, match=r"r\.jsonl\.zst is damaged"):
            list(read_records(path))


def test_a_flipped_bit_is_found(tmp_path):
    path = tmp_path / "r.jsonl.zst"
    whole = packed([record(i) for i in range(20)])
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 16
        path.write_bytes(bytes(flipped))
        try:
            found = list(read_records(path))
        except DataError as error:
            assert "r.jsonl.zst" in str(error)
        else:
            assert found == [record(i) for i in range(20)]  # a bit that does not matter


def test_a_line_that_is_no_rollout_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"data": "a"}\n')
    with pytest.raises(DataError, match="line 1 is not a rollout"):
        list(read_records(path))


def test_a_damaged_part_is_sampled_again_and_said_so(tmp_path):
    store = Store(tmp_path)
    store.keep("000-0", [record(0)])
    store.keep("000-1", [record(1)])
    store.keep("000-2", [record(2)])
    part = tmp_path / "parts" / "000-1.jsonl.zst"
    part.write_bytes(part.read_bytes()[:-3])
    (tmp_path / "parts" / "000-2.jsonl.zst").write_bytes(b"")
    (tmp_path / "parts" / ".unfinished-1-000-3.jsonl.zst").write_bytes(b"half")
    whole, damaged = store.done({"000-0": 1, "000-1": 1, "000-2": 1, "000-3": 1})
    assert whole == {"000-0"}
    assert len(damaged) == 2 and all("sampled again" in sentence for sentence in damaged)
