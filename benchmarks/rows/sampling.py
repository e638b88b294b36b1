"""The sampler beside HF `generate`, HF continuous batching and vLLM, and beside the sgemm limit."""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import torch
from harness.results import Row, compared, four, rounded
from harness.statistics import ratio_of_medians
from harness.timing import Timing, interleaved
from limits import SQUARE, layer_rate, needed, square_rate
from llamas import SHAPES as MODELS
from llamas import Shape, llama, prompts_for
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.utils import logging
from vllm_contender import Vllm, vllm_python

from crt.sampling.hf import sample

from . import OTHERS, SHAPES, SIZES, Setting

GOALS = {"generate": 4.0, "continuous": 8.0, "vllm": 1.0}
NAMED = {
    "generate": "HF generate",
    "continuous": "HF continuous batching",
    "vllm": "vLLM on the CPU",
}
COPIES = 16
BLOCK = 32  # positions in a block of the paged cache; HF's default is longer than a rollout


def rows(setting: Setting) -> Iterator[Row]:
    """All sizes and shapes; seconds per thousand tokens."""
    torch.set_num_threads(setting.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for size in SIZES:
        with closing(Work(MODELS[size])) as work:
            for shape in SHAPES:
                names = [f"sampler-{size}-{shape}-{other}" for other in OTHERS]
                limit = f"sgemm-{size}" if shape == SHAPES[-1] else ""
                if setting.wants(*names, limit):
                    work.take(2 if setting.small else int(shape.partition("x")[0]))
                    yield from _rows(setting, work, f"{size}-{shape}", limit)


def _rows(setting: Setting, work: "Work", name: str, limit: str) -> Iterator[Row]:
    contenders: dict[str, Any] = {"crt": work.ours}
    others = [each for each in OTHERS if setting.wants(f"sampler-{name}-{each}")]
    if "vllm" in others and vllm_python() is None:
        others.remove("vllm")
    for other in others:
        contenders[other] = getattr(work, other)
    timings = interleaved(contenders, setting.repeats)
    size, _, shape = name.partition("-")
    for other in others:
        yield compared(
            f"sampler-{name}-{other}", f"sampler, {size} parameters, {shape} rollouts",
            NAMED[other], timings["crt"], timings[other], goal=GOALS[other],
            unit="s / 1,000 tokens", scale=1000,
        )  # fmt: skip
    if limit and setting.wants(limit):
        yield share_of_limit(limit, work, timings["crt"])


class Work:
    """The same prompts and cap for every contender; each counts the tokens that it sampled."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.model: Any = llama(shape)
        self.prompts: list[list[int]] = []
        self.operations: list[float] = []  # that ours had to do, repeat by repeat
        self.ends = torch.tensor(shape.ends)
        self.paged: Any = None
        self.process: Vllm | None = None

    def take(self, prompts: int) -> None:
        """So many prompts from now on."""
        self.prompts = prompts_for(self.shape, prompts)
        self._forget_paged()  # its cache is as large as the batch

    def asked(self, repeat: int) -> list[list[int]]:
        """All prompts; to warm up, two of them."""
        return self.prompts if repeat >= 0 else self.prompts[:2]

    def ours(self, repeat: int) -> float:
        """The fast sampler."""
        groups = sample(
            self.model, self.asked(repeat), COPIES, self.shape.cap, self.shape.ends,
            generator=torch.Generator().manual_seed(repeat + 1),
        )  # fmt: skip
        lengths = [[len(one.tokens) for one in group] for group in groups]
        prompts = [len(prompt) for prompt in self.asked(repeat)]
        self.operations.append(needed(self.shape, prompts, lengths))
        return sum(map(sum, lengths))

    def generate(self, repeat: int) -> float:
        """HF `generate` with a padded batch."""
        torch.manual_seed(repeat + 1)
        prompts = self.asked(repeat)
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        said = self.model.generate(
            ids, attention_mask=(ids != 0).long(), generation_config=self.settings(COPIES)
        )[:, width:]
        over = torch.isin(said, self.ends)
        lengths = torch.where(over.any(1), over.int().argmax(1) + 1, said.shape[1])
        return int(lengths.sum())

    def continuous(self, repeat: int) -> float:
        """HF `generate_batch`; its manager is kept from repeat to repeat, as it can be."""
        if self.paged is None:
            self.paged = llama(self.shape)
        rows = len(self.prompts) * COPIES
        room = -(-(self.shape.prompt[1] + self.shape.cap) // BLOCK) + 1
        told = self.paged.generate_batch(
            [prompt for prompt in self.asked(repeat) for _ in range(COPIES)],
            generation_config=self.settings(1),
            continuous_batching_config=ContinuousBatchingConfig(
                block_size=BLOCK, num_blocks=rows * room, max_batch_tokens=2 * rows,
                use_cuda_graph=False,
            ),
            progress_bar=False, persistent_manager=True, warmup=False,
        )  # fmt: skip
        if len(told) != len(self.asked(repeat)) * COPIES:
            raise RuntimeError(f"only {len(told)} requests were answered")
        return sum(len(each.generated_tokens) for each in told.values())

    def vllm(self, repeat: int) -> float:
        """vLLM in an interpreter of its own, which is kept too."""
        if self.process is None:
            self.process = Vllm(self.model, torch.get_num_threads())
        return self.process.sampled(self.asked(repeat), COPIES, self.shape.cap, self.shape.ends)

    def settings(self, copies: int) -> GenerationConfig:
        """Plain sampling from the whole distribution."""
        return GenerationConfig(
            do_sample=True, top_k=0, max_new_tokens=self.shape.cap, pad_token_id=0,
            eos_token_id=self.shape.ends, num_return_sequences=copies,
        )  # fmt: skip

    def close(self) -> None:
        """Ends what the contenders keep running."""
        self._forget_paged()
        if self.process is not None:
            self.process.close()

    def _forget_paged(self) -> None:
        if self.paged is not None:
            self.paged.destroy_cached_continuous_batching_manager()
            self.paged = None


def share_of_limit(name: str, work: Work, timings: Sequence[Timing]) -> Row:
    """Needed operations a second of our sampler, in parts of one large product's."""
    count = len(work.prompts) * COPIES
    limit, own = square_rate(), layer_rate(work.shape, count)
    kept = work.operations[-len(timings) :]
    rates = [each / t.wall for each, t in zip(kept, timings, strict=True)]
    share = ratio_of_medians(rates, [limit] * len(rates))
    median = share.value * limit
    threads = torch.get_num_threads()
    on_cpu = [threads * each / t.cpu for each, t in zip(kept, timings, strict=True)]
    return Row(
        name, f"needed arithmetic a second, sampler, {len(work.prompts)}x{COPIES} rollouts",
        f"sgemm, {SQUARE}³", *rounded(share), 0.6, "higher", ours=four(median / 1e9),
        theirs=four(limit / 1e9), unit="GFLOP/s", repeats=len(rates),
        cpu_ratio=four(statistics.median(on_cpu) / limit),
        note=f"a layer's own products reach {own / 1e9:.0f} GFLOP/s with {count} rows: "
        f"{median / own:.0%} of those",
    )  # fmt: skip
