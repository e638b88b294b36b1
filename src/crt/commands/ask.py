"""crt ask: one question, answered as it is generated."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.pocket.language import Reading


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The question, and the model that answers it."""
    parser.add_argument("question", help='such as "Tom has 23 apples. He eats 4. …"')
    parser.add_argument(
        "--model",
        default="pocket",
        help="pocket (default) or another world's model, a model's folder, or a finished run",
    )
    parser.add_argument("--seed", type=int, default=0, help="for a temperature above 0 (0)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    parser.add_argument("--tokens", type=int, default=256, help="at most so many (256)")


def run(args: argparse.Namespace) -> int:
    """Prints the answer as it comes; what a pocket model cannot be asked is bad input."""
    from crt.errors import ConfigError
    from crt.pocket import read_question, world_of

    if args.temperature < 0 or args.tokens < 1:
        raise ConfigError("temperature must be at least 0 and tokens at least 1")
    folder = model_folder(args.model)
    reading = read_question(world_of(folder), args.question.strip())
    length, stop = stream_answer(args, folder, reading)
    print(f"\n({length} tokens{'' if stop == 'eos' else ', cut off'})")
    return 0


def model_folder(name: str) -> Path:
    """A pocket model, the recommended checkpoint of a run, or the folder itself."""
    from crt.pocket import is_world
    from crt.sampling import models

    return models.model_folder(name) if is_world(name) else models.checkpoint_of(Path(name))


def stream_answer(args: argparse.Namespace, folder: Path, reading: "Reading") -> tuple[int, str]:
    """Prints the answer while it is sampled; returns its length and how it ended."""
    import torch

    from crt.errors import shown
    from crt.pocket import load
    from crt.pocket.tokenizer import prompt
    from crt.sampling.hf import sample

    model, tokenizer = load(folder)
    text = prompt(tokenizer, reading.question)
    if text.rstrip().endswith("<think>"):  # the template has opened the thought
        print("<think>")
    eos: int | list[int] = model.generation_config.eos_token_id  # pyright: ignore
    token_ids: list[int] = []
    printed = ""

    def print_token(_: int, token_id: int) -> None:
        nonlocal printed
        token_ids.append(token_id)
        decoded = str(tokenizer.decode(token_ids, skip_special_tokens=True))
        whole = decoded[: max(decoded.rfind(" "), decoded.rfind("\n")) + 1]
        show(reading.restore(whole))  # whole words only: names are put back word by word

    def show(text: str) -> None:
        nonlocal printed
        print(shown(text[len(printed) :]), end="", flush=True)
        printed = text

    [[output]] = sample(
        model,
        [tokenizer.encode(text, add_special_tokens=False)],
        1,
        args.tokens,
        eos if isinstance(eos, list) else [eos],
        generator=torch.Generator().manual_seed(args.seed),
        temperature=args.temperature,
        on_token=print_token,
    )
    show(reading.restore(str(tokenizer.decode(token_ids, skip_special_tokens=True))))
    return len(output.tokens), output.stop
