"""Both stages of CRT in a script of your own around TRL: `crt.CRTTrainer` for `GRPOTrainer`.

    python examples/trl_script.py                          # the pocket model, a few steps
    python examples/trl_script.py --model FOLDER --data problems.jsonl --max-tokens 512

`reference` is a batch of the frozen model's graded responses to every problem. Stage I shortens
while accuracy stays at the reference's. Stage II starts from Stage I's model, which is then the
reference. TRL's loggers get the method's own figures as `crt/*`: goal, margin, accuracy, tokens.
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig

import crt
from crt.pocket import path as pocket_folder

INSTRUCTION = (
    "{question}\nPlease reason step by step, and put your final answer within \\boxed{{}}."
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(pocket_folder()), help="a folder or a hub id")
    parser.add_argument("--data", type=Path, help="JSON lines with `question` and `answer`")
    parser.add_argument("--out", type=Path, default=Path("runs/trl_script"))
    parser.add_argument("--steps", type=int, default=8, help="of each stage, at most")
    parser.add_argument("--problems", type=int, default=4, help="per step")
    parser.add_argument("--group-size", type=int, default=8, help="responses per problem")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    return parser.parse_args()


def messages(problem: crt.Problem) -> list[dict[str, str]]:
    return [{"role": "user", "content": INSTRUCTION.format(question=problem.question)}]


@torch.no_grad()
def sample_reference(model, tokenizer, problems, args) -> crt.Batch:
    """The frozen model's graded responses to every problem, sampled as the policy will be."""
    model.eval()
    rollouts = []
    for problem in problems:
        prompt = tokenizer.apply_chat_template(
            messages(problem), add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        start = prompt["input_ids"].shape[1]
        ids = model.generate(
            **prompt.to(model.device), num_return_sequences=args.group_size, do_sample=True,
            temperature=1.0, top_k=0, max_new_tokens=args.max_tokens,
            pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
        for response in ids[:, start:].tolist():
            ended = tokenizer.eos_token_id in response
            length = response.index(tokenizer.eos_token_id) + 1 if ended else len(response)
            text = tokenizer.decode(response[:length], skip_special_tokens=True)
            verdict = crt.grade_response(text, problem)
            stop = "eos" if ended else "length"
            rollouts.append(crt.Rollout(problem.id, text, length, stop, verdict))
    batch, left_out = crt.batch_of(rollouts)
    assert batch is not None, f"none of the reference's responses could be graded: {left_out[:3]}"
    return batch


class StopWhenSaturated(TrainerCallback):
    """Stage I is over when length improves no more."""

    def __init__(self, steps: int) -> None:
        self.steps, self.lengths = steps, []

    def on_log(self, args, state, control, logs=None, **_) -> None:
        if logs and "crt/tokens" in logs:
            self.lengths.append(logs["crt/tokens"])
            control.should_training_stop = crt.Saturation(latest=1.0).reached(
                self.lengths, self.steps
            )


def main() -> None:
    args = arguments()
    torch.manual_seed(1)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    if args.data is None:
        problems = crt.load_problems(f"pocket/train:{args.steps * args.problems}")
    else:
        rows = [json.loads(line) for line in args.data.read_text().splitlines() if line.strip()]
        problems = [crt.Problem(str(i), r["question"], r["answer"]) for i, r in enumerate(rows)]
    by_id = {problem.id: problem for problem in problems}

    def correct(completions, problem_id, **_) -> list[float | None]:
        """1 for correct, 0 for wrong, None for what could not be graded."""
        rewards = []
        for completion, name in zip(completions, problem_id, strict=True):
            verdict = crt.grade_response(completion[0]["content"], by_id[name])
            ungraded = verdict is crt.Verdict.UNGRADED
            rewards.append(None if ungraded else float(verdict is crt.Verdict.CORRECT))
        return rewards

    stages = {1: crt.Shorten(), 2: crt.Refine()}
    for stage, objective in stages.items():
        rollouts = args.problems * args.group_size
        trainer = crt.CRTTrainer(
            model=model,
            reward_funcs=[correct],
            args=GRPOConfig(
                output_dir=str(args.out / f"stage{stage}"),
                use_cpu=not torch.cuda.is_available(),
                bf16=torch.cuda.is_available(),
                gradient_checkpointing=False,
                per_device_train_batch_size=rollouts // 2,
                gradient_accumulation_steps=2,  # one decision and one update per batch
                num_generations=args.group_size,
                max_completion_length=args.max_tokens,
                max_steps=args.steps,
                learning_rate=args.learning_rate,
                beta=0.0,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
            ),
            train_dataset=Dataset.from_list(
                [{"prompt": messages(problem), "problem_id": problem.id} for problem in problems]
            ),
            processing_class=tokenizer,
            objective=objective,
            reference=sample_reference(model, tokenizer, problems, args),
            stage=stage,
            callbacks=[StopWhenSaturated(args.steps)] if stage == 1 else [],
        )
        trainer.train()
        trainer.save_model(str(args.out / f"stage{stage}" / "final"))
        print(f"Stage {stage} ends after {trainer.state.global_step} steps.")


if __name__ == "__main__":
    main()
