"""verl's checkpoint of an adapter, as peft's folder and as a whole model."""

import pytest
import torch
from peft import LoraConfig as PeftConfig
from peft import get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from crt import pocket
from crt.config import LoraConfig
from crt.errors import EngineError
from crt.sampling.models import load_model
from crt.training.verl.recorder import write_adapter
from crt.training.verl.sampler import load_without_weights, merge_adapter

LORA = LoraConfig(rank=2, alpha=4)
ASKED = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture
def one_rank():
    """The process group of verl's workers, here of one and without a thread of its own."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def trained(folder):
    """An adapter that does something, saved as verl saves it: each rank's shards of it alone."""
    torch.manual_seed(0)
    base = load_model("pocket").model
    settings = PeftConfig(r=2, lora_alpha=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, settings)  # pyright: ignore[reportArgumentType]
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
    shards = {}
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data.normal_(std=0.1)
            shards[name] = DTensor.from_local(weight.data, mesh, [Shard(0)])
    folder.mkdir()
    torch.save(shards, folder / "model_world_size_1_rank_0.pt")
    return model


def test_an_adapter_comes_back_as_it_was_trained(tmp_path, one_rank):
    model = trained(tmp_path / "actor")
    write_adapter(tmp_path / "actor", tmp_path / "adapter", pocket.path(), LORA)
    loaded = load_model(str(tmp_path / "adapter"))
    whole = merge_adapter(
        load_without_weights(str(tmp_path / "adapter")), tmp_path / "merged", pocket.path(), {}
    )
    with torch.no_grad():
        expected = model(ASKED).logits
        torch.testing.assert_close(loaded.model(ASKED).logits, expected, atol=1e-4, rtol=1e-4)
        merged = load_model(str(whole)).model(ASKED).logits
        torch.testing.assert_close(merged, expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(expected, load_model("pocket").model(ASKED).logits, atol=0.1)


def test_one_merged_model_is_kept_and_found_again(tmp_path, one_rank):
    trained(tmp_path / "actor")
    write_adapter(tmp_path / "actor", tmp_path / "adapter", pocket.path(), LORA)
    adapter, folder = load_without_weights(str(tmp_path / "adapter")), tmp_path / "merged"
    (folder / "another").mkdir(parents=True)
    first = merge_adapter(adapter, folder, pocket.path(), {})
    assert merge_adapter(adapter, folder, pocket.path(), {}) == first
    assert [path.name for path in folder.iterdir()] == [first.name]


def test_a_checkpoint_without_an_adapter_is_refused(tmp_path):
    with pytest.raises(EngineError, match="holds no adapter"):
        write_adapter(tmp_path, tmp_path / "adapter", pocket.path(), LORA)
