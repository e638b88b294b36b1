"""How far apart two engines with the same weights are: `rollout_probs_diff_max` cannot be less."""

import os
from collections.abc import Callable

import pytest
import torch

from crt import pocket
from crt.data.datasets import load
from crt.data.prompts import PromptSettings, prepare, render
from crt.sampling.models import load_model

pytest.importorskip("vllm", reason="make test-cluster makes the environment for this")

Scored = list[tuple[list[int], list[int], torch.Tensor]]  # prompt, response, its probabilities


@pytest.fixture(scope="module")
def sampled() -> Scored:
    """Responses of the pocket model by vLLM, with the probability it gave each token."""
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1")
    from vllm import LLM, SamplingParams

    template = prepare(load_model("pocket").tokenizer, PromptSettings())
    asked = [list(render(p, template).token_ids) for p in load("pocket/train:32").problems]
    engine = LLM(model=str(pocket.path()), dtype="float32", max_model_len=512, enforce_eager=True)
    how = SamplingParams(n=4, temperature=1.0, max_tokens=256, logprobs=0)
    found: Scored = []
    for prompt, told in zip(
        asked, engine.generate([{"prompt_token_ids": ids} for ids in asked], how), strict=True
    ):
        for one in told.outputs:
            said = list(one.token_ids)
            chosen = [at[token].logprob for at, token in zip(one.logprobs, said, strict=True)]
            found.append((prompt, said, torch.tensor(chosen).double().exp()))
    return found


def test_both_engines_are_as_far_from_the_truth_as_from_each_other(sampled):
    """The truth is float64. 1e-6, which near-uniform models reach, is below float32's rounding."""
    single, double = scorer("float32"), scorer("float64")
    apart: dict[str, list[torch.Tensor]] = {"each other": [], "vllm": [], "transformers": []}
    for prompt, said, theirs in sampled:
        ours, truth = single(prompt, said), double(prompt, said)
        apart["each other"].append((theirs - ours).abs())
        apart["vllm"].append((theirs - truth).abs())
        apart["transformers"].append((ours - truth).abs())
    most = {name: float(torch.cat(values).max()) for name, values in apart.items()}
    print(f"largest difference of probabilities over {sum(len(s) for _, s, _ in sampled)}: {most}")
    assert max(most.values()) < 5e-5
    assert most["each other"] < 4 * most["transformers"]


def scorer(dtype: str) -> Callable[[list[int], list[int]], torch.Tensor]:
    """What transformers says of a response's tokens, in this precision."""
    model = load_model("pocket", dtype="float32").model.to(getattr(torch, dtype)).eval()

    @torch.no_grad()
    def scored(prompt: list[int], said: list[int]) -> torch.Tensor:
        logits = model(torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1]
        return logits.softmax(-1).gather(1, torch.tensor(said)[:, None])[:, 0].double()

    return scored
