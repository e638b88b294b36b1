"""Answers from a model on this machine: tokens, caps, units, engines."""

import json
import sys
from pathlib import Path

import pytest

from crt.config import EvaluationConfig, ModelConfig
from crt.data.prompts import PromptSettings
from crt.errors import ConfigError, EngineError
from crt.evaluation import evaluate
from crt.evaluation.local import fitting_cap, local
from crt.evaluation.sampling import plan
from crt.evaluation.sets import load_sets
from crt.sampling.base import choose_engine


@pytest.fixture
def sets(problems):
    return load_sets([str(problems)])


def backend(tiny, sets, **settings):
    engine = settings.pop("engine", "fast")
    how = EvaluationConfig(**{"rollouts": 3, "max_tokens": 30, **settings})
    found, notes = local(ModelConfig(name=str(tiny)), sets, PromptSettings(), how, engine=engine)
    return found, notes, how


def test_tokens_are_counted_with_the_end_and_the_cap_is_kept(tiny, sets):
    found, _, how = backend(tiny, sets)
    units = plan(sets, how.rollouts, found.rows, seed=0)
    answers = [a for _, groups in found.answers(units) for group in groups for a in group]
    assert len(answers) == 18
    encode = found.files.tokenizer.encode
    for answer in answers:
        written = len(encode(answer.text, add_special_tokens=False))
        if answer.stop == "length":
            assert written <= answer.length == 30
        else:
            assert written + 1 <= answer.length <= 30  # special tokens in between are not text
    assert {answer.stop for answer in answers} == {"eos", "length"}


def test_the_cap_is_what_the_model_has_positions_for(tiny, sets):
    found, notes, _ = backend(tiny, sets, max_tokens=32768)
    longest = max(len(found.files.tokenizer.encode(found.sent(p)["prompt"])) for p in sets[0])
    assert found.max_tokens == 256 - longest
    assert "has 256 positions" in notes[0] and "not 32768" in notes[0]
    with pytest.raises(ConfigError, match="nothing is left for an answer"):
        fitting_cap(found.files, 100, 255)


def test_units_depend_on_what_they_hold_and_cover_everything_once(sets):
    for rows in (1, 2, 4, 7, 100):
        units = plan(sets, 4, rows, seed=0)
        asked = [
            (p.id, r)
            for u in units
            for p in u.problems
            for r in range(u.first, u.first + u.num_samples)
        ]
        assert sorted(asked) == [(f"p{i}", r) for i in range(6) for r in range(4)]
        assert len({unit.seed for unit in units}) == len(units)
        assert all(len(unit.problems) * unit.num_samples <= max(rows, 1) for unit in units)
    one, other = (plan(sets, 4, 4, seed) for seed in (0, 1))
    assert all(a.seed != b.seed for a, b in zip(one, other, strict=True))


def test_a_question_with_a_control_token_is_refused(tiny, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text(json.dumps({"id": "x", "question": "a<end>b", "answer": "1"}) + "\n")
    with pytest.raises(Exception, match="control token"):
        evaluate(str(tiny), [str(file)], tmp_path / "out", rollouts=1, max_tokens=8)
    assert not (tmp_path / "out").exists()


def test_greedy_rollouts_are_all_alike_and_the_manifest_has_everything(tiny, problems, tmp_path):
    found = evaluate(
        str(tiny), [str(problems)], tmp_path / "o", rollouts=2, max_tokens=9, temperature=0
    )
    said: dict[str, set[str]] = {}
    for record in found.rollouts():
        said.setdefault(record.problem_id, set()).add(record.response)
    assert all(len(texts) == 1 for texts in said.values())
    manifest = found.manifest
    assert manifest["model"]["engine"] == "fast" and len(manifest["model"]["hash"]) == 64
    assert manifest["template"].startswith("{% for message")
    assert manifest["sampling"]["temperature"] == 0 and manifest["sampling"]["max_tokens"] == 9
    assert manifest["versions"]["torch"] and manifest["finished"] >= manifest["started"]
    row = found.problems()[0]
    assert row["prompt"].startswith("<user>0 + 1 = ?\nPlease reason") and row["answer"] == "1"


def test_vllm_answers_the_same_units(tiny, sets, monkeypatch):
    # not vLLM itself, which needs a GPU, but its interface, to see what comes of its answers
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "support" / "fakes")
    found, _, how = backend(tiny, sets, engine="vllm", rollouts=2)
    [(_, answers)] = list(found.answers(plan(sets, 2, found.rows, seed=0)))
    [engine] = sys.modules.pop("vllm").LLM.loaded
    assert [len(group) for group in answers] == [2] * 6
    assert found.model()["engine"] == "vllm" and engine.dtype == "float32"
    for answer in (answer for group in answers for answer in group):
        assert answer.length == 30 if answer.stop == "length" else answer.length <= 30
    assert [params.max_tokens for _, params in engine.asked] == [how.max_tokens] * 6


def test_the_engine_is_chosen(tiny, sets):
    found, _, _ = backend(tiny, sets)
    assert choose_engine("auto", found.files) == "fast"  # no vLLM here, or no GPU
    assert choose_engine("fast", found.files) == "fast"


def test_no_such_model_is_one_sentence(problems, tmp_path):
    with pytest.raises(EngineError, match=r"is no folder, no \.gguf file, no hub id"):
        evaluate("no model", [str(problems)], tmp_path / "out")
