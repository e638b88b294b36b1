"""TRL's trainer with our objective, on a random model of a few thousand parameters."""

import copy
import itertools
import json
import math
import os
import sys

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from crt.algorithm.batch import TOKENS_ALONE, Batch, Measures
from crt.algorithm.objectives import AccuracyOnly, LengthOnly, PrimalDual, Shorten
from crt.algorithm.step import signal
from crt.data.prompts import Prompt
from crt.errors import ConfigError, DataError
from crt.training.trl import micro_batches
from crt.training.trl.micro_batches import can_share_prefixes, regroup
from crt.training.trl.rollouts import FastRollouts
from crt.training.trl.trainer import CRTTrainer
from crt.types import Verdict

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

WORDS = ["<pad>", "<eos>", "<unk>", *"abcdefghij"]
GROUP, PROBLEMS = 4, 4


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    vocabulary.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore
    return PreTrainedTokenizerFast(
        tokenizer_object=vocabulary, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def tiny_model() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def says_a(completions, **_) -> list[float]:
    """Correct is what contains an a."""
    return [float("a" in text) for text in completions]


def reference(accuracy: float) -> Batch:
    right = np.arange(10) < round(10 * accuracy)
    names = tuple(f"p{i}" for i in range(100))
    return Batch(names, np.tile(right, (100, 1)), np.full((100, 10), 6.0))


def trainer(
    folder, tokenizer, objective, ref=None, steps=4, reward=says_a, **changes
) -> CRTTrainer:
    on_step = changes.pop("on_step", None)
    truncated_as = changes.pop("truncated_as", "wrong")
    peft_config = changes.pop("peft_config", None)
    rollout_func = changes.pop("rollout_func", None)
    off_policy = changes.pop("off_policy", False)
    measures = changes.pop("measures", TOKENS_ALONE)
    rows = [{"prompt": " ".join("abcdef"[: 1 + i % 5]), "problem_id": f"p{i}"} for i in range(80)]
    settings = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": PROBLEMS * GROUP // 2,
        "gradient_accumulation_steps": 2,
        "num_generations": GROUP,
        "max_completion_length": 8,
        "max_steps": steps,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "save_steps": 2,
        "logging_steps": 1,
        "report_to": [],
        "beta": 0.0,
        "loss_type": "dapo",
        "shuffle_dataset": False,
        "seed": 3,
        "disable_tqdm": True,
    }
    model = tiny_model()
    if settings["beta"] or changes.get("beta"):  # TRL loads the KL's reference from this name
        model.config._name_or_path = str(folder / "reference")
        with torch.no_grad():  # away from the reference, so that there is a KL
            model.lm_head.weight.mul_(1.5)
    return CRTTrainer(
        model=model,
        reward_funcs=[reward],
        args=GRPOConfig(**(settings | changes)),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        objective=objective,
        reference=reference(0.5) if ref is None else ref,
        truncated_as=truncated_as,
        on_step=on_step,
        peft_config=peft_config,
        rollout_func=rollout_func,
        off_policy=off_policy,
        measures=measures,
    )


def fast_rollouts(tokenizer) -> FastRollouts:
    texts = [" ".join("abcdef"[:n]) for n in range(1, 6)]
    asked = [Prompt(text, (), text, tuple(tokenizer.encode(text)), False) for text in texts]
    fast = FastRollouts(asked, 0, 8, 1.0)
    return fast


def test_the_reference_decides_the_goal(tmp_path, tokenizer):
    goals = {}
    for accuracy in (0.0, 1.0):
        seen = []
        trainer(
            tmp_path, tokenizer, Shorten(rule="switch"), reference(accuracy), 1, on_step=seen.append
        ).train()
        goals[accuracy] = seen[0].signal.decision.goal
    assert goals == {0.0: "length", 1.0: "accuracy"}


def test_the_advantages_are_those_of_the_core(tmp_path, tokenizer):
    """What the trainer trains on is what `signal` says of the same batch."""
    seen = []
    one = trainer(tmp_path, tokenizer, Shorten(), reference(1.0), 1, on_step=seen.append)
    one.train()
    ids = tuple(rollout.problem_id for rollout in one.rollouts[::GROUP])

    def column(values):
        return np.array(list(values)).reshape(-1, GROUP)

    correct = column(rollout.verdict is Verdict.CORRECT for rollout in one.rollouts)
    cut = column(rollout.stop == "length" for rollout in one.rollouts)
    length = column(rollout.length for rollout in one.rollouts)
    batch = Batch(ids, correct & ~cut, length, cut)
    expected, _ = signal(Shorten(), batch, reference(1.0))
    assert np.array_equal(seen[0].signal.advantages, expected.advantages)
    assert list(one._logs["advantages"]) == pytest.approx(expected.advantages.reshape(-1).tolist())


