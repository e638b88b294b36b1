"""An exported level is a folder that transformers loads as it is, with an honest card."""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from crt.cli import main
from crt.pocket import path as pocket
from crt.recipes import config_of
from crt.run import Run
from crt.sampling.models import load_model, weights_hash
from tests.support.fakes.hub import TOKEN, hub
from tests.support.levels import PROMPT, certificate, level, plain_family, write_adapter


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


@pytest.mark.parametrize(
    ("temperature", "sampling"),
    [
        (0.6, {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 0}),
        (0.0, {"do_sample": False}),
    ],
)
def test_it_samples_as_it_was_measured_whatever_the_base_says(tmp_path, temperature, sampling):
    run = write_run(tmp_path)
    for file in (run / "checkpoints").rglob("generation_config.json"):
        base = {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.05}
        file.write_text(json.dumps(json.loads(file.read_text()) | base))
    family = json.loads((run / "family.json").read_text())
    family["measured"]["temperature"] = temperature
    (run / "family.json").write_text(json.dumps(family))
    assert export(run, tmp_path / "out") == 0
    how = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    about_tokens = {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version"}
    assert {k: v for k, v in how.items() if k not in about_tokens} == {
        **{"max_new_tokens": 256},
        **sampling,
    }


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


def adapter_run(tmp_path, base="pocket", base_level=None):
    """A run whose checkpoint is an adapter on the pocket model; the model with the adapter on."""
    run = write_run(tmp_path)
    folder = run / "checkpoints" / "step-0020"
    adapted = write_adapter(folder, base)
    made = {"model": "checkpoints/step-0020", "folder": True, "hash": weights_hash(folder)}
    short = level("concise", 57.0, adapter=True, **made)
    full = level("full", 129.0, hash=weights_hash(pocket()), **(base_level or {}))
    (run / "family.json").write_text(json.dumps(plain_family([short, full])))
    return run, adapted


def test_an_adapter_is_merged_into_its_base(tmp_path):
    run, adapted = adapter_run(tmp_path)
    assert export(run, tmp_path / "out") == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "model.safetensors" in names and "adapter_config.json" not in names
    ids = torch.tensor([[5, 9, 20, 31]])
    with torch.inference_mode():
        ours = AutoModelForCausalLM.from_pretrained(tmp_path / "out")(ids).logits
        base = load_model("pocket").model(ids).logits
        assert torch.allclose(ours, adapted(ids).logits, atol=1e-4)
        assert not torch.allclose(ours, base, atol=1e-2)


def test_an_adapter_is_exported_as_one_with_the_name_its_base_has_on_the_hub(tmp_path):
    from peft import PeftModel

    local = {"base": str(pocket()), "base_level": {"model": "owner/small"}}  # loaded from here
    run, adapted = adapter_run(tmp_path, **local)
    to = tmp_path / "out"
    command = ["export", str(run), "--level", "concise", "--adapter", "--to", str(to)]
    assert main(command) == 0
    names = {path.name for path in to.iterdir()}
    assert {"adapter_model.safetensors", "README.md", "tokenizer.json"} <= names
    assert "model.safetensors" not in names
    settings = json.loads((to / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "owner/small"
    card = (to / "README.md").read_text()
    assert "library_name: peft" in card and "base_model: owner/small" in card
    assert "vllm serve owner/small --enable-lora --lora-modules concise=FOLDER" in card
    assert str(pocket()) not in card
    ids = torch.tensor([[5, 9, 20, 31]])
    with torch.inference_mode():
        ours = PeftModel.from_pretrained(load_model("pocket").model, to)(ids).logits
        assert torch.allclose(ours, adapted(ids).logits, atol=1e-5)


def test_an_adapter_needs_a_base_that_others_have(run, tmp_path, capsys):
    command = ["export", str(run), "--level", "concise", "--adapter", "--to", str(tmp_path / "a")]
    assert main(command) == 2
    own, _ = adapter_run(tmp_path)
    assert main(["export", str(own), *command[2:]]) == 2
    received = capsys.readouterr().err
    assert "a whole model: leave out --adapter" in received
    assert "is pocket, which others do not have" in received


def push(run, url, token, *options, home):
    """`crt export --push` in a process of its own, whose hub is at this address."""
    command = [sys.executable, "-m", "crt", "export", str(run), "--level", "concise", *options]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        **{"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"},
        **({"HF_TOKEN": token} if token else {}),
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_a_level_is_pushed_with_the_users_own_login(run, tmp_path):
    with hub() as server:
        options = ("--push", "me/demo-concise", "--private")
        done = push(run, server.url, TOKEN, *options, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{server.url}/me/demo-concise/commit/abc: demo:concise, 94.8 % right" in done.stdout
    made = server.repositories["me/demo-concise"]
    assert made["visibility"] == "private"
    assert "# demo:concise" in server.files["README.md"].decode()
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= server.files.keys()
    (tmp_path / "model").mkdir()
    for name, content in server.files.items():
        (tmp_path / "model" / name).write_bytes(content)
    AutoModelForCausalLM.from_pretrained(tmp_path / "model")


def test_without_a_login_the_push_says_how_to_log_in(run, tmp_path):
    with hub() as server:
        to = tmp_path / "out"
        done = push(run, server.url, None, "--to", str(to), "--push", "me/x", home=tmp_path)
    assert done.returncode == 2 and server.files == {}
    assert "log in with `hf auth login`" in done.stderr and "Traceback" not in done.stderr
    assert (to / "README.md").is_file()  # what was exported stays


def test_where_to_is_said_before_anything_is_written(run, capsys):
    command = ["export", str(run), "--level", "concise"]
    assert main(command) == main([*command, "--push", "no-owner"]) == 2
    received = capsys.readouterr().err
    assert "give a folder to write" in received and "'no-owner' is not OWNER/NAME" in received
