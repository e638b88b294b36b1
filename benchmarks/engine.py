"""What each part of the engine brings: the update and the sampler, with and without it, in turns.

Usage: python benchmarks/engine.py [--model pocket] [--problems 16] [--group 16] [--repeats 3]
                                   [--profile]

Real rollouts of the pocket model, or of a checkpoint of it. CPU seconds of a whole batch, one
thread, medians of the repeats. With --profile, what the sampler and the update of our trainer
consist of instead, by torch's profiler.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from crt.training.trl.logprobs import logprobs_and_entropies
from crt.training.trl.micro_batches import left_aligned
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from trl.kernels import ChunkedLogProbFunction

from crt.data.datasets import load
from crt.data.prompts import PromptSettings, prepare, render
from crt.sampling import hf as sampler
from crt.sampling.hf import Sample, denormals_flushed, left_padded
from crt.sampling.models import load_model

CAP = 256
TILE = 32768  # columns of TRL's tiles
UPDATES = {  # rows at once, at the left edge, denormals flushed, logits
    "padded at both ends, logits in TRL's tiles, 64 rows at once": (64, False, False, "tiles"),
    "the same, 16 rows at once": (16, False, False, "tiles"),
    "at the left edge, without a mask": (16, True, False, "tiles"),
    "and denormal numbers flushed": (16, True, True, "tiles"),
    "and whole logits": (16, True, True, "whole"),
    "and what responses have in common once": (16, True, True, "tree"),
}


def main() -> None:
    """Prints the median of every variant."""
    args = arguments()
    torch.set_num_threads(1)
    bench = Bench(args.model, args.problems, args.group)
    print(bench.in_common())
    if args.profile:
        parts = {"sampler": bench.sampled, "update": bench.update}
        for name, run in parts.items():
            print(f"{name}\n{profiled(run)}")
        return
    pages = "large pages" if os.environ.get("THP_MEM_ALLOC_ENABLE") == "1" else "small pages"
    work: dict[str, Callable[[], object]] = {
        f"sampler, {pages}, every rollout a row, its prompt in it": bench.sampled_apart,
        f"sampler, {pages}, what rollouts have in common in one row": lambda: bench.sampled(
            share=False
        ),
        f"sampler, {pages}, and the prompt's keys once for its group": bench.sampled,
    }
    for name, how in UPDATES.items():
        work[f"update, {name}"] = lambda how=how: bench.update(*how)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(args.repeats + 1):
        for name, run in work.items():
            begun = time.process_time()
            run()
            if repeat:  # the first one warms up
                seconds[name].append(time.process_time() - begun)
    for name, found in seconds.items():
        print(f"{statistics.median(found):6.2f} s ({min(found):.2f} to {max(found):.2f})  {name}")


def arguments() -> argparse.Namespace:
    """The size of a batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


def profiled(run: Callable[[], object]) -> str:
    """The operations that take most, after one run that warms up."""
    run()
    with profile(activities=[ProfilerActivity.CPU]) as told:
        run()
    return told.key_averages().table("self_cpu_time_total", row_limit=15)


class Bench:
    """A model, its prompts, and one batch of its rollouts."""

    def __init__(self, model: str, problems: int, group: int) -> None:
        loaded = load_model(model, dtype="float32")
        template = prepare(loaded.tokenizer, PromptSettings())
        self.model, self.ends, self.group = loaded.model, loaded.files.eos_token_ids, group
        asked = load(f"pocket/train:{problems}").problems
        self.prompts = [list(render(problem, template).token_ids) for problem in asked]
        groups = self.sampled()
        pairs = [(p, one.tokens) for p, of in zip(self.prompts, groups, strict=True) for one in of]
        self.rollouts = sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))

    def in_common(self) -> str:
        """How much of what was said is said once."""
        told = [(tuple(prompt), tuple(said)) for prompt, said in self.rollouts]
        begun = {(p, said[:at]) for p, said in told for at in range(1, len(said) + 1)}
        return (
            f"{sum(len(said) for _, said in told)} tokens, {len(begun)} distinct beginnings; "
            f"{len(told)} responses, {len(set(told))} distinct"
        )

    def sampled(self, share: bool = True) -> list[list[Sample]]:
        """The same rollouts every time."""
        self.model.eval()
        stream = torch.Generator().manual_seed(0)
        return sampler.sample(
            self.model, self.prompts, self.group, CAP, self.ends, generator=stream,
            share_prompts=share,
        )  # fmt: skip

    def sampled_apart(self) -> object:
        """As many rollouts, none of which shares a row with another."""
        self.model.eval()
        prompts = [prompt for prompt in self.prompts for _ in range(self.group)]
        stream = torch.Generator().manual_seed(0)
        return sampler.sample(
            self.model, prompts, 1, CAP, self.ends, generator=stream, share_prompts=False
        )  # fmt: skip

    def update(
        self, rows: int = 16, aligned: bool = True, flushed: bool = True, logits: str = "tree"
    ) -> None:
        """The gradient of all responses' log-probability, in micro-batches of rows alike."""
        ways = {"tiles": in_tiles, "whole": in_whole, "tree": in_tree}
        said = ways[logits]
        self.model.train()
        self.model.zero_grad()
        with denormals_flushed() if flushed else nullcontext():
            for ids, mask, width in self.batches(rows, alike=logits == "tree"):
                length = mask.sum(1)
                if aligned:
                    left = left_aligned(ids, mask, width)
                    found = left.completions(said(self.model, left.ids, None, length, left.kept))
                else:
                    found = said(self.model, ids, mask, length, width)
                (found * mask[:, -width:]).sum().backward()

    def batches(self, rows: int, alike: bool) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Ids, mask and width of the completions: prompts padded left, completions right."""
        rollouts = sorted(self.rollouts) if alike else self.rollouts
        for first in range(0, len(rollouts), rows):
            some = rollouts[first : first + rows]
            prompts, seen = left_padded([prompt for prompt, _ in some], torch.device("cpu"))
            said, told = left_padded([tokens[::-1] for _, tokens in some], torch.device("cpu"))
            ids, mask = torch.cat([prompts, said.flip(1)], 1), torch.cat([seen, told.flip(1)], 1)
            yield ids, mask, said.shape[1]


def in_tiles(model: Any, ids: Tensor, mask: Tensor | None, length: Tensor, kept: int) -> Tensor:
    """Log-probabilities of the last tokens as TRL has them on a CPU, entropies beside them."""
    hidden = model.model(ids, attention_mask=mask, use_cache=False).last_hidden_state[:, :-1]
    found, *_ = ChunkedLogProbFunction.apply(
        hidden.flatten(0, 1), model.lm_head.weight, None, ids[:, 1:].flatten(), 1.0, TILE, None,
        1.0, ("entropy",),
    )  # fmt: skip
    return found.view(len(ids), -1)[:, -kept:]


def in_whole(model: Any, ids: Tensor, mask: Tensor | None, length: Tensor, kept: int) -> Tensor:
    """The same of rows one by one, entropies left out."""
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=kept + 1).logits[:, :-1]
    return logits.log_softmax(-1).gather(-1, ids[:, -kept:, None])[..., 0]


def in_tree(model: Any, ids: Tensor, mask: Tensor | None, length: Tensor, kept: int) -> Tensor:
    """The same as our trainer has them."""
    return logprobs_and_entropies(model, ids, length, kept, 1.0)[0]


if __name__ == "__main__":
    main()
