"""`algorithm.rollout_correction` reaches the actor's loss, per token, and masked rows do not."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("verl", reason="make test-engines makes the environment for this")

from tensordict import TensorDict

from crt.algorithm.batch import Batch
from crt.algorithm.objectives import Shorten
from crt.algorithm.step import Step
from crt.recipes import load_recipe
from crt.training.stage import Stage
from crt.training.verl.advantages import BatchAdvantages, decide_batch
from crt.training.verl.data import StageFolder
from crt.training.verl.overrides import Model, compose_config, training
from crt.types import Rollout, Verdict

MODEL = Model(Path("/models/base"), "float32", 300, (7,))
REFERENCE = Batch(("a",), [[1, 1]], [[20, 30]])
RATIOS = [[1.0, 3.0], [0.5, 1.0, 1.0], [1.0], [4.0]]  # the trainer's probability to the sampler's


def composed_config(*changes: str) -> Any:
    recipe = load_recipe(Path(__file__).parent / "pocket.toml", list(changes))
    stage, folder = Stage(1, Shorten(), "m", 0, 1), StageFolder(Path("/run"))
    return compose_config(training(recipe, Path("/run"), folder, stage, MODEL))


def nested(rows: list[list[float]]) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(r) for r in rows], layout=torch.jagged)


def fields(correction: Any) -> tuple[Any, Any, Any]:
    from crt.training.verl.trainer import loss_fields

    ones = nested([[1.0] * len(row) for row in RATIOS])
    data = TensorDict(
        {
            "response_mask": ones.to(torch.int64),
            "old_log_probs": nested([[0.0] * len(row) for row in RATIOS]),
            "rollout_log_probs": nested([[-math.log(x) for x in row] for row in RATIOS]),
        },
        batch_size=4,
    )
    masked = [False, False, True, False]
    advantages = BatchAdvantages([1.0, -1.0, 0.0, 0.5], masked, Step(None, ()))
    return loss_fields(data, advantages, correction)


def values(tensor: torch.Tensor) -> list[list[float]]:
    return [pytest.approx(row.tolist(), rel=1e-6) for row in tensor.unbind()]


def test_weights_are_per_token_and_truncated_at_two():
    found, weights, _ = fields(composed_config().algorithm.rollout_correction)
    assert values(found["rollout_is_weights"]) == [[1.0, 2.0], [0.5, 1.0, 1.0], [1.0], [2.0]]
    # (1 + 2) / 2, (0.5 + 1 + 1) / 3, 1, 2
    assert weights == pytest.approx([1.5, 2.5 / 3, 1.0, 2.0])


def test_a_masked_row_has_no_token_in_the_loss():
    found, _, _ = fields(composed_config().algorithm.rollout_correction)
    mask = [row.tolist() for row in found["response_mask"].unbind()]
    assert mask == [[1, 1], [1, 1, 1], [0], [1]]
    assert values(found["advantages"]) == [[1.0, 1.0], [-1.0, -1.0, -1.0], [0.0], [0.5]]


def test_a_rejected_token_has_no_weight_either():
    key = "verl.algorithm.rollout_correction"
    changed = [f'{key}.rollout_rs="token_k1"', f'{key}.rollout_rs_threshold="0.4_2.5"']
    found, weights, _ = fields(composed_config(*changed).algorithm.rollout_correction)
    # ratios of 3 and 4 are outside
    mask = [row.tolist() for row in found["response_mask"].unbind()]
    assert mask == [[1, 0], [1, 1, 1], [0], [0]]
    assert weights == pytest.approx([0.5, 2.5 / 3, 1.0, 0.0])


def test_without_weights_there_are_none():
    changed = 'verl.algorithm.rollout_correction.rollout_is="null"'
    found, weights, _ = fields(composed_config(changed).algorithm.rollout_correction)
    assert weights is None and "rollout_is_weights" not in found


def test_the_loss_is_weighed_token_by_token():
    """The gradient by a token's log-probability is −A times its weight, over 7 tokens."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.utils.config import omega_conf_to_dataclass

    whole = composed_config()
    found, _, _ = fields(whole.algorithm.rollout_correction)
    padded = found.to_padded_tensor()
    actor = omega_conf_to_dataclass(whole.actor_rollout_ref.actor)
    now = torch.zeros(4, 3, requires_grad=True)
    actor.global_batch_info.update(dp_size=1, batch_num_tokens=7, global_batch_size=4)
    loss, _ = get_policy_loss_fn(actor.policy_loss.get("loss_mode", "vanilla"))(
        old_log_prob=torch.zeros(4, 3), log_prob=now, advantages=padded["advantages"],
        response_mask=padded["response_mask"].bool(), loss_agg_mode=actor.loss_agg_mode,
        config=actor, rollout_is_weights=padded["rollout_is_weights"],
    )  # fmt: skip
    loss.backward()
    weighed = torch.tensor([[-1.0, -2.0, 0], [0.5, 1.0, 1.0], [0, 0, 0], [-1.0, 0, 0]]) / 7
    torch.testing.assert_close(now.grad, weighed)


def test_the_step_shows_the_weight_of_each_length_without_the_rows_that_verl_added():
    from crt.training.verl.trainer import add_weight_by_length

    rollouts = [Rollout("a", "", length, "eos", Verdict.WRONG) for length in (40, 10, 30, 20)]
    found, _ = decide_batch(Shorten(), [*rollouts, None], REFERENCE, 4)
    add_weight_by_length(found.step, [*rollouts, None], [0.4, 1.0, 0.6, 0.8, 7.0])
    assert found.step.signal is not None
    assert found.step.signal.row["weight_by_length"] == [1.0, 0.8, 0.6, 0.4]


def test_entropy_and_kl_are_of_the_tokens_that_are_token_metrics():
    from crt.training.verl.trainer import token_metrics

    data = TensorDict(
        {
            "entropy": nested([[0.2, 0.4], [9.0]]),
            "old_log_probs": nested([[-1.0, -2.0], [-3.0]]),
            "ref_log_prob": nested([[-1.0, -1.0], [-9.0]]),
        },
        batch_size=2,
    )
    # k3 of the second token: exp(1) − 1 − 1
    metrics = token_metrics(data, nested([[1, 1], [0]]))
    assert metrics == pytest.approx({"crt/entropy": 0.3, "crt/kl": (math.e - 2) / 2}, rel=1e-5)
    assert token_metrics(data, nested([[0, 0], [0]])) == {}
