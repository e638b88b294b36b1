"""crt ask: one question, answered as it is generated."""

import argparse
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The question, and who is asked."""
    parser.add_argument("question", help='such as "Tom has 7 boxes of 46 pens. …"')
    parser.add_argument("--model", default="pocket", help="pocket (default), or a model's folder")
    parser.add_argument("--seed", type=int, default=0, help="for a temperature above 0 (0)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    parser.add_argument("--tokens", type=int, default=256, help="at most so many (256)")


def run(args: argparse.Namespace) -> int:
    """Prints the answer as it comes, or why the pocket model cannot answer."""
    from crt.errors import ConfigError
    from crt.pocket import path
    from crt.pocket.language import apology, outside

    if args.temperature < 0 or args.tokens < 1:
        raise ConfigError("temperature must be at least 0 and tokens at least 1")
    folder = path() if args.model == "pocket" else Path(args.model)
    if speaks_pocket(folder) and (reason := outside(args.question)):
        print(apology(reason))
        return 0
    length, stop = answer(args, folder)
    print(f"\n({length} tokens{'' if stop == 'eos' else ', cut off'})")
    return 0


def speaks_pocket(folder: Path) -> bool:
    """Whether a model has the pocket model's tokenizer, by a token that only this one has."""
    from crt.pocket.tokenizer import INSTRUCTION

    file = folder / "tokenizer.json"
    return file.is_file() and INSTRUCTION.replace("\\", "\\\\") in file.read_text()


def ends(model: Any) -> list[int]:
    """The tokens that end an answer, which a model may have one or several of."""
    found = model.generation_config.eos_token_id
    return found if isinstance(found, list) else [found]


def answer(args: argparse.Namespace, folder: Path) -> tuple[int, str]:
    """Streams the answer; returns its length and how it ended."""
    import torch

    from crt.errors import shown
    from crt.pocket import load
    from crt.pocket.tokenizer import prompt
    from crt.sampling.hf import sample

    model, tokenizer = load(folder)
    asked = prompt(tokenizer, args.question.strip())
    if asked.rstrip().endswith("<think>"):  # the template has opened the thought
        print("<think>")
    tokens: list[int] = []
    said = ""

    def show(_: int, token: int) -> None:
        nonlocal said
        tokens.append(token)
        text = str(tokenizer.decode(tokens, skip_special_tokens=True))
        if not text.endswith("\ufffd"):  # half a character: wait for the rest
            print(shown(text[len(said) :]), end="", flush=True)
            said = text

    [[told]] = sample(
        model,
        [tokenizer.encode(asked, add_special_tokens=False)],
        1,
        args.tokens,
        ends(model),
        generator=torch.Generator().manual_seed(args.seed),
        temperature=args.temperature,
        on_token=show,
    )
    return len(told.tokens), told.stop
