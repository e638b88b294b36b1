"""Levels are feasible, certified unless asked otherwise, on the front, and spread by length.

A family is what was measured of weights that are still there.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from crt.algorithm.statistics import WORST, dirichlet_mean_cdf, gaffke_bound
from crt.cli import main
from crt.errors import ConfigError, DataError
from crt.evaluation.store import load
from crt.io import sha256
from crt.levels.choose import (
    Candidate,
    FamilySettings,
    build_family,
    certify,
    choose_levels,
    front,
    level_names,
    measure_levels,
    name_of_family,
    read_series,
    shares_between,
    spread_by_length,
    stored_model,
)
from crt.levels.family import (
    Estimate,
    LevelCertificate,
    family_file,
    level_files,
    model_of,
    read_family,
)
from crt.recipes import config_of
from crt.run import Run
from tests.support.levels import certificate, interval, make_endless

FOUR = FamilySettings(levels=4)  # within one point


def point(name, accuracy, length, lower_bound=None, base=0.90):
    difference = accuracy - base
    bound = difference - 0.005 if lower_bound is None else lower_bound
    return Candidate(
        name=name,
        step=10,
        acc=Estimate(**interval(100 * accuracy)),
        len=Estimate(**interval(length)),
        certificate=LevelCertificate(**certificate(bound, difference, problems=10_000)),
    )


def names(points):
    return [item.name for item in points]


def test_the_front_is_what_no_shorter_one_equals():
    points = [
        point("a", 0.90, 50),
        point("b", 0.90, 60),
        point("c", 0.92, 80),
        point("d", 0.91, 90),
    ]
    assert names(front(points)) == ["a", "c"]


def test_without_certificate_not_offered_unless_asked_for():
    points = [point("sure", 0.90, 60, lower_bound=-0.009), point("unsure", 0.90, 50, -0.02)]
    assert choose_levels(points, 100, FOUR) == [points[0]]
    both = choose_levels(points, 100, replace(FOUR, uncertified=True))
    assert names(both) == ["unsure", "sure"]


def test_what_lost_accuracy_is_never_a_level():
    lost = point("lost", 0.88, 50)  # two points below the base; one is allowed
    assert choose_levels([lost], 100, replace(FOUR, uncertified=True)) == []


def test_what_is_longer_than_the_base_is_no_level():
    assert choose_levels([point("long", 0.95, 120)], 100, FOUR) == []


def test_the_front_alone_when_asked_for():
    points = [point("a", 0.90, 50), point("b", 0.90, 60)]
    chosen = choose_levels(points, 100, replace(FOUR, front_only=True))
    assert names(chosen) == ["a"]


def test_levels_differ_noticeably_in_length():
    lengths = {"short": 50, "near": 57, "longer": 57.5, "almost full": 87.1}
    points = [point(name, 0.90, length) for name, length in lengths.items()]
    # 57 / 50 is 1.14; 100 / 87.1 is 1.148; at least 1.15 is wanted
    assert names(choose_levels(points, 100, FOUR)) == ["short", "longer"]


def test_as_many_levels_as_there_can_be_at_even_ratios():
    points = [point(str(n), 0.9, n) for n in (50, 59, 70, 75, 85)]
    # 50 · 1.26 · 1.26 is 79.4: of two levels 50 and 70 (1.40, 1.43) are the most even
    assert names(spread_by_length(points, 2, 100)) == ["50", "70"]
    assert names(spread_by_length(points, 1, 100)) == ["50"]
    # 1.18, 1.19, 1.21 and 1.18: any other three between leave less than 1.15 somewhere
    assert names(spread_by_length(points, 9, 100)) == ["50", "59", "70", "85"]
    assert spread_by_length([], 3, 100) == []


def test_the_first_level_is_as_short_as_the_shortest():
    points = [point("a", 0.90, 50), point("b", 0.92, 51), point("c", 0.99, 53)]
    assert names(spread_by_length(points, 1, 100)) == ["b"]  # 53 is more than a twentieth longer
    # from 51 there is no second level: 58 / 51 is 1.14 and 100 / 88 is 1.14
    assert names(spread_by_length([*points, point("d", 0.9, 58)], 2, 100)) == ["a", "d"]


def test_near_its_place_a_level_is_the_more_accurate():
    points = [point("a", 0.90, 50), point("even", 0.90, 70.7), point("better", 0.91, 72)]
    assert names(spread_by_length(points, 2, 100)) == ["a", "better"]
    points[2] = point("far", 0.91, 76)  # 7 % out of its place for one point: too far
    assert names(spread_by_length(points, 2, 100)) == ["a", "even"]


def test_blends_fill_the_empty_places():
    # 100 to 50 in four levels: 50, 59.5, 70.7, 84.1 (a ratio of 1.19); 84.5 is there
    lengths = {0.0: 100.0, 0.5: 70.0, 1.0: 60.0, 2.0: 50.0}
    there = [point("x", 0.9, 50), point("y", 0.9, 84.5)]
    shares = shares_between(50, 100, 5, there, lengths)
    # 59.46 is 0.54 of the way from 60 to 50; 70.71 is 0.024 of the way from 70 to 100
    assert shares == [pytest.approx(0.49), pytest.approx(1.05)]
    assert shares_between(95, 100, 5, there, lengths) == []  # no place for another


def test_a_file_cannot_choose_and_certify_under_two_names(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    with pytest.raises(ConfigError, match=r"a\.jsonl/test cannot both choose"):
        measure_levels(run, ("a.jsonl",), (f"{tmp_path}/./a.jsonl:1",), (), FOUR)


@pytest.mark.parametrize(
    ("run_name", "name"), [("demo", "demo"), ("_x y", "x-y"), ("é", "family"), ("a" * 70, "a" * 64)]
)
def test_a_run_of_any_name_has_a_family_that_clients_can_name(run_name, name):
    assert name_of_family(run_name) == name


def test_names_by_length():
    assert level_names(1) == ["concise"]
    assert level_names(3) == ["concise", "balanced", "detailed"]
    assert level_names(4) == ["level-1", "level-2", "level-3", "level-4"]


# ---- from a run to a family


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose base runs into the cap and whose one checkpoint ends sooner; neither is right."""
    folder = tmp_path_factory.mktemp("runs")
    make_endless(folder / "base")
    problems = folder / "sums.jsonl"
    rows = [{"id": f"p{i}", "question": f"{i} + 1 ?", "answer": str(i + 1)} for i in range(12)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = config_of(
        {
            "name": "small",
            "model": {"name": str(folder / "base")},
            "data": {"train": ["gsm8k"]},
            "method": {"type": "crt"},
            "schedule": {"steps": 20},
            "evaluation": {"data": [str(problems)], "rollouts": 2, "max_tokens": 24},
        }
    )
    result = Run.create(folder / "run", config)
    sooner(folder / "base", result.checkpoint(10))
    (result.checkpoint(10) / "record.json").write_text('{"step": 10}')
    measure_levels(result, (), (), (), FOUR)
    return result


def sooner(base, to):
    """The same model, which ends where its state points in one direction: about half the time."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(base, to)
    weights = load_file(to / "model.safetensors")
    weights["lm_head.weight"][1] = 5 * torch.randn(16, generator=torch.Generator().manual_seed(0))
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})


def test_from_a_run_to_a_family(run, tmp_path):
    notes = []
    folder = measure_levels(run, (), (), (), FOUR, note=notes.append)
    assert "figures are those of" in notes[0]  # the evaluation is not made twice
    file = tmp_path / "family.json"
    allowing = FamilySettings(tolerance=0.3)  # 0.05^(1/12) − 1 is −0.22
    family = build_family(run, folder, file, allowing)
    concise, full = family.levels
    assert (concise.name, concise.step, full.name, full.step) == ("concise", 10, "full", 0)
    assert concise.len.value < 12 < full.len.value  # the base mostly runs into its cap of 24
    assert concise.certificate is not None and concise.certificate.passed  # equal: both never right
    assert (concise.certificate.problems, concise.certificate.candidates) == (12, 1)
    assert full.certificate is None
    assert model_of(concise, file) == str(run.checkpoint(10))
    assert family.candidates == 1 and len(family.examples) == 12
    file.write_text(json.dumps(family.model_dump(mode="json")))
    assert read_family(file) == family


def test_the_command_writes_it_and_says_what_is_next(run, capsys):
    assert main(["family", str(run.path), "--tolerance", "0.3", "--shares", "none"]) == 0
    received = capsys.readouterr()
    assert "concise" in received.out and "passed" in received.out and "crt serve" in received.err
    assert read_family(family_file(run.path)).levels[0].name == "concise"
    (run.path / "family.json").unlink()


def test_a_level_may_lie_between_the_base_and_a_checkpoint(run, tmp_path):
    """The blend ends later than the checkpoint and sooner than the base, which does not end."""
    other = Run.open(shutil.copytree(run.path, tmp_path / "run"))
    folder = measure_levels(other, (), (), (0.2,), FOUR)
    file = other.path / "family.json"
    family = build_family(other, folder, file, FamilySettings(tolerance=0.4))
    concise, balanced, full = family.levels
    assert (concise.share, balanced.share, full.share) == (None, 0.2, None)
    assert (concise.step, balanced.step) == (10, 10)
    assert concise.len.value * 1.15 <= balanced.len.value <= full.len.value / 1.15
    assert model_of(balanced, file) == str(other.path / "blends" / "step-0010-x0.20")
    assert level_files(balanced, file).hash == balanced.hash
    assert balanced.certificate.candidates == 2


def rewritten(evaluation, correct):
    """The evaluation with other counts of right answers; returns the files as they were."""
    files = {
        name: (evaluation / name).read_bytes() for name in ("by_problem.jsonl", "figures.json")
    }
    rows = [json.loads(line) for line in files["by_problem.jsonl"].splitlines()]
    for row in rows:
        row["correct"] = correct.get(row["problem_id"], 0)
    (evaluation / "by_problem.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    figures = json.loads(files["figures.json"])
    figures["files"]["by_problem.jsonl"] = sha256(evaluation / "by_problem.jsonl")
    (evaluation / "figures.json").write_text(json.dumps(figures))
    return {evaluation / name: content for name, content in files.items()}


@pytest.fixture
def unsure(run):
    """Each of the two solves one problem that the other does not: as good, but who knows."""
    folder = run.path / "evaluations" / "sums"
    before = rewritten(folder / "base", {"p0": 2}) | rewritten(folder / "step-0010", {"p1": 2})
    yield folder
    for path, content in before.items():
        path.write_bytes(content)


def test_no_level_without_certificate_unless_asked_for(run, unsure, capsys, tmp_path):
    out = ["--out", str(tmp_path / "f.json"), "--shares", "none"]
    assert main(["family", str(run.path), *out]) == 0
    assert [item.name for item in read_family(tmp_path / "f.json").levels] == ["full"]
    # two differences of 1 in 12 problems: a variance of 1/6, (1.645 + 0.842)² / 6 / 0.01² = 10,305
    assert (
        "12 problems are too few to certify one of 1 checkpoints to 1 point: one as good as the "
        "base needs about 10,5"
    ) in capsys.readouterr().err
    assert main(["family", str(run.path), *out, "--all"]) == 0
    concise = read_family(tmp_path / "f.json").levels[0]
    assert concise.name == "concise" and not concise.certified
    assert main(["family", str(run.path), *out, "--tolerance", "0.4"]) == 0
    assert read_family(tmp_path / "f.json").levels[0].certified


def test_the_more_are_looked_at_the_more_each_must_show(run, unsure):
    base, one = read_series(unsure)
    evaluations = {point.name: load(unsure / point.name) for point in (base, one)}
    (alone,) = certify([one], evaluations, 0.01)
    among = certify([one] * 5, evaluations, 0.01)[0]
    # one problem won, one lost, ten alike; five are looked at: 95 % of one, 99 % of each
    differences = [np.array([-1.0, 1.0, *[0.0] * 10])]
    assert alone.certificate.lower_bound == pytest.approx(gaffke_bound(differences, 0.95))
    assert among.certificate.lower_bound == pytest.approx(gaffke_bound(differences, 0.99))
    assert (alone.certificate.candidates, among.certificate.candidates) == (1, 5)
    assert among.certificate.confidence == 0.95


def test_that_bound_holds_whichever_is_chosen():
    """Sixteen checkpoints as good as the base but for a point too much: the best rarely passes."""
    rng = np.random.default_rng(0)
    fooled, corrected = 0, 0

    def points(differences):
        return np.unique(np.append(differences, WORST), return_counts=True)

    for _ in range(200):
        base = rng.binomial(4, 0.8, 200) / 4
        tries = [rng.binomial(4, 0.78, 200) / 4 for _ in range(16)]
        chance = [dirichlet_mean_cdf(*points(item - base), -0.02) for item in tries]
        fooled += min(chance) <= 0.05
        corrected += min(chance) <= 0.05 / 16
    assert fooled > 30 and corrected <= 15  # 5 % of 200 is 10, with a spread of 3


def test_other_weights_than_those_measured_are_noticed(run, tmp_path):
    folder = run.path / "evaluations" / "sums"
    weights = run.checkpoint(10) / "model.safetensors"
    whole = weights.read_bytes()
    try:
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(DataError, match="other weights than those that were measured"):
            build_family(run, folder, tmp_path / "family.json", FamilySettings(tolerance=0.3))
    finally:
        weights.write_bytes(whole)


def test_mistakes_are_one_sentence(run, tmp_path, capsys):
    with pytest.raises(ConfigError, match="--levels 1"):
        FamilySettings(levels=1)
    with pytest.raises(DataError, match="is not a series"):
        read_series(tmp_path)
    assert main(["family", str(tmp_path)]) == 2
    assert main(["family", str(run.path), "--data", "x", "--evaluation", "y"]) == 2
    for option, value in {"levels": "1", "tolerance": "2", "name": "a b", "out": "no/f"}.items():
        before = sorted((run.path / "evaluations").rglob("*"))
        words = ["family", str(run.path), "--data", "pocket/test:3", f"--{option}", value]
        assert main(words) == 2 and f"--{option} " in capsys.readouterr().err
        assert sorted((run.path / "evaluations").rglob("*")) == before  # nothing was measured
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(DataError, match="make it with `crt family"):
        family_file(run.path)
    with pytest.raises(DataError, match=r"neither a family\.json nor a run"):
        family_file(tmp_path)


def test_a_converted_gguf_file_is_named_by_its_folder(tmp_path):
    file, converted = tmp_path / "run" / "family.json", tmp_path / "cache" / "small-1a2b"
    assert stored_model("models/small.gguf", converted, file) == ("../cache/small-1a2b", True)


def test_a_folder_is_relative_and_a_hub_id_stays_as_it_is(tmp_path):
    file, base = tmp_path / "run" / "family.json", tmp_path / "base"
    base.mkdir()
    assert stored_model(str(base), base, file) == ("../base", True)
    assert stored_model("owner/name", tmp_path / "hub", file) == ("owner/name", False)
    assert stored_model("pocket", tmp_path / "assets", file) == ("pocket", False)
