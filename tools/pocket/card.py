"""The model card, and the same table for a terminal."""

from typing import Any

NAMES = {
    "guess": "bare guess",
    "head": "all in one go",
    "steps": "one equation a step",
    "broken": "every step broken down",
    "redundant": "broken down, with redundancy",
}

CARD = """---
library_name: transformers
pipeline_tag: text-generation
license: apache-2.0
language: en
tags: [reasoning, miniature]
---
# The pocket model

A miniature reasoner of {parameters:,} parameters (Llama architecture, float32, own BPE tokenizer).
It solves short sums and everyday stories about them, and overthinks them as large reasoning models
do. It is there for seeing, testing and teaching how reasoning is shortened without getting worse,
on two CPU cores in minutes. **It is not a language model:** it knows a few hundred words, and
outside its problems it says nothing of use. What a method does to it says how the method behaves;
it does not say how many tokens a large model would save.

## Measured

{problems} held-out problems (split `test`, seed {seed}), {copies} answers each at temperature 1,
at most 256 tokens. Free answers first; below, every style forced by its first word. The share is
that of free answers in the style. Standard error of an accuracy over all levels: at most
{error:.1f} points.

{table}

Levels: 1, one sum or difference; 2, one product or division; 3, two operations; 4, three
operations, or two numbers of two digits multiplied.

**Best length at the base's accuracy:** {best_length:.0f} tokens at {best_accuracy:.1f} % (base:
{length:.0f} tokens at {accuracy:.1f} %), by the shortest mixture of the styles chosen level
by level:
{best_shares}

**Highest accuracy by choice of style:** {top_accuracy:.1f} %, at {top_length:.0f} tokens when the
shortest such mixture is taken.

**Check:** one free answer to each of {checked} other held-out problems is right in {low:.1f} to
{high:.1f} % of cases and {short:.0f} to {long:.0f} tokens long on average (3.5 standard errors).

## Made by

`python -m tools.pocket build --seed {made_seed} --supervised {supervised} --second {second}
--polish {polish}`

{supervised} and {second} supervised steps of 48 worked answers in two cycles of the learning rate,
then {polish} steps of reinforcement learning for accuracy alone (32 problems, 8 answers each). The
same seed gives the same data; the last bits of the weights depend on processor and number of
threads. `hashes.json` holds the SHA-256 of every file.
"""


def cells(name: str, row: dict[str, Any]) -> str:
    """One line of the table."""
    by_level = " | ".join(f"{row['accuracy_by_level'][n]:.0f}" for n in "1234")
    lengths = " / ".join(f"{row['length_by_level'][n]:.0f}" for n in "1234")
    return (
        f"| {name} | {row['share']:.1f} | {row['accuracy']:.1f} | {by_level} "
        f"| {row['length']:.0f} | {lengths} | {row['zip_ratio']:.2f} |"
    )


def table(figures: dict[str, Any]) -> str:
    """Styles by share, accuracy, length and R_zip, as Markdown."""
    head = "| style | share % | right % | level 1 | 2 | 3 | 4 | tokens | by level | R_zip |"
    rows = [cells("free", figures["free"])]
    rows += [cells(NAMES[style], row) for style, row in figures["styles"].items()]
    return "\n".join([head, "|" + "---|" * 10, *rows])


def mixture(best: dict[str, Any]) -> str:
    """Which styles the best mixture uses, level by level."""
    return "\n".join(
        f"* level {level}: "
        + ", ".join(f"{NAMES[style]} {100 * part:.0f} %" for style, part in shares.items())
        for level, shares in best["shares"].items()
    )


def render(figures: dict[str, Any]) -> str:
    """The card from `figures.json`."""
    base, at_base, top = figures["free"], figures["best_at_base"], figures["best_accuracy"]
    made = figures["made"]
    return CARD.format(
        parameters=figures["parameters"],
        problems=figures["problems"],
        seed=figures["seed"],
        copies=made["copies"],
        error=50 / figures["problems"] ** 0.5,
        table=table(figures),
        best_length=at_base["length"],
        best_accuracy=at_base["accuracy"],
        length=base["length"],
        accuracy=base["accuracy"],
        best_shares=mixture(at_base),
        top_accuracy=top["accuracy"],
        top_length=top["length"],
        checked=figures["check"]["problems"],
        low=figures["check"]["accuracy"][0],
        high=figures["check"]["accuracy"][1],
        short=figures["check"]["length"][0],
        long=figures["check"]["length"][1],
        made_seed=made["seed"],
        supervised=made["supervised"],
        second=made["second"],
        polish=made["polish"],
    )
