"""crt ask: one question, answered as it is generated, or by all levels of a family."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crt.errors import ConfigError, shown

if TYPE_CHECKING:
    from crt.levels.compare import LevelAnswer
    from crt.pocket.language import Reading


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "question",
        nargs="?",
        help='such as "Tom has 23 apples. He eats 4. …"; with --levels one of its evaluation',
    )
    add(
        "--model",
        default="pocket",
        help="pocket (default) or another world's model, a model's folder, or a finished run",
    )
    add("--levels", type=Path, metavar="RUN", help="ask all levels of a family, side by side")
    add("--seed", type=int, default=0, help="for a temperature above 0 (0)")
    add("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    add("--tokens", type=int, default=256, help="at most so many (256)")


def run(args: argparse.Namespace) -> int:
    """Prints the answer as it comes; what a pocket model cannot be asked is bad input."""
    from crt.pocket import read_question, world_of

    if args.temperature < 0 or args.tokens < 1:
        raise ConfigError("temperature must be at least 0 and tokens at least 1")
    if args.levels is not None:
        return ask_family(args)
    if args.question is None:
        raise ConfigError("give a question, or --levels RUN for one of its evaluation")
    folder = model_folder(args.model)
    reading = read_question(world_of(folder), args.question.strip())
    length, stop = stream_answer(args, folder, reading)
    print(f"\n({length} tokens{'' if stop == 'eos' else ', cut off'})")
    return 0


def ask_family(args: argparse.Namespace) -> int:
    """Prints what each level says to the question, or said to one of the family's evaluation."""
    from crt.levels.compare import ask_levels, typical_answers
    from crt.levels.family import family_file, read_family
    from crt.processes import silence_libraries
    from crt.sampling.base import Sampling

    file = family_file(args.levels).absolute()
    family = read_family(file)
    if args.question is None:
        question, answers = typical_answers(family, file)
    else:
        silence_libraries()
        question, sampling = args.question.strip(), Sampling(args.tokens, args.temperature)
        answers = ask_levels(family, file, question, sampling, args.seed)
    show_levels(question, answers)
    if args.question is None:
        print(
            "Measured responses: of the questions that all levels answer right, each with fewer "
            "tokens than the next, the one whose lengths are nearest to the levels' means."
        )
    return 0


def show_levels(question: str, answers: "Sequence[LevelAnswer]") -> None:
    """Each level's answer, then tokens side by side."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    print(shown(question))
    for answer in answers:
        print(f"\n{answer.level.name}, {answer.tokens} tokens:\n{shown(answer.text.strip())}")
    table = Table("level", "tokens", "saved", "answer")
    for answer in answers:
        saved = 100 * (1 - answer.tokens / answers[-1].tokens)
        table.add_row(
            answer.level.name,
            str(answer.tokens),
            f"{saved:.0f} %" if answer is not answers[-1] else "",
            escape(shown(answer.answer or "none")),
        )
    print()
    Console().print(table)


def model_folder(name: str) -> Path:
    """A pocket model, the recommended checkpoint of a run, or the folder itself."""
    from crt.pocket import is_world
    from crt.sampling import models

    return models.model_folder(name) if is_world(name) else models.checkpoint_of(Path(name))


def stream_answer(args: argparse.Namespace, folder: Path, reading: "Reading") -> tuple[int, str]:
    """Prints the answer while it is sampled; returns its length and how it ended."""
    import torch

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
