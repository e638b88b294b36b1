"""One batch through both engines gives one gradient: same loss, same normaliser, same masks.

verl's side is its own FSDP engine and its own actor loss in this process, with the settings that
`overrides.training` makes of the recipe. TRL's side is one step of `CRTTrainer`.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("verl", reason="make test-engines makes the environment for this")

from datasets import Dataset
from tensordict import TensorDict
from transformers import AutoModelForCausalLM, TrainerCallback

from crt import pocket
from crt.algorithm.batch import Batch
from crt.algorithm.objectives import Shorten
from crt.config import RunConfig
from crt.recipes import load_recipe
from crt.sampling.models import load_tokenizer, model_files
from crt.training.stage import Stage
from crt.training.trl.config import settings
from crt.training.trl.trainer import CRTTrainer
from crt.training.verl.advantages import decide_batch
from crt.training.verl.data import StageFolder
from crt.training.verl.overrides import Model, compose_config, training
from crt.types import Rollout, Verdict

HERE = Path(__file__).parent
NAMES, GROUP, CAP = ("a", "b", "c"), 4, 24
LENGTHS = [[5, 9, 14, 3], [7, 7, 12, 4], [6, CAP, 11, 20]]
# a is mixed; b is all right, so it has no signal; of c the second is cut off and muted.
CORRECT = [[1, 0, 1, 0], [1, 1, 1, 1], [1, 0, 0, 1]]
REFERENCE = Batch(NAMES, np.ones((3, 4)), np.full((3, 4), 10.0))  # all right: an accuracy step


def config_of(engine: str, loss: str) -> RunConfig:
    return load_recipe(
        HERE / "pocket.toml",
        [
            f'engine="{engine}"', f'optim.loss="{loss}"', "optim.kl=0.1", "optim.grad_norm=1e9",
            "optim.micro_batch=4", 'grading.truncated="mask"', "schedule.problems_per_step=3",
            "sampling.group_size=4", f"sampling.max_tokens={CAP}", "sampling.temperature=0.9",
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    """The pocket model with some noise: away from the reference, so that there is a KL."""
    folder = tmp_path_factory.mktemp("policy")
    model = AutoModelForCausalLM.from_pretrained(pocket.path(), dtype=torch.float32)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.02 * torch.randn_like(weight))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((pocket.path() / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def responses() -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and responses of 3 × 4 rollouts; one that is not cut off ends."""
    end = model_files("pocket").eos_token_ids[0]
    rng = np.random.default_rng(1)
    words = [int(token) for token in rng.integers(10, 200, 400) if token != end]
    prompts, said = [], []
    for problem, lengths in enumerate(LENGTHS):
        for length in lengths:
            at = int(rng.integers(0, 300))
            prompts.append(words[problem : problem + 4 + problem])
            said.append([*words[at : at + length - 1], words[0] if length == CAP else end])
    return prompts, said


def scored(model: Any, prompts: Any, said: Any, temperature: float) -> list[torch.Tensor]:
    """Each response's log-probabilities, by a plain pass."""
    scores = []
    for prompt, response in zip(prompts, said, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + response])).logits[0] / temperature
        rows = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        scores.append(rows.gather(1, torch.tensor(response)[:, None])[:, 0])
    return scores


def nested(rows: list[Any], dtype: Any = None) -> torch.Tensor:
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)


