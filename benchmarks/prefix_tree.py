"""What the prefix tree brings to an update: TRL's own forward and backward beside it, in turns.

Usage: python benchmarks/prefix_tree.py MODEL [--problems 1] [--group 8] [--tokens 250]
                                        [--lora 16] [--dtype bfloat16] [--repeats 3]

Prompts are pocket problems in the model's own template; completions are made of random tokens, so
that nothing but the prompt is shared. Prints CPU seconds of each way and their ratio.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from trl.trainer.utils import add_fused_lm_head

from crt.data.datasets import load
from crt.data.prompts import PromptSettings, prepare, render
from crt.sampling.hf import denormals_flushed, left_padded
from crt.sampling.models import load_model
from crt.training.trl import prefix_tree


def main() -> None:
    """Prints the medians of both ways and their ratio."""
    args = arguments()
    loaded = load_model(args.model, dtype=args.dtype)
    model: Any = loaded.model
    add_fused_lm_head(model)
    if args.lora:
        model = get_peft_model(model, LoraConfig(r=args.lora, target_modules="all-linear"))
    ids, mask, width = batch(loaded, args)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16")
    ways = {"TRL": trl, "prefix tree": tree}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(args.repeats + 1):
        for name, way in ways.items():
            begun = time.perf_counter()
            with autocast, denormals_flushed():
                (way(model, ids, mask, width) * mask[:, -width:]).sum().backward()
            model.zero_grad()
            if repeat or args.repeats == 1:
                seconds[name].append(time.perf_counter() - begun)
    for name, values in seconds.items():
        print(f"{statistics.median(values):8.2f} s ({min(values):.2f} to {max(values):.2f}) {name}")
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    print(f"{statistics.median(ratios):8.2f} × ({min(ratios):.2f} to {max(ratios):.2f})")


def batch(loaded: Any, args: argparse.Namespace) -> tuple[Tensor, Tensor, int]:
    """Ids, mask and width of the completions: prompts padded left, completions right."""
    template = prepare(loaded.tokenizer, PromptSettings())
    problems = load(f"pocket/train:{args.problems}").problems
    prompts = [list(render(p, template).token_ids) for p in problems for _ in range(args.group)]
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(args.tokens // 2, args.tokens * 3 // 2, (len(prompts),), generator=draw)
    vocabulary = loaded.model.config.vocab_size
    said = [torch.randint(5, vocabulary, (int(n),), generator=draw).tolist() for n in lengths]
    cpu = torch.device("cpu")
    (left, left_mask), (right, right_mask) = left_padded(prompts, cpu), left_padded(said, cpu)
    ids = torch.cat([left, right.flip(1)], 1)
    return ids, torch.cat([left_mask, right_mask.flip(1)], 1), right.shape[1]


def trl(model: Any, ids: Tensor, mask: Tensor, width: int) -> Tensor:
    """As in `GRPOTrainer._get_per_token_logps_and_entropies`."""
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-width] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -width:]


def tree(model: Any, ids: Tensor, mask: Tensor, width: int) -> Tensor:
    """As in our trainer."""
    return prefix_tree.completion_logprobs(model, ids, mask, width, 1.0)[0]


def arguments() -> argparse.Namespace:
    """The size of a micro-batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--problems", type=int, default=1)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=250)
    parser.add_argument("--lora", type=int, default=16)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