def test_one_row_a_step_and_the_multiplier_moves(tmp_path, tokenizer):
    seen = []
    one = trainer(
        tmp_path, tokenizer, PrimalDual(multiplier_rate=1.0), reference(1.0), 3, on_step=seen.append
    )
    one.train()
    rows = [step.signal.row for step in seen]
    assert len(rows) == 3
    for before, after in itertools.pairwise(rows):
        violation = before["reference_accuracy"] - before["accuracy"]
        assert after["multiplier"] == pytest.approx(before["multiplier"] + violation)


def test_length_pressure_shortens(tmp_path, tokenizer):
    seen = []
    one = trainer(tmp_path, tokenizer, LengthOnly(), reference(0.0), 20, on_step=seen.append)
    one.train()
    tokens = [step.signal.row["tokens"] for step in seen]
    assert np.mean(tokens[-3:]) < 0.7 * np.mean(tokens[:3])


@pytest.mark.parametrize("objective", [Shorten(), PrimalDual()], ids=["crt", "pd"])
def test_stopped_and_resumed_is_the_same_run(tmp_path, tokenizer, objective):
    whole_rows, parts_rows = [], []
    whole = trainer(tmp_path / "whole", tokenizer, objective, steps=4, on_step=whole_rows.append)
    whole.train()
    trainer(tmp_path / "parts", tokenizer, objective, steps=2, on_step=parts_rows.append).train()
    rest = trainer(tmp_path / "parts", tokenizer, objective, steps=4, on_step=parts_rows.append)
    rest.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
    assert [s.signal.row for s in whole_rows] == [s.signal.row for s in parts_rows]
    assert whole.objective == rest.objective
    for ours, theirs in zip(whole.model.parameters(), rest.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_memory_is_readable_in_the_checkpoint(tmp_path, tokenizer):
    one = trainer(tmp_path, tokenizer, PrimalDual(), steps=2)
    one.train()
    saved = json.loads((tmp_path / "checkpoint-2" / "objective.json").read_text())
    assert saved == {"multiplier": one.objective.multiplier}


def test_what_could_not_be_graded_is_left_out_not_wrong(tmp_path, tokenizer):
    def fails_on_p1(completions, problem_id, **_):
        return [
            None if name == "p1" else float("a" in text)
            for text, name in zip(completions, problem_id, strict=True)
        ]

    seen = []
    one = trainer(
        tmp_path, tokenizer, Shorten(), reward=fails_on_p1, steps=1, on_step=seen.append,
        truncated_as="grade",
    )  # fmt: skip
    one.train()
    assert seen[0].left_out == ("p1",)
    assert seen[0].signal.row["problems"] == PROBLEMS - 1
    shown = np.array(one._logs["advantages"]).reshape(PROBLEMS, GROUP)
    assert not shown[1].any()


def test_nothing_graded_is_a_step_without_a_signal(tmp_path, tokenizer):
    seen = []
    one = trainer(
        tmp_path, tokenizer, Shorten(), reward=lambda completions, **_: [None] * len(completions),
        steps=1, on_step=seen.append, truncated_as="grade",
    )  # fmt: skip
    before = [p.clone() for p in one.model.parameters()]
    one.train()
    assert seen[0].signal is None and len(seen[0].left_out) == PROBLEMS
    assert all(torch.equal(a, b) for a, b in zip(before, one.model.parameters(), strict=True))


def test_a_reward_that_is_no_verdict_is_refused(tmp_path, tokenizer):
    half = trainer(tmp_path, tokenizer, Shorten(), reward=lambda completions, **_: [0.5] * len(completions))  # fmt: skip  # noqa: E501
    with pytest.raises(ConfigError, match=r"returned 0\.5: it must say 1"):
        half.train()


def test_more_than_one_update_a_batch_is_refused(tmp_path, tokenizer):
    with pytest.raises(ConfigError, match="decides once per batch"):
        trainer(tmp_path, tokenizer, Shorten(), num_iterations=2)


@pytest.mark.parametrize("objective", [LengthOnly(), AccuracyOnly()], ids=["length", "accuracy"])
def test_padding_is_cut_and_the_loss_is_the_same(tmp_path, tokenizer, objective):
    """The same completions with and without packing give the same gradient, KL and all."""
    tiny_model().save_pretrained(tmp_path / "reference")
    gradients = []
    for pack in (True, False):
        one = trainer(tmp_path, tokenizer, objective, steps=1, learning_rate=0.0, beta=0.5)
        if not pack:
            stock = super(CRTTrainer, one)
            one._prepare_inputs = stock._prepare_inputs
            one._get_per_token_logps_and_entropies = stock._get_per_token_logps_and_entropies
        kept = []
        one.optimizer = None
        one.create_optimizer()
        step = one.optimizer.step
        one.optimizer.step = lambda *a, step=step, one=one, kept=kept, **k: (
            kept.extend(p.grad.clone() for p in one.model.parameters()),
            step(*a, **k),
        )
        one.train()
        gradients.append(kept)
        assert one.state.log_history[0]["kl"] < 0.1  # masked rows are not in it
    assert gradients[0] and len(gradients[0]) == len(gradients[1])
    for with_packing, without in zip(*gradients, strict=True):
        assert with_packing == pytest.approx(without, abs=1e-6)


def test_regrouped_rows_are_sorted_and_cut():
    def row(prompt: int, completion: int):
        mask = lambda n, width: torch.arange(width) < n  # noqa: E731
        return mask(prompt, 6).flip(0).long(), mask(completion, 8).long()

    rows = [row(6, 8), row(2, 3), row(3, 0), row(2, 2)]
    batch = {
        "prompt_ids": torch.arange(24).view(4, 6),
        "prompt_mask": torch.stack([p for p, _ in rows]),
        "completion_ids": torch.arange(32).view(4, 8),
        "completion_mask": torch.stack([c for _, c in rows]),
        "advantages": torch.tensor([1.0, 2.0, 3.0, 4.0]),
        "num_items_in_batch": torch.tensor(13),
    }
    halves = [
        {k: v[:2] if v.ndim else v for k, v in batch.items()},
        {k: v[2:] if v.ndim else v for k, v in batch.items()},
    ]
    small, large = regroup(halves, by_prefix=False)
    assert small["advantages"].tolist() == [3.0, 4.0]  # the masked row first, then the shortest
    assert small["completion_ids"].shape == (2, 2) and small["prompt_ids"].shape == (2, 3)
    assert large["advantages"].tolist() == [2.0, 1.0]
    assert large["completion_ids"].shape == (2, 8)
    assert small["completion_ids"][1].tolist() == batch["completion_ids"][3, :2].tolist()
    assert math.isclose(small["num_items_in_batch"], 13)


def test_a_silent_micro_batch_is_not_in_the_mean_entropy(tmp_path, tokenizer):
    """Half of the problems are solved by all: their micro-batch has no entropy, rather than 0."""
    right = {f"p{i}" for i in range(0, 80, 2)}

    def reward(completions, problem_id, **_):
        return [float(k in right or "a" in c) for c, k in zip(completions, problem_id, strict=True)]

    one = trainer(tmp_path, tokenizer, AccuracyOnly(), steps=1, reward=reward,
                  per_device_train_batch_size=1,
                  gradient_accumulation_steps=PROBLEMS * GROUP)  # fmt: skip
    one.train()
    assert one.state.log_history[0]["entropy"] > 2.0  # ln 13 is 2.56, and the model is indifferent


@pytest.mark.parametrize("max_logits", [2**26, 0], ids=["tree", "tiles"])
def test_a_batch_without_completions_costs_next_to_nothing(
    tmp_path, tokenizer, monkeypatch, max_logits
):
    monkeypatch.setattr(micro_batches, "MAX_LOGITS", max_logits)
    batch = {
        "prompt_ids": torch.full((3, 5), 4),
        "prompt_mask": torch.ones(3, 5, dtype=torch.long),
        "completion_ids": torch.full((3, 9), 5),
        "completion_mask": torch.zeros(3, 9, dtype=torch.long),
    }
    (cut,) = regroup([batch], by_prefix=True)
    assert cut["prompt_ids"].shape == (3, 1) and cut["completion_ids"].shape == (3, 2)
    made = trainer(tmp_path, tokenizer, AccuracyOnly())
    ids = torch.cat([cut["prompt_ids"], cut["completion_ids"]], 1)
    mask = torch.cat([cut["prompt_mask"], cut["completion_mask"]], 1)
    said, entropy, _ = made._get_per_token_logps_and_entropies(
        made.model, ids, mask, 2, compute_entropy=True
    )
    assert said.shape == entropy.shape == (3, 2)
    (said * cut["completion_mask"]).sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in made.model.parameters())


