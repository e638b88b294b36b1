"""Methods that need more than a reward: budgets in the prompt, and samples of the reference."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from crt.algorithm.baselines import L1Exact, O1Pruner
from crt.algorithm.batch import Batch
from crt.cli import main
from crt.data.prompts import Prompt
from crt.io import read_json
from crt.recipes import load_recipe
from crt.run import Run
from crt.training.context import RunContext
from crt.training.stage import Stage, problem_order, prompts_of
from crt.training.trl.rollouts import FastRollouts
from crt.training.trl.trainer import CRTTrainer
from tests.support.trained import rows, same, train, weights

METHOD = re.compile(r"\[method\].*?(?=\[schedule\])", re.DOTALL)


def variant(tiny: Path, name: str, method: str) -> Path:
    """The tiny recipe with another method."""
    path = tiny / f"{name}.toml"
    path.write_text(METHOD.sub(lambda _: method, (tiny / "recipe.toml").read_text()))
    return path


L1 = """
[method]
type = "l1_exact"
penalty = 0.1
low = 2
high = 9
"""


@pytest.fixture(scope="module")
def l1_recipe(tiny) -> Path:
    stated = 'instruction = "{question}"\nbudget = "l1-exact"\nbudget_tokens = 4\n'
    recipe = variant(tiny, "l1", L1)
    text = recipe.read_text().replace('instruction = "{question}"\n', stated)
    recipe.write_text(text.replace("steps = 8", "steps = 4"))
    return recipe


def test_a_problem_comes_again_with_another_budget(l1_recipe, tmp_path):
    context = RunContext(load_recipe(l1_recipe), tmp_path)
    objective = context.config.method
    assert isinstance(objective, L1Exact)
    order = problem_order(context.problems[0], 4, 30, context.config.seed)
    sent = prompts_of(context, Stage(1, objective, "", 0, 30), order)
    by_problem: dict[str, set[int | None]] = {}
    for prompt in sent:
        assert prompt.messages[-1]["content"].endswith(f" Think for {prompt.budget} tokens.")
        by_problem.setdefault(prompt.problem_id, set()).add(prompt.budget)
    assert max(len(seen) for seen in by_problem.values()) > 1
    # a stage that begins at step 10 asks what it would have asked then
    later = prompts_of(context, Stage(1, objective, "", 10, 20), order[10:])
    assert later == sent[40:]
    assert context.plain.settings.budget == "none"
    assert context.about(context.base, context.sampling)["prompt"] == context.plain.hash
    context.close()


@pytest.fixture(scope="module")
def l1_run(l1_recipe, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert train(l1_recipe.parent, run, recipe=l1_recipe.name).returncode == 0
    return run


def test_l1_killed_and_resumed_is_the_same_run(tiny, l1_recipe, l1_run, tmp_path):
    broken = tmp_path / "broken"
    assert train(tiny, broken, "before the row", 3, l1_recipe.name).returncode == -9
    assert train(tiny, broken).returncode == 0
    same(broken, l1_run)
    drawn = [row["budget"] for row in rows(l1_run)]
    assert len(set(drawn)) > 1 and all(2 <= mean <= 9 for mean in drawn)


def test_checkpoints_are_told_the_budget_and_the_base_is_not(tiny, l1_run, capsys):
    data = f"{tiny / 'data.jsonl'}:4"
    words = ["--data", data, "--rollouts", "2", "--max-tokens", "10", "--all-checkpoints"]
    assert main(["eval", str(l1_run), *words]) == 0
    assert "stated token budget" in capsys.readouterr().err
    (folder,) = (l1_run / "evaluations").iterdir()
    told = {p.parent.name: read_json(p)["prompt"] for p in folder.glob("*/manifest.json")}
    assert told.pop("base")["budget"] is None
    assert {prompt["budget"] for prompt in told.values()} == {4}
    assert all(prompt["settings"]["budget"] == "l1-exact" for prompt in told.values())


OFFLINE = """
[method]
type = "o1_pruner"
"""


def test_offline_the_samples_do_not_depend_on_what_was_learnt(tiny, tmp_path):
    recipe = variant(tiny, "offline", OFFLINE)
    text = recipe.read_text().replace("max_tokens = 10", 'max_tokens = 10\nsource = "reference"')
    recipe.write_text(text.replace("steps = 8", "steps = 4"))
    for name, rate in (("fast", "1e-2"), ("slow", "1e-4")):
        words = ("--set", f"optim.learning_rate={rate}", "--set", "optim.estimator=whitened")
        assert train(tiny, tmp_path / name, recipe=recipe.name, words=words).returncode == 0
    fast, slow = Run.open(tmp_path / "fast"), Run.open(tmp_path / "slow")
    assert all(fast.rollouts(step) == slow.rollouts(step) for step in (1, 2, 3, 4))
    one, other = weights(fast.path, 4), weights(slow.path, 4)
    assert not all(torch.equal(one[name], other[name]) for name in one)


class Watching(CRTTrainer):
    """Notes, before each update, the ratio of every response and the loss with its gradient."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[dict[str, torch.Tensor]] = []

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = inputs["completion_mask"]
        attention = torch.cat([inputs["prompt_mask"], mask], 1)
        position = (attention.cumsum(1) - 1).clamp(min=0)
        logits = model(input_ids=ids, attention_mask=attention, position_ids=position).logits
        every = logits.log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None])[:, :, 0]
        mine = every[:, -mask.shape[1] :]
        gap = (mine - inputs["old_per_token_logps"]) * mask
        ratio = (gap.sum(1) / mask.sum(1)).exp()
        weight = inputs["advantages"]
        hand = -torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight).mean()
        table = model.get_input_embeddings().weight
        theirs, ours = (
            torch.autograd.grad(each, table, retain_graph=True)[0] for each in (loss, hand)
        )
        self.seen.append({
            "ratio": ratio.detach(), "loss": loss.detach(), "hand": hand.detach(),
            "gradient": theirs, "by_hand": ours,
        })  # fmt: skip
        return loss


