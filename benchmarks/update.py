"""What an update costs: forward and backward over one step's responses, four ways in turns.

Usage: python benchmarks/update.py pocket                     # real responses, 16 × 8
       python benchmarks/update.py qwen --layers 2            # the 1.5B shape, fewer layers

| way | what it computes |
|---|---|
| padded | TRL's own, micro-batches as they were sampled |
| trimmed | TRL's own, micro-batches sorted by length and cut to their width |
| shared prompts | each prompt once, its keys and values repeated for its responses |
| shared beginnings | what responses have in common at their beginning, the prompt included, once |

Prints CPU seconds of each way, the largest difference of the log-probabilities, and ratios.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.cache_utils import DynamicCache
from trl.trainer.utils import add_fused_lm_head

from crt.data.datasets import load
from crt.data.prompts import PromptSettings, prepare, render
from crt.sampling.hf import denormals_flushed, left_padded, sample
from crt.sampling.models import load_model
from crt.training.trl.micro_batches import completion_logprobs, regroup

MicroBatch = dict[str, Tensor]
Way = Callable[[Any, MicroBatch], Tensor]


def main() -> None:
    """Prints the medians of every way."""
    args = arguments()
    model, batches = (pocket if args.model == "pocket" else qwen)(args)
    add_fused_lm_head(model)
    by_length, by_prefix = regroup(batches, by_prefix=False), regroup(batches, by_prefix=True)
    ways: dict[str, tuple[Way, list[MicroBatch]]] = {
        "padded": (trl, batches),
        "trimmed": (trl, by_length),
        "shared prompts": (shared_prompts, batches),
        "shared beginnings": (shared_beginnings, by_prefix),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    sums: dict[str, float] = {}
    for _ in range(args.repeats):
        for name, (way, parts) in ways.items():
            begun = time.process_time()
            sums[name] = update(model, way, parts, args.model == "qwen")
            seconds[name].append(time.process_time() - begun)
    base = seconds["padded"]
    for name, values in seconds.items():
        ratios = [a / b for a, b in zip(base, values, strict=True)]
        print(
            f"{name:17} {statistics.median(values):7.2f} s ({min(values):.2f} to "
            f"{max(values):.2f})  {statistics.median(ratios):.2f} × padded  sum {sums[name]:.4f}",
            flush=True,
        )


def update(model: Any, way: Way, batches: list[MicroBatch], autocast: bool) -> float:
    """Forward and backward over all micro-batches; the sum of what was scored."""
    total = 0.0
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), denormals_flushed():
            logprobs = way(model, batch) * batch["completion_mask"]
            logprobs.sum().backward()
        total += logprobs.sum().item()
    model.zero_grad()
    return total


def trl(model: Any, batch: MicroBatch) -> Tensor:
    """As in `GRPOTrainer._get_per_token_logps_and_entropies`."""
    ids, mask, width = joined(batch)
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-width] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -width:]


def shared_prompts(model: Any, batch: MicroBatch) -> Tensor:
    """One pass over the different prompts, one over the completions with the prompts' cache."""
    prompts, row = batch["prompt_ids"].unique(dim=0, return_inverse=True)
    first = torch.stack([(row == i).nonzero()[0, 0] for i in range(len(prompts))])
    prompt_mask = batch["prompt_mask"][first]
    cache = DynamicCache(config=model.config)
    position = (prompt_mask.cumsum(1) - 1).clamp(min=0)
    head = model(
        input_ids=prompts, attention_mask=prompt_mask, position_ids=position,
        past_key_values=cache, use_cache=True, logits_to_keep=1,
    )  # fmt: skip
    cache.batch_select_indices(row)
    ids, mask = batch["completion_ids"], batch["completion_mask"]
    width = int(mask.sum(1).max())
    ids, mask = ids[:, :width], mask[:, :width]
    begin = head.logits[:, -1].float().log_softmax(-1)[row].gather(1, ids[:, :1])
    body = model(
        input_ids=ids,
        attention_mask=torch.cat([batch["prompt_mask"], mask], 1),
        position_ids=batch["prompt_mask"].sum(1, keepdim=True) + torch.arange(width),
        past_key_values=cache,
        use_cache=True,
        labels=ids.masked_fill(mask == 0, -100),
        fused_lm_head=True,
    )
    logprobs = torch.cat([begin, body.log_probs], 1)
    return torch.nn.functional.pad(logprobs, (0, batch["completion_mask"].shape[1] - width))


def shared_beginnings(model: Any, batch: MicroBatch) -> Tensor:
    """As in the trainer."""
    return completion_logprobs(model, *joined(batch), 1.0)[0]


def joined(batch: MicroBatch) -> tuple[Tensor, Tensor, int]:
    """Ids and mask of prompts and completions, and the completions' width."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    return ids, mask, batch["completion_ids"].shape[1]


def pocket(args: argparse.Namespace) -> tuple[Any, list[MicroBatch]]:
    """The pocket model with a step of its recipe: 16 problems × 8, micro-batches of 16."""
    loaded = load_model("pocket", dtype="float32")
    template = prepare(loaded.tokenizer, PromptSettings())
    problems = load(f"pocket/train:{args.problems}").problems
    prompts = [list(render(problem, template).token_ids) for problem in problems]
    draw = torch.Generator().manual_seed(0)
    groups = sample(
        loaded.model, prompts, args.group, 256, loaded.files.eos_token_ids, generator=draw
    )
    completions = [one.tokens for group in groups for one in group]
    repeated = [prompt for prompt in prompts for _ in range(args.group)]
    return loaded.model, list(micro_batches(repeated, completions, 16))


def qwen(args: argparse.Namespace) -> tuple[Any, list[MicroBatch]]:
    """A made-up Qwen2 of the 1.5B shape; random tokens, so that only prompts are shared."""
    config = Qwen2Config(
        vocab_size=args.vocab, hidden_size=1536, intermediate_size=8960, num_attention_heads=12,
        num_key_value_heads=2, num_hidden_layers=args.layers, tie_word_embeddings=True,
        max_position_embeddings=32768, rope_theta=1e6,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    draw = torch.Generator().manual_seed(0)
    prompt = torch.randint(5, args.vocab, (150,), generator=draw).tolist()
    lengths = torch.randint(150, 451, (args.group,), generator=draw).tolist()
    completions = [torch.randint(5, args.vocab, (n,), generator=draw).tolist() for n in lengths]
    return model, list(micro_batches([prompt] * args.group, completions, args.group))


def micro_batches(
    prompts: list[list[int]], completions: list[list[int]], size: int
) -> Iterator[MicroBatch]:
    """In TRL's form: all padded to one width, prompts at the left, completions at the right."""
    cpu = torch.device("cpu")
    (left, left_mask), (right, right_mask) = (
        left_padded(prompts, cpu),
        left_padded([c[::-1] for c in completions], cpu),
    )
    whole = {
        "prompt_ids": left, "prompt_mask": left_mask,
        "completion_ids": right.flip(1), "completion_mask": right_mask.flip(1),
    }  # fmt: skip
    for first in range(0, len(prompts), size):
        yield {name: values[first : first + size] for name, values in whole.items()}


def arguments() -> argparse.Namespace:
    """The model and the size of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=("pocket", "qwen"))
    parser.add_argument("--layers", type=int, default=2, help="of the 1.5B shape's 28")
    parser.add_argument("--vocab", type=int, default=151936, help="smaller: the layers alone")
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