def test_a_pass_without_gradient_is_spared_the_padding(tmp_path, tokenizer):
    # Prompts of 1 to 3 tokens padded to 4, completions of 1 to 5 padded to 6: the log-probabilities
    # are those of the padded pass, and fewer positions are computed.
    made = trainer(tmp_path, tokenizer, AccuracyOnly(), reference(0.5))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, len(WORDS), (6, 10), generator=generator)
    mask = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate([(1, 5), (3, 1), (2, 2), (3, 3), (1, 1), (2, 4)]):
        mask[row, 4 - prompt : 4 + completion] = 1
    computed = []
    hook = made.model.register_forward_pre_hook(
        lambda _, args, kwargs: computed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    with torch.no_grad():
        ours, _, _ = made._get_per_token_logps_and_entropies(made.model, ids, mask, 6, 2)
        spared = sum(computed)
        theirs, _, _ = super(CRTTrainer, made)._get_per_token_logps_and_entropies(
            made.model, ids, mask, 6, 2
        )
    hook.remove()
    inside = mask[:, 4:].bool()
    assert torch.allclose(ours[inside], theirs[inside], atol=1e-6)
    # Node by node there is no padding, and nothing is predicted after a row's last token.
    assert spared == int(mask.sum()) - len(ids)
    assert sum(computed) - spared == 60


@pytest.mark.parametrize("adapter", [False, True], ids=["whole", "lora"])
def test_the_tree_says_what_tiles_say(tmp_path, tokenizer, monkeypatch, adapter):
    """Log-probabilities, entropies and gradients are TRL's, at the trainer's temperature."""
    lora = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False) if adapter else None
    made = trainer(tmp_path, tokenizer, AccuracyOnly(), temperature=0.7, peft_config=lora)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, len(WORDS), (3, 7), generator=generator)
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1]])
    inside = mask[:, 3:].bool()
    found = []
    for few in (2**26, 0):
        monkeypatch.setattr(micro_batches, "MAX_LOGITS", few)
        assert can_share_prefixes(made.model, 12) is bool(few)
        said, entropy, _ = made._get_per_token_logps_and_entropies(
            made.model, ids, mask, 4, compute_entropy=True
        )
        made.model.zero_grad()
        (said * inside).sum().backward()
        gradients = [p.grad.clone() for p in made.model.parameters() if p.grad is not None]
        found.append((said[inside].detach(), entropy[inside].detach(), gradients))
    (said, entropy, gradients), (other_said, other_entropy, other_gradients) = found
    torch.testing.assert_close(said, other_said, atol=1e-6, rtol=0)
    torch.testing.assert_close(entropy, other_entropy, atol=1e-6, rtol=0)
    assert gradients and max(g.abs().max() for g in gradients) > 1e-3
    torch.testing.assert_close(gradients, other_gradients, atol=1e-6, rtol=1e-5)