def offline(tiny: Path, folder: Path, steps: int) -> Watching:
    tokenizer = AutoTokenizer.from_pretrained(tiny / "model")
    policy, frozen = (AutoModelForCausalLM.from_pretrained(tiny / "model") for _ in range(2))
    texts = ["red hmm <go>", "green hmm <go>", "blue hmm <go>", "red red <go>"] * steps
    names = [f"p{i % 4}" for i in range(len(texts))]
    prompts = [
        Prompt(name, (), text, tuple(tokenizer.encode(text)), False)
        for name, text in zip(names, texts, strict=True)
    ]
    fast = FastRollouts(prompts, 0, 10, 1.0, frozen=frozen.eval())
    rows = [{"prompt": p.text, "problem_id": p.problem_id} for p in prompts]
    reference = Batch(("p0", "p1", "p2", "p3"), [[1, 0]] * 4, [[5, 7]] * 4)
    return Watching(
        model=policy,
        reward_funcs=[lambda completions, **_: [float("wait" in text) for text in completions]],
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=1,
            num_generations=4,
            max_completion_length=10,
            max_steps=steps,
            learning_rate=1e-2,
            beta=0.0,
            loss_type="grpo",
            importance_sampling_level="sequence",
            epsilon=0.2,
            shuffle_dataset=False,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        rollout_func=fast,
        objective=O1Pruner(),
        reference=reference,
        estimator="whitened",
        off_policy=True,
    )


def test_offline_the_ratio_is_to_the_model_that_wrote_the_response(tiny, tmp_path):
    trainer = offline(tiny, tmp_path, 3)
    trainer.train()
    first, *later = trainer.seen
    # the policy begins as a copy of the frozen model: the ratio is 1
    assert first["ratio"].numpy() == pytest.approx(1.0, abs=1e-4)
    # and is not after an update
    assert all((each["ratio"] - 1).abs().max() > 0.01 for each in later)


def test_offline_loss_and_gradient_are_the_papers(tiny, tmp_path):
    # loss = mean of −min(r·w, clip(r, 0.8, 1.2)·w), r of the mean log-probabilities, by hand
    trainer = offline(tiny, tmp_path, 3)
    trainer.train()
    for each in trainer.seen:
        assert each["loss"].item() == pytest.approx(each["hand"].item(), abs=1e-5)
        assert torch.allclose(each["gradient"], each["by_hand"], atol=1e-5)
        assert each["gradient"].abs().max() > 1e-3
