"""Brackets, matrices and functions: pieces that hold other pieces."""

from fractions import Fraction
from typing import TYPE_CHECKING

from crt.tasks.algebra import atoms
from crt.tasks.algebra.node import Node, Unreadable, name, number

if TYPE_CHECKING:
    from crt.tasks.algebra.reader import Reader

_ROUND = {"(": (")", "]"), "[": ("]", ")")}
_MATRICES = {"pmatrix", "bmatrix", "matrix", "array", "smallmatrix", "Bmatrix"}
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}


def opened(reader: "Reader", opening: str) -> Node:
    """What stands in a bracket that has just been opened."""
    if opening == "{":  # a group is no bracket: nothing to see in print
        return _inside(reader, "}")
    if opening in _ROUND:
        return _round(reader, opening)
    if opening == "|":
        return _bars(reader)
    if opening in ("lfloor", "lceil"):
        inside = _inside(reader, "rfloor" if opening == "lfloor" else "rceil")
        return Node("call", (inside,), text="floor" if opening == "lfloor" else "ceiling")
    if opening == "begin":
        return _matrix(reader)
    raise Unreadable(f"{opening!r} is not known")


def _inside(reader: "Reader", *closing: str) -> Node:
    bars, reader.bars = reader.bars, 0
    inside = reader.answer()
    reader.bars = bars
    reader.expect(*closing)
    return inside


def _round(reader: "Reader", opening: str) -> Node:
    """`(a, b]` with its kinds of ends; around one value a bracket only groups."""
    bars, reader.bars = reader.bars, 0
    inside = reader.answer()
    reader.bars = bars
    closing = reader.expect(*_ROUND[opening])
    if inside.kind == "list":
        return Node("bracket", inside.parts, text=opening + closing)
    if closing != _ROUND[opening][0]:
        raise Unreadable("a group that ends otherwise than it began")
    return inside


def opened_set(reader: "Reader") -> Node:
    r"""`\{1, 2\}`, perhaps empty."""
    if reader.accept(r"\}"):
        return Node("bracket", (), text="{}")
    inside = _inside(reader, r"\}")
    return Node("bracket", inside.parts if inside.kind == "list" else (inside,), text="{}")


def _bars(reader: "Reader") -> Node:
    reader.bars += 1
    inside = reader.sum()
    reader.bars -= 1
    reader.expect("|")
    return Node("call", (inside,), text="abs")


def _matrix(reader: "Reader") -> Node:
    r"""The rows of `\begin{pmatrix} … \end{pmatrix}`; all must be of one length."""
    kind = _environment(reader)
    if kind not in _MATRICES:
        raise Unreadable(f"{kind!r} is no matrix")
    if kind == "array" and reader.accept("{"):
        while not reader.accept("}"):
            reader.take()
    rows = [[reader.item()]]
    while not reader.accept("end"):
        if reader.accept("&"):
            rows[-1].append(reader.item())
        else:
            reader.expect("\\")
            if reader.next.text != "end":
                rows.append([reader.item()])
    if _environment(reader) != kind or len({len(row) for row in rows}) != 1:
        raise Unreadable("not a matrix")
    return Node("matrix", tuple(Node("row", tuple(row)) for row in rows))


def _environment(reader: "Reader") -> str:
    reader.expect("{")
    text = ""
    while not reader.accept("}"):
        text += reader.take().text
    return text


def called(reader: "Reader", text: str) -> Node:
    """A function with its power, its base and what it is applied to."""
    if text == "sqrt":
        return _root(reader)
    power, base = None, None
    while sign := reader.accept("^", "_"):
        minus = reader.accept("-")
        given = atoms.whole_argument(reader)
        given = Node("neg", (given,)) if minus else given
        power, base = (given, base) if sign == "^" else (power, given)
    parts = _applied_to(reader)
    if text in _INVERSE and power in (Node("neg", (number(1),)), number(-1)):
        text, power = _INVERSE[text], None
    node = _function(text, parts, base)
    return node if power is None else Node("pow", (node, power))


def _function(text: str, parts: tuple[Node, ...], base: Node | None) -> Node:
    """One spelling each: `ln` and `log` with a base, `exp` as a power of e."""
    if text == "exp" and len(parts) == 1:
        return Node("pow", (name("e"), parts[0]))
    if text in ("ln", "lg"):
        base, text = (name("e") if text == "ln" else number(10)), "log"
    if text == "log":
        return Node("call", (*parts, base) if base else parts, text="log")
    if base is not None:
        raise Unreadable(f"{text} with a subscript")
    return Node("call", parts, text=text)


def _root(reader: "Reader") -> Node:
    degree = number(2)
    if reader.accept("["):
        degree = _inside(reader, "]")
    if degree.kind != "number" or degree.number.denominator != 1 or degree.number < 2:
        raise Unreadable("not the degree of a root")
    return Node("pow", (atoms.argument(reader), number(Fraction(1, degree.number))))


def _applied_to(reader: "Reader") -> tuple[Node, ...]:
    r"""A bracket's values, or the factors that follow: `\sin 2x` is sin(2x)."""
    if reader.next.text in ("(", "{", "["):
        inside = atoms.atom(reader)
        return inside.parts if inside.kind in ("bracket", "list") else (inside,)
    argument = atoms.factor(reader)
    while reader.next.kind in ("number", "name", "command") and atoms.can_start(reader):
        argument = reader.beside(argument)
    return (argument,)