def test_long_rows_of_a_large_vocabulary_go_in_tiles():
    model, most = tiny_model(), micro_batches.MAX_LOGITS // len(WORDS)
    assert can_share_prefixes(model, most) and not can_share_prefixes(model, most + 1)


def test_small_numbers_are_flushed_in_a_step_and_not_after_it(tmp_path, tokenizer):
    seen = []

    def reward(completions, **_):
        seen.append(sys.float_info.min / 2)
        return [1.0] * len(completions)

    trainer(tmp_path, tokenizer, Shorten(), reward=reward, steps=1).train()
    assert seen == [0.0] and sys.float_info.min / 2 > 0


def test_muted_rollouts_carry_no_kl(tmp_path, tokenizer):
    # One token each: all but those that end at once are truncated, and whoever ends is wrong.
    tiny_model().save_pretrained(tmp_path / "reference")
    runs = {}
    for how in ("mask", "wrong"):
        one = trainer(tmp_path, tokenizer, LengthOnly(), steps=1, beta=0.5, truncated_as=how,
                      max_completion_length=2, rollout_func=never_ends)  # fmt: skip
        one.train()
        runs[how] = one.state.log_history[0]
    assert runs["mask"]["grad_norm"] == 0.0 and "kl" not in runs["mask"]


def never_ends(prompts, trainer):
    """Responses of two and of one token, none of which has ended."""
    ids = [trainer.processing_class.encode(prompt) for prompt in prompts]
    said = [[4, 5] if i % 2 else [6] for i in range(len(ids))]
    return {"prompt_ids": ids, "completion_ids": said, "logprobs": [[-1.0] * len(t) for t in said]}


