"""From which size on bfloat16 samples faster than float32 on this processor, one thread.

Usage: OMP_NUM_THREADS=1 python benchmarks/dtype.py [--repeats 3]

Made-up Qwen2 models with random weights; 8 prompts × 8 responses of 32 tokens, in turns.
"""

import argparse
import statistics
import time

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from crt.sampling.hf import sample

SIZES = {  # name: vocabulary, hidden, intermediate, layers, heads
    "1M": (512, 160, 480, 4, 4),
    "10M": (8192, 256, 1024, 8, 4),
    "30M": (16384, 384, 1536, 10, 6),
    "135M": (49152, 576, 1536, 30, 9),
}


def main() -> None:
    """Prints a row per size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    prompts = [list(range(5 + i, 69 + i)) for i in range(8)]
    print("| model | parameters | float32, CPU s | bfloat16, CPU s | ratio |")
    print("|---|---|---|---|---|")
    for name, (vocabulary, hidden, intermediate, layers, heads) in SIZES.items():
        config = Qwen2Config(
            vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate,
            num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
            tie_word_embeddings=True,
        )  # fmt: skip
        model = Qwen2ForCausalLM(config).eval()
        parameters = sum(weight.numel() for weight in model.parameters())
        seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
        for repeat in range(repeats + 1):
            for dtype, values in seconds.items():
                model.to(dtype)
                begun = time.process_time()
                sample(model, prompts, 8, 32, [], generator=torch.Generator().manual_seed(repeat))
                if repeat:
                    values.append(time.process_time() - begun)
        single, half = (statistics.median(values) for values in seconds.values())
        print(
            f"| {name} | {parameters / 1e6:.1f} M | {single:.2f} | {half:.2f} "
            f"| {single / half:.2f} × |",
            flush=True,
        )


if __name__ == "__main__":
    main()
