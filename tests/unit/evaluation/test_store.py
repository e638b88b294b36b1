"""Rollouts survive a kill, damage is found, and a manifest says what an evaluation rests on."""

import json
from copy import deepcopy

import pytest
import zstandard

from crt.errors import DataError
from crt.evaluation.store import (
    Store,
    identity_difference,
    load,
    pack,
    read_lines,
    read_rollouts,
)
from crt.types import Rollout, Verdict


def rollout(index, text="so \\boxed{1}"):
    correct = Verdict.CORRECT
    return Rollout("p", text, 3, "eos", correct, "1", reason="equal", dataset="a", index=index)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + zstandard.decompress(pack([rollout(0)])))
    assert list(read_rollouts(path)) == [rollout(0)]


def test_there_and_back_with_odd_text(tmp_path):
    odd = [rollout(0, 'line\nbreak "quote" \x00 \u2028 é 数 😀'), rollout(1, "")]
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(pack(odd))
    assert list(read_rollouts(path)) == odd


def test_half_a_surrogate_pair_becomes_a_question_mark(tmp_path):
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(pack([rollout(0, "a\ud83db")]))
    assert [each.text for each in read_rollouts(path)] == ["a?b"]


def test_files_of_earlier_versions_are_read(tmp_path):
    path = tmp_path / "r.jsonl"
    old = {"data": "a", "problem_id": "p", "rollout": 2, "response": "so \\boxed{1}", "tokens": 3}
    old |= {"stop": "eos", "verdict": "correct", "extracted": "1", "reason": "equal"}
    path.write_text(json.dumps({**old, "zip_ratio": 0.5}) + "\n")
    assert list(read_rollouts(path)) == [rollout(2)]


def test_frames_one_after_the_other_are_one_file(tmp_path):
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(pack([rollout(0)]) + pack([rollout(1), rollout(2)]))
    assert [each.index for each in read_rollouts(path)] == [0, 1, 2]


def test_a_file_cut_anywhere_is_damaged_not_shorter(tmp_path):
    path = tmp_path / "r.jsonl.zst"
    first, second = pack([rollout(0)]), pack([rollout(1)])
    for cut in range(1, len(first) + len(second)):
        path.write_bytes((first + second)[:cut])
        if cut == len(first):  # whole frames: the number of rows and the checksum tell
            continue
        with pytest.raises(DataError, match=r"r\.jsonl\.zst is damaged"):
            list(read_rollouts(path))


def test_a_flipped_bit_is_found(tmp_path):
    path = tmp_path / "r.jsonl.zst"
    whole = pack([rollout(i) for i in range(20)])
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 16
        path.write_bytes(bytes(flipped))
        try:
            found = list(read_rollouts(path))
        except DataError as error:
            assert "r.jsonl.zst" in str(error)
        else:
            assert found == [rollout(i) for i in range(20)]  # a bit that does not matter


def test_a_line_that_is_no_rollout_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"data": "a"}\n')
    with pytest.raises(DataError, match="line 1 is not a rollout"):
        list(read_rollouts(path))


@pytest.mark.parametrize("damage", [lambda whole: whole[:-3], lambda _: b""])
def test_a_damaged_part_is_named_and_nothing_is_made_of_it(tmp_path, damage):
    store = Store(tmp_path)
    for name in ("000-0", "000-1"):
        store.write_part(name, [rollout(0)])
    part = store.part("000-1")
    part.write_bytes(damage(part.read_bytes()))
    with pytest.raises(DataError, match=r"000-1\.jsonl\.zst is damaged: delete it"):
        store.join_parts({"000-0": 1, "000-1": 1})
    assert not store.has_rollouts and [path.name for path in tmp_path.iterdir()] == ["parts"]


MANIFEST = {
    "format": 1,
    "name": "one",
    "model": {"name": "m", "hash": "abc", "kind": "local"},
    "data": [{"name": "gsm8k", "hash": "1" * 64, "problems": 2, "skipped": 0}],
    "prompt": {"settings": {"instruction": "{question}"}, "budget": None, "hash": "t"},
    "sampling": {"rollouts": 4, "temperature": 0.6, "top_p": 0.95, "max_tokens": 512, "seed": 0},
    "grader": "1.0",
    "truncated": "wrong",
}


def changed(**parts):
    made = deepcopy(MANIFEST)
    for path, value in parts.items():
        *outer, last = path.split("__")
        place = made
        for key in outer:
            place = place[key]
        place[last] = value
    return made


def test_identity_is_what_decides_the_result():
    assert identity_difference(MANIFEST, changed(name="other")) is None
    assert identity_difference(MANIFEST, changed(model__name="elsewhere/m")) is None  # same weights
    assert identity_difference(MANIFEST, changed(sampling__seed=1)) == "sampling.seed is 0, not 1"
    endpoint = changed(model={"name": "m", "hash": None})
    assert identity_difference(endpoint, changed(model={"name": "n", "hash": None})) == (
        "model.name is 'm', not 'n'"
    )


@pytest.mark.parametrize("value", [None, 3, "x", [], {}])
@pytest.mark.parametrize("key", ["format", "name", "model", "data", "prompt", "sampling", "grader"])
def test_a_manifest_that_is_not_one_is_one_sentence(tmp_path, key, value):
    folder = tmp_path / "e"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, key: value}))
    (folder / "figures.json").write_text(json.dumps({"files": {}, "warnings": []}))
    with pytest.raises(DataError) as error:
        load(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


def test_a_line_that_would_fill_the_memory_is_refused_before_it_does(tmp_path):
    """Some 10 KB that unpack to over 256 MB."""
    path = tmp_path / "r.jsonl.zst"
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    pieces = [packer.compress(b"a" * (1 << 20)) for _ in range(270)]
    path.write_bytes(b"".join(pieces) + packer.flush())
    assert path.stat().st_size < 100_000
    with pytest.raises(DataError, match="has a line of over 256 MB"):
        next(read_lines(path))


def test_lines_are_whole_wherever_the_pieces_of_a_file_end(tmp_path):
    lines = ["é" * 3000, "", "b" * 5000, "c\rd"]
    for name, content in {"a": "\n".join(lines), "b": "\n".join([*lines, ""])}.items():
        (tmp_path / f"{name}.jsonl").write_bytes(content.encode())
        packed = zstandard.compress(content.encode())
        (tmp_path / f"{name}.jsonl.zst").write_bytes(packed)
        assert list(read_lines(tmp_path / f"{name}.jsonl")) == lines
        assert list(read_lines(tmp_path / f"{name}.jsonl.zst")) == lines
