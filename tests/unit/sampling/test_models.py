"""A model by its name: what is loaded is what was asked for, or one sentence says why not."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from crt.errors import EngineError
from crt.sampling import models as found_models
from crt.sampling.models import base_of, cache_bytes, describe_dtype, load_model, weights_hash

SHAPE = {
    "vocab_size": 8,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "eos_token_id": 1,
    "bos_token_id": None,
    "pad_token_id": 0,
}


def tokenizer(words=("<pad>", "<end>", "<unk>", "ab", "c")):
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("ab|."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", unk_token="<unk>")


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**SHAPE)).save_pretrained(tmp_path / "m")
    tokenizer().save_pretrained(tmp_path / "m")
    return tmp_path / "m"


def test_a_folder(folder):
    found = load_model(str(folder))
    assert found.files.eos_token_ids == (1,)
    assert found.files.context == 64
    assert found.dtype == "float32" and not found.model.training
    assert found.hash == weights_hash(folder)
    # 2 (keys and values) × 2 layers × 1 head × 4 numbers × 4 bytes
    assert cache_bytes(found.model) == 64


def test_a_run_stands_for_the_checkpoint_that_it_recommends(folder, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text("{}")  # the run's own, no model's
    with pytest.raises(EngineError, match="recommends no checkpoint yet"):
        load_model(str(run))
    folder.rename(run / "checkpoints" / "step-0012")
    (run / "progress.json").write_text('{"recommended": 12}')
    assert load_model(str(run)).hash == weights_hash(run / "checkpoints" / "step-0012")


def test_a_tokenizer_of_its_own_is_not_replaced_by_the_familys(folder):
    # AutoTokenizer takes every Qwen2 folder's words for Qwen2's: "ab" would fall apart
    assert load_model(str(folder)).tokenizer.tokenize("abc") == ["ab", "c"]


def test_the_hash_is_of_the_weights_and_not_of_the_name(folder, tmp_path):
    before = weights_hash(folder)
    folder.rename(tmp_path / "elsewhere")
    assert weights_hash(tmp_path / "elsewhere") == before
    file = tmp_path / "elsewhere/model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"][0] += 1e-3
    save_file(weights, file, metadata={"format": "pt"})
    assert weights_hash(tmp_path / "elsewhere") != before


def test_several_ends(folder):
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 3]}))
    assert load_model(str(folder)).files.eos_token_ids == (1, 3)


def test_another_dtype(folder):
    assert load_model(str(folder), dtype="bfloat16").dtype == "bfloat16"


def test_an_adapter_is_loaded_on_its_base(folder, tmp_path):
    from peft import LoraConfig, get_peft_model

    base = load_model(str(folder)).model
    plain = base.lm_head.weight.clone()
    adapted = get_peft_model(
        base, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    )
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.5)
    adapted.peft_config["default"].base_model_name_or_path = str(folder)
    adapted.save_pretrained(tmp_path / "adapter")
    assert base_of(tmp_path / "adapter") == str(folder)
    found = load_model(str(tmp_path / "adapter"))
    assert found.hash not in (weights_hash(folder), None)
    assert torch.equal(found.model.lm_head.weight, plain)
    query = "model.layers.0.self_attn.q_proj.weight"
    ours = dict(found.model.named_parameters())[query]
    assert not torch.equal(ours, load_file(folder / "model.safetensors")[query])
    assert found.tokenizer.tokenize("abc") == ["ab", "c"]  # the base's own


def refused(name, told, **settings):
    with pytest.raises(EngineError, match=told) as error:
        load_model(str(name), **settings)
    assert "\n" not in str(error.value)


def test_no_such_model(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refused(tmp_path, "has no config.json")
    refused("no such model", "is no folder, no .gguf file, no hub id")
    refused("./nothing/here", "is no folder, no .gguf file, no hub id")


def test_pickled_weights_are_refused(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    refused(folder, "only pytorch_model.bin, which can run code")


def test_damaged_files(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    refused(folder, "the model in .* cannot be loaded")
    (folder / "model.safetensors").write_bytes(whole)
    (folder / "config.json").write_text("{")
    refused(folder, "the configuration in .* cannot be loaded")


def test_no_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    refused(folder, "has no tokenizer")  # the library would make an empty one


def test_a_tokenizer_of_another_model(folder):
    tokenizer([*("<pad>", "<end>", "<unk>"), *map(str, range(9))]).save_pretrained(folder)
    refused(folder, "has token 11, but the model has 8 embeddings")


def test_no_end(tmp_path):
    LlamaForCausalLM(LlamaConfig(**{**SHAPE, "eos_token_id": None})).save_pretrained(tmp_path)
    words = tokenizer()
    words.eos_token = None
    words.save_pretrained(tmp_path)
    refused(tmp_path, "names no token that ends a response")


def test_large_float32_models_are_used_in_bfloat16_where_it_is_faster(folder, monkeypatch):
    monkeypatch.setattr(found_models, "cpu_flags", lambda: frozenset({"avx512_bf16"}))
    monkeypatch.setattr(found_models, "has_gpu", lambda: False)
    assert load_model(str(folder)).dtype == "float32"  # small
    monkeypatch.setattr(found_models, "BFLOAT16_PARAMETERS", 10)
    used = load_model(str(folder))
    assert used.dtype == "bfloat16"
    (said,) = describe_dtype(used.files, "auto", used.dtype)
    assert said.startswith(f"{folder} is used in bfloat16") and 'dtype = "float32"' in said
    assert load_model(str(folder), dtype="float32").dtype == "float32"  # turned off
    monkeypatch.setattr(found_models, "cpu_flags", lambda: frozenset({"avx2"}))
    assert load_model(str(folder)).dtype == "float32"
    assert not list(describe_dtype(used.files, "auto", "float32"))
