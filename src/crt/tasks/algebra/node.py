"""What an answer's tree is made of."""

from fractions import Fraction
from typing import NamedTuple

ZERO = Fraction(0)
CONSTANTS = {"pi", "e", "i", "infty"}


class Unreadable(ValueError):
    """The answer does not follow the grammar; caught by the reader."""


class Node(NamedTuple):
    """One piece of an answer.

    Values: number, name, add, mul, div, pow, neg, plusminus, call, base. Around values: unit,
    relation, ratio, list, bracket, union, matrix, word. `unread` is what could not be read.
    """

    kind: str
    parts: "tuple[Node, ...]" = ()
    text: str = ""
    number: Fraction = ZERO


def number(value: Fraction | int) -> Node:
    """A number as a node."""
    return Node("number", number=Fraction(value))


def name(text: str) -> Node:
    """A name as a node."""
    return Node("name", text=text)


def depth(node: Node) -> int:
    """How deep a tree is, counted without recursion: `5!!!…` is deep without any bracket."""
    level, layers = [node], 0
    while level:
        level, layers = [part for one in level for part in one.parts], layers + 1
    return layers


def names_in(node: Node) -> set[str]:
    """The variables of a tree; π, e and i are not variables."""
    if node.kind == "name":
        return {node.text} - CONSTANTS
    return set().union(*(names_in(part) for part in node.parts)) if node.parts else set()


def constants_in(node: Node) -> set[str]:
    """The names π, e, i and ∞ of a tree."""
    if node.kind == "name":
        return {node.text} & CONSTANTS
    return set().union(*(constants_in(part) for part in node.parts)) if node.parts else set()


def kinds_in(node: Node) -> set[str]:
    """The kinds of nodes in a tree, and the names of its functions."""
    own = {node.kind, node.text} if node.kind == "call" else {node.kind}
    return own.union(*(kinds_in(part) for part in node.parts)) if node.parts else own
