"""An exported level is a folder that transformers loads as it is, with an honest card."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from crt.cli import main
from crt.pocket import path as pocket
from crt.recipes import config_of
from crt.run import Run
from crt.sampling.models import load_model, weights_hash
from tests.support.levels import PROMPT, certificate, level, plain_family


def write_run(folder, **changes):
    """A run with one checkpoint, the pocket model's weights, and its family."""
    import shutil

    config = config_of(
        {
            "name": "demo",
            "model": {"name": "pocket"},
            "data": {"train": ["pocket:4000"]},
            "method": {"type": "crt"},
            "schedule": {"steps": 20},
        }
    )
    run = Run.create(folder / "run", config)
    shutil.copytree(pocket(), run.checkpoint(10))
    same = weights_hash(pocket())
    short = level(
        "concise", 57.0, model="checkpoints/step-0010", folder=True, hash=same, step=10, **changes
    )
    family = plain_family([short, level("full", 129.0, hash=same)])
    (run.path / "family.json").write_text(json.dumps(family))
    return run.path


def export(run, to, name="concise"):
    return main(["export", str(run), "--level", name, "--to", str(to)])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("export"))


def test_it_loads_and_says_the_same(run, tmp_path, capsys):
    assert export(run, tmp_path / "out") == 0
    assert "demo:concise, 94.8 % right with 57.0 tokens, certified" in capsys.readouterr().out
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}], add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]
    own = load_model("pocket")
    assert ids[0].tolist() == own.tokenizer.encode(
        tokenizer.decode(ids[0]), add_special_tokens=False
    )
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, own.model(ids).logits)
    output = tokenizer.decode(model.generate(ids, do_sample=False)[0])
    assert "\\boxed{301}" in output


def test_what_is_in_the_folder(run, tmp_path):
    export(run, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.safetensors", "config.json", "generation_config.json", "README.md"} <= names
    assert {"tokenizer.json", "chat_template.jinja"} <= names and "record.json" not in names
    how = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (how["temperature"], how["top_p"], how["max_new_tokens"]) == (0.6, 0.95, 256)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".unfinished")]


def test_the_card(run, tmp_path):
    export(run, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n") and "# demo:concise" in card
    assert "| Accuracy | 94.8 % (93.8 – 95.8, n = 600) |" in card
    assert "**Certificate:** passed. Accuracy is +0.0 points against the base" in card
    assert "put your final answer within \\boxed{}." in card and "step 10, seed 0" in card
    assert weights_hash(pocket()) in card and str(run) not in card


def test_a_level_without_certificate_says_so(tmp_path):
    run = write_run(tmp_path, certificate=certificate(lower_bound=-0.03))
    export(run, tmp_path / "out")
    assert "**Certificate:** **not passed**." in (tmp_path / "out" / "README.md").read_text()


def test_nothing_is_written_over_and_mistakes_leave_nothing(run, tmp_path, capsys):
    (tmp_path / "there").mkdir()
    assert export(run, tmp_path / "there") == 2
    assert export(run, tmp_path / "new", "brief") == 2
    received = capsys.readouterr().err
    assert "is not written over" in received and "'brief' is not a level" in received
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_other_weights_are_not_exported_under_these_figures(tmp_path, capsys):
    run = write_run(tmp_path)
    config = run / "checkpoints" / "step-0010" / "config.json"
    config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    assert export(run, tmp_path / "out") == 2
    assert "other weights than those" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_adapter_is_merged_into_its_base(tmp_path):
    from peft import LoraConfig, get_peft_model

    run = write_run(tmp_path)
    torch.manual_seed(0)
    settings = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    adapted = get_peft_model(load_model("pocket").model, settings)
    folder = run / "checkpoints" / "step-0020"
    adapted.save_pretrained(folder, save_embedding_layers=False)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": "pocket"})
    )
    short = level(
        "concise",
        57.0,
        model="checkpoints/step-0020",
        folder=True,
        adapter=True,
        hash=weights_hash(folder),
    )
    family = plain_family([short, level("full", 129.0, hash=weights_hash(pocket()))])
    (run / "family.json").write_text(json.dumps(family))
    assert export(run, tmp_path / "out") == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "model.safetensors" in names and "adapter_config.json" not in names
    ids = torch.tensor([[5, 9, 20, 31]])
    with torch.inference_mode():
        ours = AutoModelForCausalLM.from_pretrained(tmp_path / "out")(ids).logits
        base = load_model("pocket").model(ids).logits
        assert torch.allclose(ours, adapted(ids).logits, atol=1e-4)
        assert not torch.allclose(ours, base, atol=1e-2)
