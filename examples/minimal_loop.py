"""Constraint-Rectified Training on a Hugging Face model, on one page: no trainer, no framework.

    python examples/minimal_loop.py                                # the pocket model, two minutes
    python examples/minimal_loop.py --model FOLDER --data problems.jsonl --max-tokens 512

Stage I shortens while accuracy stays at the frozen reference's. Stage II raises accuracy inside the
length that Stage I has learnt. Everything the method says is in `crt.signal`: a graded batch and
the reference's batch go in, one advantage per response comes out. The rest of this page is plain
sampling and plain policy gradient. `crt train` is the same with checkpoints, exact resume, the
choice of the shortest feasible checkpoint, LoRA, several GPUs and vLLM.
"""

import argparse
import copy
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import crt
from crt.pocket import path as pocket_folder

INSTRUCTION = (
    "{question}\nPlease reason step by step, and put your final answer within \\boxed{{}}."
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(pocket_folder()), help="a folder or a hub id")
    parser.add_argument("--data", type=Path, help="JSON lines with `question` and `answer`")
    parser.add_argument("--stage-one", type=int, default=16, help="steps of Stage I")
    parser.add_argument("--stage-two", type=int, default=6, help="steps of Stage II")
    parser.add_argument("--problems", type=int, default=8, help="per step")
    parser.add_argument("--group-size", type=int, default=8, help="responses per problem")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--held-out", type=int, default=64, help="problems measured at the end")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


# --- problems, prompts, verdicts ------------------------------------------------------------------


def load_problems(data: Path | None, count: int, seed: int) -> list[crt.Problem]:
    """From a file, or word problems of the pocket model."""
    if data is None:
        return crt.load_problems(f"pocket/train:{count}", seed=seed)
    rows = [json.loads(line) for line in data.read_text().splitlines() if line.strip()]
    return [crt.Problem(str(i), row["question"], row["answer"]) for i, row in enumerate(rows)]


def encode(tokenizer, problems: list[crt.Problem]) -> dict[str, torch.Tensor]:
    """Prompts of the model's own chat template, padded at the left."""
    turns = [
        [{"role": "user", "content": INSTRUCTION.format(question=problem.question)}]
        for problem in problems
    ]
    return tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
    )


# --- sampling -------------------------------------------------------------------------------------


@torch.no_grad()
def sample(model, tokenizer, problems, args) -> tuple[crt.Batch, torch.Tensor, torch.Tensor]:
    """G responses per problem, graded; their ids with the prompt, and which tokens are theirs."""
    prompts = encode(tokenizer, problems)
    ids = model.generate(
        **prompts, num_return_sequences=args.group_size, max_new_tokens=args.max_tokens,
        do_sample=True, temperature=1.0, top_p=1.0, top_k=0,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    start = prompts["input_ids"].shape[1]
    responses = ids[:, start:]
    ends = torch.isin(responses, torch.tensor(eos_ids(model, tokenizer)))
    # A response goes up to its first end-of-sequence token, which counts.
    mask = (ends.int().cumsum(1) - ends.int()) == 0
    finished = ends.any(1)
    texts = [
        tokenizer.decode(row[keep], skip_special_tokens=True)
        for row, keep in zip(responses, mask, strict=True)
    ]
    owners = [problem for problem in problems for _ in range(args.group_size)]
    correct = [
        crt.grade_response(text, problem) is crt.Verdict.CORRECT and bool(done)
        for text, problem, done in zip(texts, owners, finished, strict=True)
    ]
    shape = (len(problems), args.group_size)
    batch = crt.Batch(
        tuple(problem.id for problem in problems),
        correct=torch.tensor(correct).view(shape).numpy(),
        length=mask.sum(1).view(shape).numpy(),
        truncated=(~finished).view(shape).numpy(),
    )
    return batch, ids, mask


def eos_ids(model, tokenizer) -> list[int]:
    named = model.generation_config.eos_token_id
    return [*([named] if isinstance(named, int) else named or []), tokenizer.eos_token_id]


# --- the update -----------------------------------------------------------------------------------


def update(model, tokenizer, optimizer, ids, mask, advantages) -> None:
    """One policy-gradient step: the mean over all response tokens of −A · log π."""
    weight = torch.tensor(advantages, dtype=torch.float32).view(-1, 1)
    total = mask.sum()
    for rows in torch.arange(len(ids)).split(16):
        if not weight[rows].any():
            continue  # every response of these problems was as good as the others
        some, kept = ids[rows], mask[rows]
        attention = (some != tokenizer.pad_token_id).long()
        attention[:, -kept.shape[1] :] = kept
        logits = model(input_ids=some, attention_mask=attention).logits[:, -kept.shape[1] - 1 : -1]
        logprobs = torch.log_softmax(logits.float(), -1)
        taken = logprobs.gather(-1, some[:, -kept.shape[1] :, None])[..., 0]
        (-(weight[rows] * taken * kept).sum() / total).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


# --- the two stages -------------------------------------------------------------------------------


def train_stage(model, frozen, tokenizer, problems, objective, steps, args, name) -> None:
    """Alg. 1 and its mirror image: sample, decide by the reference, update."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0)
    for step in range(steps):
        start = step * args.problems % len(problems)
        chosen = (problems + problems)[start : start + args.problems]
        batch, ids, mask = sample(model, tokenizer, chosen, args)
        reference, _, _ = sample(frozen, tokenizer, chosen, args)  # π_ref on the same problems
        signal, objective = crt.signal(objective, batch, reference)
        update(model, tokenizer, optimizer, ids, mask, signal.advantages)
        print(
            f"{name} step {step + 1:>3}  {signal.decision.goal:<8}  accuracy {batch.accuracy:.0%} "
            f"(reference {reference.accuracy:.0%})  {batch.mean_length:.0f} tokens "
            f"(reference {reference.mean_length:.0f})",
            flush=True,
        )


def main() -> dict[str, tuple[float, float]]:
    args = arguments()
    torch.manual_seed(args.seed)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    policy = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    count = (args.stage_one + args.stage_two) * args.problems + args.held_out
    problems = load_problems(args.data, count, args.seed)
    held_out, training = problems[: args.held_out], problems[args.held_out :]
    measured = {}

    def measure(name: str) -> None:
        batch, _, _ = sample(policy, tokenizer, held_out, args)
        measured[name] = (batch.accuracy, batch.mean_length)

    measure("base")
    # Stage I: shorten, with accuracy weighed the more the further it is below the base's.
    frozen = copy.deepcopy(policy).requires_grad_(False)
    shorten = crt.Shorten()
    train_stage(policy, frozen, tokenizer, training, shorten, args.stage_one, args, "Stage I ")
    measure("stage1")
    # Stage II: raise accuracy; length gets a weight while responses are longer than Stage I's.
    frozen = copy.deepcopy(policy).requires_grad_(False)
    rest = training[args.stage_one * args.problems :] or training
    train_stage(policy, frozen, tokenizer, rest, crt.Refine(), args.stage_two, args, "Stage II")
    measure("crt")
    for name, (accuracy, tokens) in measured.items():
        print(f"{name:<7} accuracy {accuracy:.1%}  {tokens:.1f} tokens")
    return measured


if __name__ == "__main__":
    main()