def test_the_row_reaches_trls_loggers(tmp_path, tokenizer):
    one = trainer(tmp_path, tokenizer, PrimalDual(), reference(1.0), 1)
    one.train()
    logged = one.state.log_history[0]
    assert logged["crt/stage"] == 1 and logged["crt/multiplier"] == 1.0
    assert logged["crt/goal_length"] == logged["crt/goal_accuracy"] == 0  # both at once
    assert {"crt/margin", "crt/slack", "crt/tokens", "crt/reference_accuracy"} <= logged.keys()


def test_the_weight_of_vllms_responses_is_shown_by_length(tmp_path, tokenizer):
    steps = []
    one = trainer(tmp_path, tokenizer, Shorten(), reference(1.0), 1, on_step=steps.append)
    one.train()
    lengths = [rollout.length for rollout in one.rollouts]
    longest = torch.tensor([length == max(lengths) for length in lengths])
    mask = torch.ones(len(lengths), 3)
    ratio = torch.where(longest[:, None], torch.tensor([0.5, 0.5, 0.8]), torch.ones(3))
    step = one._with_weights(
        steps[0], {"importance_sampling_ratio": ratio, "completion_mask": mask}
    )
    first, *_, last = step.signal.row["weight_by_length"]
    assert first == 1.0 and last == pytest.approx(0.6)  # most of 16 run into the cap


def test_a_data_set_without_problem_ids_is_refused(tmp_path, tokenizer, monkeypatch):
    nameless = Dataset.from_list([{"prompt": "a", "id": "p0"}] * 16)
    monkeypatch.setattr(Dataset, "from_list", lambda _: nameless)
    with pytest.raises(ConfigError, match="columns prompt, id: it needs `problem_id`"):
        trainer(tmp_path, tokenizer, Shorten())


def test_problems_without_reference_rollouts_are_refused_before_sampling(tmp_path, tokenizer):
    few = reference(0.5).select([f"p{i}" for i in range(10)])
    with pytest.raises(DataError, match="70 of 80 problems have no reference rollouts"):
        trainer(tmp_path, tokenizer, Shorten(), few)


def test_tokens_of_a_tool_are_no_length(tmp_path, tokenizer):
    """A rollout function may say with `env_mask` which tokens the model made."""
    words = tokenizer.convert_tokens_to_ids(["a", "b", "c", "d", "<eos>"])

    def with_a_tool(prompts, trainer):
        ids = [tokenizer.encode(prompt) for prompt in prompts]
        return {
            "prompt_ids": ids,
            "completion_ids": [words] * len(prompts),
            "logprobs": [[-1.0] * 5] * len(prompts),
            "env_mask": [[1, 0, 0, 1, 1] if i % 2 else [1] * 5 for i in range(len(prompts))],
        }

    seen = []
    one = trainer(tmp_path, tokenizer, LengthOnly(), steps=1, on_step=seen.append,
                  rollout_func=with_a_tool)  # fmt: skip
    one.train()
    assert [rollout.length for rollout in one.rollouts[:4]] == [5, 3, 5, 3]
    assert seen[0].signal.row["tokens"] == 4.0
    assert seen[0].signal.advantages[0, 1] > 0 > seen[0].signal.advantages[0, 0]


@pytest.mark.parametrize("opened", [True, False])
def test_thinking_that_a_template_opens_and_nobody_ends_is_all_there_is(
    tmp_path, tokenizer, opened
):
    """With a reward function of one's own the trainer sees it in the prompt alone."""
    vocabulary = copy.deepcopy(tokenizer)
    vocabulary.add_tokens(["<think>", "</think>"])
    ids = {word: vocabulary.convert_tokens_to_ids(word) for word in vocabulary.get_vocab()}
    endless, ended = [ids["a"], ids["b"]], [ids[w] for w in ("a", "</think>", "b", "<eos>")]

    def thinks(prompts, trainer):
        asked = [[ids["a"], ids["<think>"]] if opened else [ids["a"], ids["b"]] for _ in prompts]
        said = [ended if i % 2 else endless for i in range(len(prompts))]
        logprobs = [[-1.0] * len(each) for each in said]
        return {"prompt_ids": asked, "completion_ids": said, "logprobs": logprobs}

    numbers = {"thinking": lambda r: r.thinking, "text": lambda r: len(r.text)}
    one = trainer(tmp_path, vocabulary, LengthOnly(), steps=1, rollout_func=thinks,
                  measures=Measures(numbers=numbers))  # fmt: skip
    one.model.resize_token_embeddings(len(vocabulary))
    one.train()
    assert [r.thinking for r in one.rollouts[:2]] == [2 if opened else 0, 2]
    assert one.rollouts[0].text == "a b" and "<eos>" not in one.rollouts[1].text
