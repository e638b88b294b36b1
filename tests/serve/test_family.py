"""A family is what was measured of weights that are still there, and is not trusted when read."""

import copy
import json
import shutil

import pytest
from pydantic import ValidationError

from crt.cli import main
from crt.errors import ConfigError, DataError
from crt.recipes import config_of
from crt.run import Run
from crt.serve.build import evaluated, family_of
from crt.serve.family import Family, family_file, model_of, read_family
from crt.serve.points import series

from .conftest import certificate, level, make_endless, plain_family


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
    found = Run.create(folder / "run", config)
    sooner(folder / "base", found.checkpoint(10))
    (found.checkpoint(10) / "record.json").write_text('{"step": 10}')
    evaluated(found, ())
    return found


def sooner(base, to):
    """The same model, which ends where its state points in one direction: about half the time."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(base, to)
    weights = load_file(to / "model.safetensors")
    weights["lm_head.weight"][1] = 5 * torch.randn(16, generator=torch.Generator().manual_seed(0))
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})


def test_from_a_run_to_a_family(run, tmp_path):
    said = []
    folder = evaluated(run, (), note=said.append)
    assert "figures are those of" in said[0]  # the evaluation is not made twice
    file = tmp_path / "family.json"
    family = family_of(run, folder, file)
    concise, full = family.levels
    assert (concise.name, concise.step, full.name, full.step) == ("concise", 10, "full", 0)
    assert concise.len.value < 12 < full.len.value  # the base mostly runs into its cap of 24
    assert concise.certificate is not None and concise.certificate.held  # equal: both never right
    assert concise.certificate.problems == 12 and full.certificate is None
    assert model_of(concise, file) == str(run.checkpoint(10))
    assert family.candidates == 1 and len(family.examples) == 12
    file.write_text(json.dumps(family.model_dump(mode="json")))
    assert read_family(file) == family


def test_the_command_writes_it_and_says_what_is_next(run, capsys):
    assert main(["family", str(run.path)]) == 0
    told = capsys.readouterr()
    assert "concise" in told.out and "held" in told.out and "crt serve" in told.err
    assert read_family(family_file(run.path)).levels[0].name == "concise"
    (run.path / "family.json").unlink()


def test_no_level_without_certificate_unless_asked_for(run, capsys, tmp_path):
    out = ["--out", str(tmp_path / "f.json")]
    path = run.path / "evaluations" / "sums" / "series.json"
    told = json.loads(path.read_text())
    changed = copy.deepcopy(told)
    held = changed["points"][1]["versus"]["averages"]["all"]["certificate"]
    held.update(lower_bound=-0.02, held=False)
    try:
        path.write_text(json.dumps(changed))
        assert main(["family", str(run.path), *out]) == 0
        assert [each.name for each in read_family(tmp_path / "f.json").levels] == ["full"]
        assert "No checkpoint is shown to be within 1 points" in capsys.readouterr().out
        assert main(["family", str(run.path), *out, "--all"]) == 0
        concise = read_family(tmp_path / "f.json").levels[0]
        assert concise.name == "concise" and not concise.certified
        assert main(["family", str(run.path), *out, "--tolerance", "0.02"]) == 0
        assert read_family(tmp_path / "f.json").levels[0].certified
    finally:
        path.write_text(json.dumps(told))


def test_other_weights_than_those_measured_are_noticed(run, tmp_path):
    folder = run.path / "evaluations" / "sums"
    weights = run.checkpoint(10) / "model.safetensors"
    whole = weights.read_bytes()
    try:
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(DataError, match="other weights than those that were measured"):
            family_of(run, folder, tmp_path / "family.json")
    finally:
        weights.write_bytes(whole)


def test_mistakes_are_one_sentence(run, tmp_path, capsys):
    with pytest.raises(ConfigError, match="--levels 1"):
        family_of(run, run.path / "evaluations" / "sums", tmp_path / "f.json", levels=1)
    with pytest.raises(DataError, match="is not a series"):
        series(tmp_path)
    assert main(["family", str(tmp_path)]) == 2
    assert main(["family", str(run.path), "--data", "x", "--evaluation", "y"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(DataError, match="make it with `crt family"):
        family_file(run.path)
    with pytest.raises(DataError, match=r"neither a family\.json nor a run"):
        family_file(tmp_path)


GOOD = plain_family([level("concise", 57.0), level("full", 129.0)])


def changed(path, value):
    """GOOD with one value replaced; `path` is keys and places."""
    found = copy.deepcopy(GOOD)
    *before, last = path
    at = found
    for key in before:
        at = at[key]
    at[last] = value
    return found


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (changed(["format"], 2), "format"),
        (changed(["surprise"], 1), "surprise"),
        (changed(["name"], "../x"), "name"),
        (changed(["levels"], []), "levels"),
        (changed(["levels", 0, "name"], "full"), "same name"),
        (changed(["levels", 0, "hash"], "abc"), "hash"),
        (changed(["levels", 0, "acc", "value"], float("nan")), "acc.value"),
        (changed(["levels", 0, "acc", "value"], "95"), "acc.value"),
        (changed(["levels", 0, "len", "value"], 200.0), "from the shortest to the longest"),
        (changed(["levels", 0, "certificate"], None), "no certificate"),
        (changed(["levels", 1, "certificate"], certificate()), "without certificate"),
        (changed(["levels", 0, "certificate", "lower_bound"], -0.5), "contradicts its own figures"),
        (changed(["levels", 0, "certificate", "problems"], 5), "contradicts its own figures"),
        (changed(["prompt"], {"instruction": 7}), "prompt"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(bad, why, tmp_path):
    file = tmp_path / "family.json"
    file.write_text(json.dumps(bad))
    with pytest.raises(DataError, match=why):
        read_family(file)


def test_damaged_or_huge_files(tmp_path):
    file = tmp_path / "family.json"
    with pytest.raises(DataError, match="cannot be read"):
        read_family(file)
    file.write_text("{" * 100_000)
    with pytest.raises(DataError, match="damaged"):
        read_family(file)
    file.write_bytes(b" " * (5 * 2**20))
    with pytest.raises(DataError, match="larger than 4 MB"):
        read_family(file)


@pytest.mark.parametrize(
    "bad",
    [
        {"model": "/etc", "folder": True},
        {"model": "../../x y", "folder": False},
        {"model": "--flag", "folder": False},
    ],
)
def test_models_are_relative_folders_or_plain_names(bad, tmp_path):
    family = Family.model_validate(plain_family([level("full", 129.0, **bad)]))
    with pytest.raises(DataError, match=r"not relative|no hub id"):
        model_of(family.levels[0], tmp_path / "family.json")


def test_frozen():
    with pytest.raises(ValidationError):
        Family.model_validate(GOOD).name = "other"
