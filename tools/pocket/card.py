"""The model card, and the same table for a terminal."""

from typing import Any

from tools.pocket.worlds import World, find_world

CARD = """---
library_name: transformers
pipeline_tag: text-generation
license: apache-2.0
language: en
tags: [reasoning, miniature]
---
# {title}

A miniature reasoner of {parameters:,} parameters (Llama architecture, float32, own BPE tokenizer).
{about}
It is there for seeing, testing and teaching how reasoning is shortened without getting worse, on
two CPU cores in minutes. **It is not a language model:** outside its problems it says nothing of
use. What a method does to it does not tell how many tokens a large model would save.

## Measured

{problems} held-out problems of `{world}` (split `test`, seed {seed}), {copies} answers each at
temperature 1, at most 256 tokens. Free answers first; below, every style forced by its first word.
The share is that of free answers in the style. Standard error of an accuracy over all levels: at
most {error:.1f} points.

{table}

Levels:
{levels}

**Best length at the base's accuracy:** {best_length:.0f} tokens at {best_accuracy:.1f} % (base:
{length:.0f} tokens at {accuracy:.1f} %), by the shortest mixture of the styles chosen level by
level:
{best_shares}

**The shortest style everywhere** is right in {least_accuracy:.1f} % with {least_length:.0f} tokens,
{loss:.1f} points below the base.

**Highest accuracy by choice of style:** {top_accuracy:.1f} %, at {top_length:.0f} tokens when the
shortest such mixture is taken.

**The front** from the one to the other; between two rows one mixes them:

{front}

**Check:** one free answer to each of {checked} other held-out problems is right in {low:.1f} to
{high:.1f} % of cases and {short:.0f} to {long:.0f} tokens long on average (3.5 standard errors).

## Made by

```console
$ python -m tools.pocket build --world {world} --seed {made_seed} \\
    --supervised {supervised}{second} --polish {polish}
```

{start}{supervised} supervised steps on worked answers{cycle}, then {polish} steps of reinforcement
learning for accuracy alone (32 problems, 8 answers each). The same seed gives the same data; the
last bits of the weights depend on processor and number of threads. `hashes.json` holds the SHA-256
of every file.
"""


START = """It begins with a finished model of `{world}` (SHA-256 of its weights
`{hash:.16}…`), which can add already. Then come:
"""


def cells(name: str, row: dict[str, Any]) -> str:
    """One line of the table."""
    by_level = " | ".join(f"{accuracy:.0f}" for accuracy in row["accuracy_by_level"].values())
    lengths = " / ".join(f"{length:.0f}" for length in row["length_by_level"].values())
    return (
        f"| {name} | {row['share']:.1f} | {row['accuracy']:.1f} | {by_level} "
        f"| {row['length']:.0f} | {lengths} | {row['zip_ratio']:.2f} |"
    )


def table(world: World, figures: dict[str, Any]) -> str:
    """Styles by share, accuracy, length and R_zip, as Markdown."""
    head = "| style | share % | right % | level 1 | 2 | 3 | 4 | tokens | by level | R_zip |"
    rows = [cells("free", figures["free"])]
    rows += [cells(world.styles[style].title, row) for style, row in figures["styles"].items()]
    return "\n".join([head, "|" + "---|" * 10, *rows])


def choice(world: World, shares: dict[str, float]) -> str:
    """Which styles a level is answered in."""
    return ", ".join(
        world.styles[style].title + (f" {100 * part:.0f} %" if part < 0.995 else "")
        for style, part in shares.items()
    )


def front_table(world: World, front: list[dict[str, Any]]) -> str:
    """The corners of the front, as Markdown."""
    rows = [
        f"| {corner['length']:.0f} | {corner['accuracy']:.1f} | "
        + " | ".join(choice(world, shares) for shares in corner["shares"].values())
        + " |"
        for corner in front
    ]
    return "\n".join(["| tokens | right % | level 1 | 2 | 3 | 4 |", "|" + "---|" * 6, *rows])


def render(figures: dict[str, Any]) -> str:
    """The card from `figures.json`."""
    base, at_base, top = figures["free"], figures["best_at_base"], figures["best_accuracy"]
    made, least = figures["made"], figures["front"][0]
    world, second = find_world(made["world"]), made.get("second", 0)
    return CARD.format(
        title=world.title,
        about=world.about,
        world=world.name,
        parameters=figures["parameters"],
        problems=figures["problems"],
        seed=figures["seed"],
        copies=made["copies"],
        error=50 / figures["problems"] ** 0.5,
        table=table(world, figures),
        levels="\n".join(f"* {n}: {asked}" for n, asked in world.levels.items()),
        best_length=at_base["length"],
        best_accuracy=at_base["accuracy"],
        length=base["length"],
        accuracy=base["accuracy"],
        best_shares="\n".join(
            f"* level {level}: {choice(world, shares)}"
            for level, shares in at_base["shares"].items()
        ),
        least_accuracy=least["accuracy"],
        least_length=least["length"],
        loss=base["accuracy"] - least["accuracy"],
        top_accuracy=top["accuracy"],
        top_length=top["length"],
        front=front_table(world, figures["front"]),
        checked=figures["check"]["problems"],
        low=figures["check"]["accuracy"][0],
        high=figures["check"]["accuracy"][1],
        short=figures["check"]["length"][0],
        long=figures["check"]["length"][1],
        start=START.format(world=world.start, hash=made["start"]) if world.start else "",
        made_seed=made["seed"],
        supervised=made["supervised"],
        second=f" --second {second}" if second else "",
        cycle=f" and {second} of a second cycle" if second else "",
        polish=made["polish"],
    )