def through_trl(loss: str, policy: Path, prompts: Any, said: Any, folder: Path) -> dict[str, Any]:
    """The gradient of CRTTrainer's first step."""
    config = config_of("local", loss)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    model.config._name_or_path = str(pocket.path())  # from there TRL loads the KL's reference
    right = dict(zip(map(tuple, said), np.ravel(CORRECT).tolist(), strict=True))
    gradient: dict[str, Any] = {}

    class Keep(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            gradient.update({name: w.grad.clone() for name, w in model.named_parameters()})

    def rollouts(_: Any, trainer: Any) -> dict[str, Any]:
        logprobs = [each.tolist() for each in scored(trainer.model, prompts, said, 0.9)]
        return {"prompt_ids": prompts, "completion_ids": said, "logprobs": logprobs}

    def reward(completion_ids: Any, **_: Any) -> list[float]:
        return [float(right[tuple(ids)]) for ids in completion_ids]

    CRTTrainer(
        model=model,
        reward_funcs=[reward],
        args=settings(config, str(folder), 1, "cpu", 1, "float32"),
        train_dataset=Dataset.from_list([{"prompt": x, "problem_id": x} for x in NAMES]),
        processing_class=load_tokenizer(pocket.path()),
        callbacks=[Keep()],
        rollout_func=rollouts,
        objective=Shorten(),
        reference=REFERENCE,
        truncated_as=config.grading.truncated,
    ).train()
    return gradient


def through_verl(loss: str, policy: Path, prompts: Any, said: Any) -> dict[str, Any]:
    """The gradient of verl's FSDP engine with verl's actor loss, before its optimiser step."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine import EngineRegistry
    from verl.workers.utils.losses import ppo_loss

    from crt.training.verl.trainer import loss_fields

    config = config_of("verl", loss)
    files = model_files("pocket")
    about = Model(policy, "float32", 16, files.eos_token_ids)
    stage, folder = Stage(1, Shorten(), "m", 0, 1), StageFolder(Path("/run"))
    whole = compose_config(training(config, Path("/run"), folder, stage, about))
    actor = omega_conf_to_dataclass(whole.actor_rollout_ref.actor)
    actor.model_config = model_config = omega_conf_to_dataclass(whole.actor_rollout_ref.model)
    engine = EngineRegistry.new(
        model_type="language_model", backend=actor.engine.strategy, model_config=model_config,
        engine_config=actor.engine, optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )  # fmt: skip
    engine.initialize()

    data = batch_of(config, policy, prompts, said)
    advantages, _ = decide_batch(
        Shorten(), rollouts_of(), REFERENCE, GROUP, config.optim.estimator, config.grading.truncated
    )
    fields, weights, _ = loss_fields(data, advantages, whole.algorithm.rollout_correction)
    assert weights == pytest.approx([1.0] * 12, abs=1e-4)
    data.update(fields)
    tu.assign_non_tensor(
        data, temperature=config.sampling.temperature, global_batch_size=12,
        use_dynamic_bsz=False, micro_batch_size_per_gpu=config.optim.micro_batch,
        use_remove_padding=False, calculate_entropy=False,
    )  # fmt: skip
    with engine.train_mode():
        engine.optimizer_zero_grad()
        engine.forward_backward_batch(data, functools.partial(ppo_loss, config=actor))
        return {
            name: weight.grad.full_tensor().clone()
            for name, weight in engine.module.named_parameters()
        }


def rollouts_of() -> list[Rollout]:
    return [
        Rollout(
            name, "", length, "length" if length == CAP else "eos",
            Verdict.CORRECT if correct else Verdict.WRONG,
        )
        for name, lengths, group in zip(NAMES, LENGTHS, CORRECT, strict=True)
        for length, correct in zip(lengths, group, strict=True)
    ]  # fmt: skip


def batch_of(config: RunConfig, policy: Path, prompts: Any, said: Any) -> TensorDict:
    """What verl's trainer has in its queue before the advantages."""
    own, frozen = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for folder in (policy, pocket.path())
    )
    old = scored(own, prompts, said, config.sampling.temperature)
    whole = [p + r for p, r in zip(prompts, said, strict=True)]
    ones = nested([[1] * len(response) for response in said])
    fields = {
        "prompts": nested(prompts),
        "responses": nested(said),
        "input_ids": nested(whole),
        "position_ids": nested([list(range(len(ids))) for ids in whole]),
        "response_mask": ones,
        "loss_mask": ones.clone(),
        "old_log_probs": nested(old),
        "rollout_log_probs": nested(old),
        "ref_log_prob": nested(scored(frozen, prompts, said, config.sampling.temperature)),
    }
    return TensorDict(fields, batch_size=len(said))


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """A process group of this process alone: FSDP wants one."""
    store = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("loss", ["token_mean", "sequence_mean"])
def test_one_batch_through_both_engines_is_one_gradient(
    loss, policy, responses, one_process, tmp_path
):
    ours = through_trl(loss, policy, *responses, tmp_path)
    theirs = through_verl(loss, policy, *responses)
    assert ours.keys() == theirs.keys()
    size = torch.sqrt(sum((grad**2).sum() for grad in ours.values()))
    apart = torch.sqrt(sum(((ours[name] - theirs[name]) ** 2).sum() for name in ours))
    print(f"{loss}: gradient {size:.6f}, apart {apart:.2e}")
    assert size > 0.01
    assert apart < 2e-5 * size
