"""Levels between the base and a checkpoint: the weights, the adapter's scale, and the folder."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from crt.cli import main
from crt.errors import ConfigError, DataError
from crt.io import write_sealed
from crt.levels.blend import blend_weights, check_shares, share_of, write_blend
from crt.levels.choose import FamilySettings, measure_levels
from crt.levels.family import family_file, read_family
from crt.recipes import config_of
from crt.run import Run
from crt.sampling.models import load_model
from tests.support.levels import write_adapter


@pytest.fixture
def run(tmp_path):
    """A run of the pocket model without checkpoints."""
    config = {
        "name": "small",
        "model": {"name": "pocket"},
        "data": {"train": ["pocket:100"]},
        "method": {"type": "crt"},
        "schedule": {"steps": 20},
        "validation": {"data": ["pocket/validation"], "problems": 8},
        "evaluation": {"data": ["pocket/test:12"], "rollouts": 2, "max_tokens": 96},
    }
    return Run.create(tmp_path / "run", config_of(config))


def keep(run, model, step=10):
    """A checkpoint of the run, as training leaves one."""
    folder = run.checkpoint(step)
    model.save_pretrained(folder)
    load_model("pocket").tokenizer.save_pretrained(folder)
    write_sealed(folder / "record.json", {"step": step})
    return folder


def shifted(by):
    """The pocket model with the same added to every weight."""
    model = load_model("pocket").model
    with torch.no_grad():
        for weight in model.parameters():
            weight += by
    return model


def test_a_blend_is_on_the_line_through_both():
    base, checkpoint = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    with torch.no_grad():
        base.weight.copy_(torch.tensor([[1.0, 2.0]]))
        checkpoint.weight.copy_(torch.tensor([[3.0, 2.0]]))
    blend_weights(base, checkpoint, 1.5)
    assert checkpoint.weight.tolist() == [[4.0, 2.0]]  # 1 + 1.5 · 2
    with pytest.raises(DataError, match="no weights weight of the checkpoint's shape"):
        blend_weights(torch.nn.Linear(3, 1), checkpoint, 0.5)


def test_what_the_base_alone_has_is_not_dropped():
    """As the output's weights, where the checkpoint ties them to the embeddings."""
    base, checkpoint = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1, bias=False)
    with pytest.raises(DataError, match="the checkpoint has no weights bias, which the base has"):
        blend_weights(base, checkpoint, 0.5)


def test_a_checkpoint_s_settings_of_generation_stay_as_they_are(run):
    """Older models have a temperature without do_sample, which transformers only reads."""
    settings = keep(run, shifted(0.25)) / "generation_config.json"
    old = json.dumps(json.loads(settings.read_text()) | {"do_sample": False, "temperature": 0.6})
    settings.write_text(old)
    assert (write_blend(run, 10, 0.5) / "generation_config.json").read_text() == old
    settings.unlink()
    assert not (write_blend(run, 10, 0.75) / "generation_config.json").exists()


def test_a_blend_is_a_model_folder_like_a_checkpoint(run):
    keep(run, shifted(0.25))
    folder = write_blend(run, 10, 0.5)
    assert folder == run.path / "blends" / "step-0010-x0.50" and share_of(folder.name) == 0.5
    base = dict(load_model("pocket").model.named_parameters())
    for name, weight in load_model(str(folder)).model.named_parameters():
        torch.testing.assert_close(weight, base[name] + 0.125)
    record = json.loads((folder / "record.json").read_text())
    assert (record["step"], record["share"]) == (10, 0.5) and "model.safetensors" in record["files"]
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert write_blend(run, 10, 0.5) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before  # made once


def test_an_adapter_is_scaled_and_stays_one(run):
    folder = run.checkpoint(10)
    write_adapter(folder)
    write_sealed(folder / "record.json", {"step": 10})
    whole = load_file(folder / "adapter_model.safetensors")
    half = load_file(write_blend(run, 10, 0.5) / "adapter_model.safetensors")
    assert any(".lora_B." in name for name in whole)
    for name, weight in whole.items():
        factor = 0.5 if ".lora_B." in name else 1.0
        torch.testing.assert_close(half[name], factor * weight)
    base, adapted, blended = (
        load_model(name).model.model.layers[0].self_attn.q_proj.weight
        for name in ("pocket", str(folder), str(run.path / "blends" / "step-0010-x0.50"))
    )
    torch.testing.assert_close(blended - base, 0.5 * (adapted - base))


def test_what_cannot_be_scaled_is_refused(run):
    folder = run.checkpoint(10)
    write_adapter(folder)
    weights = load_file(folder / "adapter_model.safetensors")
    more = {**weights, "base_model.model.lm_head.weight": torch.zeros(1)}
    save_file(more, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match="more than LoRA's A and B"):
        write_blend(run, 10, 0.5)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(DataError, match=r"no \.safetensors weights"):
        write_blend(run, 10, 0.5)
    assert [path.name for path in (run.path / "blends").iterdir()] == []  # nothing half made
    with pytest.raises(DataError, match="step-0020 is not there"):
        write_blend(run, 20, 0.5)


@pytest.mark.parametrize("share", [0, 1, -0.5, 4.5, 0.123, float("nan")])
def test_what_is_no_share(share):
    with pytest.raises(ConfigError, match="--shares"):
        check_shares([share])


def test_levels_are_chosen_and_certified_on_different_problems(run, capsys):
    """A checkpoint that is the base: no level, because none is shorter; blends were measured."""
    keep(run, load_model("pocket").model)
    words = ["family", str(run.path), "--shares", "0.5", "--tolerance", "1", "--all"]
    assert main(words) == 0
    assert "0 levels are chosen from 2 candidates" in capsys.readouterr().err
    family = read_family(family_file(run.path))
    assert [level.name for level in family.levels] == ["full"]
    assert family.measured.data[0]["name"] == "pocket/test:12"
    assert family.measured.chosen_on == "pocket/validation:8"
    series = run.path / "evaluations" / "validation-8" / "series.json"
    measured = [point["name"] for point in json.loads(series.read_text())["points"]]
    assert measured == ["base", "step-0010", "step-0010-x0.50"]
    assert list((run.path / "blends").iterdir()) == []  # it became no level
    with pytest.raises(ConfigError, match="pocket/test cannot both choose"):
        measure_levels(run, (), ("pocket/test:8",), (), FamilySettings())
    assert main(["family", str(run.path), "--shares", "a"]) == 2
    assert main(["family", str(run.path), "--evaluation", "x", "--shares", "0.5"]) == 2
