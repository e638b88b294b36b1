"""What each part of the engine brings: the update and the sampler, with and without it, in turns.

Usage: python benchmarks/engine.py [--problems 16] [--group 16] [--repeats 3]

Real rollouts of the pocket model. CPU seconds of a whole batch, one thread, medians of the repeats.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from trl.kernels import ChunkedLogProbFunction

from crt.engines.local import denormals_flushed
from crt.engines.logprobs import logprobs_and_entropies
from crt.engines.models import load_model
from crt.engines.padding import left_aligned
from crt.engines.sampler import Sample, left_padded, sample
from crt.tasks.datasets import load
from crt.tasks.messages import PromptSettings
from crt.tasks.prompts import prepare, render

CAP = 256
TILE = 32768  # columns of TRL's tiles
UPDATES = {  # rows at once, at the left edge, denormals flushed, whole logits
    "padded at both ends, logits in TRL's tiles, 64 rows at once": (64, False, False, False),
    "the same, 16 rows at once": (16, False, False, False),
    "at the left edge, without a mask": (16, True, False, False),
    "and denormal numbers flushed": (16, True, True, False),
    "and whole logits": (16, True, True, True),
}


def main() -> None:
    """Prints the median of every variant."""
    args = arguments()
    torch.set_num_threads(1)
    bench = Bench(args.problems, args.group)
    sampler = "large pages" if os.environ.get("THP_MEM_ALLOC_ENABLE") == "1" else "small pages"
    work: dict[str, Callable[[], object]] = {
        f"sampler, {sampler}, every rollout its own prompt": lambda: bench.sampled(False),
        f"sampler, {sampler}, the prompt once for its group": lambda: bench.sampled(True),
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
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


class Bench:
    """A model, its prompts, and one batch of its rollouts."""

    def __init__(self, problems: int, group: int) -> None:
        loaded = load_model("pocket", dtype="float32")
        template = prepare(loaded.tokenizer, PromptSettings())
        self.model, self.ends, self.group = loaded.model, loaded.files.ends, group
        asked = load(f"pocket/train:{problems}").problems
        self.prompts = [list(render(problem, template).token_ids) for problem in asked]
        groups = self.sampled(True)
        pairs = [(p, one.tokens) for p, of in zip(self.prompts, groups, strict=True) for one in of]
        self.rollouts = sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))

    def sampled(self, share: bool) -> list[list[Sample]]:
        """The same rollouts every time."""
        self.model.eval()
        stream = torch.Generator().manual_seed(0)
        return sample(
            self.model, self.prompts, self.group, CAP, self.ends, generator=stream,
            share_prompts=share,
        )  # fmt: skip

    def update(self, rows: int, aligned: bool, flushed: bool, whole: bool) -> None:
        """The gradient of all responses' log-probability, in micro-batches of like length."""
        said = in_whole if whole else in_tiles
        self.model.train()
        self.model.zero_grad()
        with denormals_flushed() if flushed else nullcontext():
            for ids, mask, width in self.batches(rows):
                if aligned:
                    left = left_aligned(ids, mask, width)
                    found = left.completions(said(self.model, left.ids, None, left.kept))
                else:
                    found = said(self.model, ids, mask, width)
                (found * mask[:, -width:]).sum().backward()

    def batches(self, rows: int) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Ids, mask and width of the completions: prompts padded left, completions right."""
        for first in range(0, len(self.rollouts), rows):
            some = self.rollouts[first : first + rows]
            prompts, seen = left_padded([prompt for prompt, _ in some], torch.device("cpu"))
            said, told = left_padded([tokens[::-1] for _, tokens in some], torch.device("cpu"))
            ids, mask = torch.cat([prompts, said.flip(1)], 1), torch.cat([seen, told.flip(1)], 1)
            yield ids, mask, said.shape[1]


def in_tiles(model: Any, ids: Tensor, mask: Tensor | None, kept: int) -> Tensor:
    """Log-probabilities of the last tokens as TRL has them on a CPU, entropies beside them."""
    hidden = model.model(ids, attention_mask=mask, use_cache=False).last_hidden_state[:, :-1]
    found, *_ = ChunkedLogProbFunction.apply(
        hidden.flatten(0, 1), model.lm_head.weight, None, ids[:, 1:].flatten(), 1.0, TILE, None,
        1.0, ("entropy",),
    )  # fmt: skip
    return found.view(len(ids), -1)[:, -kept:]


def in_whole(model: Any, ids: Tensor, mask: Tensor | None, kept: int) -> Tensor:
    """The same as our trainer has them."""
    return logprobs_and_entropies(model, ids, kept, 1.0)[0]


if __name__ == "__main__":
    main()
