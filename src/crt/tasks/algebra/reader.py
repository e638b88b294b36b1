"""LaTeX answers as trees: what is written, before anything is computed."""

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from crt.tasks.algebra import atoms
from crt.tasks.algebra.node import Node, Unreadable, depth, number
from crt.tasks.algebra.tokens import Token, tokenise, with_thousands
from crt.tasks.algebra.units import SCALES, may_be_unit
from crt.tasks.normalise import tidy

MAX_DEPTH = 50  # deeper nesting is no answer, and would use up the stack of a caller
MAX_TOKENS = 1500

_RELATIONS = {"=", "<", ">", "le", "ge", "ne", "approx", "in", "equiv", "sim", "subset"}
_END = Token("end", "")


class Reading(NamedTuple):
    """An answer as a tree; `comma` says that `1,234` was taken for one number."""

    tree: Node
    comma: bool


@lru_cache(maxsize=20_000)
def read(answer: str, thousands: bool = True) -> Reading:
    """The tree of an answer; what cannot be read becomes a node `unread`, never an error."""
    text = tidy(answer)
    if text is None:
        return Reading(Node("unread", text=answer), False)
    joined = with_thousands(text) if thousands else text
    tokens = tokenise(joined)
    return Reading(_tree(tokens), joined != text)


def _tree(tokens: list[Token]) -> Node:
    if not tokens or len(tokens) > MAX_TOKENS:
        return Node("unread", text=_respelled(tokens))
    try:
        reader = Reader(list(tokens))
        tree = reader.answer()
        reader.expect_end()
        if depth(tree) <= MAX_DEPTH:
            return tree
    except (Unreadable, ZeroDivisionError, OverflowError):
        pass
    return Node("unread", text=_respelled(tokens))


def _respelled(tokens: list[Token]) -> str:
    """LaTeX again, with words in small letters, for comparing and for another parser."""
    out: list[str] = []
    for token in tokens:
        if token.kind in ("command", "function"):
            out.append("\\" + token.text.removeprefix("\\") if token.text != "\\" else r"\\")
        else:
            out.append(rf"\text{{{token.text.lower()}}}" if token.kind == "word" else token.text)
    return " ".join(out)


class Reader:
    """Recursive descent over the tokens, one method a level of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0  # open |…|: the next bar closes

    @property
    def next(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def take(self) -> Token:
        if self.at == len(self.tokens):
            raise Unreadable("it ends too soon")
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, *texts: str) -> str:
        """The next token's text if it is one of these signs or commands, and moves on."""
        token = self.next
        if token.kind in ("sign", "command", "comma") and token.text in texts:
            self.at += 1
            return token.text
        return ""

    def expect(self, *texts: str) -> str:
        found = self.accept(*texts)
        if not found:
            raise Unreadable(f"expected {texts}, found {self.next.text!r}")
        return found

    def expect_end(self) -> None:
        if self.at < len(self.tokens):
            raise Unreadable(f"left over: {self.next.text!r}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("too deeply nested")

    def answer(self) -> Node:
        """item, item; item … and item"""
        self.deeper()
        items = [self.item()]
        while self.next.kind == "comma":
            while self.next.kind == "comma":
                self.take()
            items.append(self.item())
        self.depth -= 1
        return items[0] if len(items) == 1 else Node("list", tuple(items))

    def item(self) -> Node:
        """side = side ≤ side …; `≈ 5` alone is 5."""
        if self.next.text in ("approx", "=") and self.at == 0:
            self.take()
        sides, relations = [self.union()], []
        while self.next.kind in ("sign", "command") and self.next.text in _RELATIONS:
            relations.append(self.take().text)
            sides.append(self.union())
        if not relations:
            return sides[0]
        return Node("relation", tuple(sides), text=" ".join(relations))

    def union(self) -> Node:
        parts = [self.ratio()]
        while self.accept("cup"):
            parts.append(self.ratio())
        return parts[0] if len(parts) == 1 else Node("union", tuple(parts))

    def ratio(self) -> Node:
        parts, spelled = [self.sum()], [self.tokens[self.at - 1].text]
        while self.accept(":"):
            parts.append(self.sum())
            spelled.append(self.tokens[self.at - 1].text)
        if len(parts) == 1:
            return parts[0]
        return Node("ratio", tuple(parts), text=":".join(spelled))

    def sum(self) -> Node:
        terms = [self.signed(self.accept("+", "-", "pm", "mp"))]
        while sign := self.accept("+", "-", "pm", "mp"):
            terms.append(self.signed(sign))
        if len(terms) > 1 and any(term.kind == "word" for term in terms):
            raise Unreadable("a word in a sum")
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def signed(self, sign: str) -> Node:
        """A term with its sign; a second sign (`--5`) is a sign of the term."""
        inner = self.accept("+", "-") if sign else ""
        self.deeper()
        term = self.measured(self.signed(inner) if inner else self.product())
        self.depth -= 1
        if sign == "-":
            return Node("neg", (term,))
        return Node("plusminus", (term,), text=sign) if sign in ("pm", "mp") else term

    def product(self) -> Node:
        """Factors, written with signs or side by side; `/` divides by the next factor alone."""
        product = atoms.factor(self)
        while True:
            if self.accept("*"):
                sign = self.accept("-", "+")
                factor = atoms.factor(self)
                product = _times(product, Node("neg", (factor,)) if sign == "-" else factor)
            elif self.accept("/"):
                product = Node("div", (product, atoms.factor(self)))
            elif atoms.can_start(self):
                product = self.beside(product)
            else:
                return product

    def beside(self, left: Node) -> Node:
        """Two factors side by side: a mixed number (1 1/2, 1\\frac12) or a product."""
        whole = left.number.denominator == 1 and left.kind == "number"
        if self.next.kind == "number" and self.tokens[self.at - 1].text not in ")]}":
            return self.mixed(left) if whole and self.next.spaced else self.refuse()
        was_fraction = self.next.text == "frac"
        right = atoms.factor(self)
        if whole and was_fraction and _proper(right):
            return Node("add", (left, right))
        return _times(left, right)

    def mixed(self, left: Node) -> Node:
        upper = atoms.factor(self)
        self.expect("/")
        right = Node("div", (upper, atoms.factor(self)))
        return Node("add", (left, right)) if _proper(right) else self.refuse()

    def refuse(self) -> Node:
        raise Unreadable(f"two numbers side by side at {self.next.text!r}")

    def measured(self, value: Node) -> Node:
        """A value with the unit, percent sign or scale word that follows it."""
        while self.next.kind in ("word", "letter") and self.next.text.lower() in SCALES:
            value = Node("mul", (value, number(SCALES[self.take().text.lower()])))
        if self.next.text == "%" or self.next.text.lower() in ("percent", "percentage", "pct"):
            self.take()
            return Node("unit", (value,), text="%")
        if currency := self.accept(*atoms.CURRENCIES):  # 5 € as well as € 5
            return Node("unit", (value,), text=atoms.CURRENCIES[currency])
        words = atoms.unit_words(self)
        if not words:
            return value
        if value.kind in ("word", "unit") or not may_be_unit(words):
            raise Unreadable(f"{words!r} is no unit")
        return Node("unit", (value,), text=words)


def _times(left: Node, right: Node) -> Node:
    """A product, flat however many factors it has."""
    if "word" in (left.kind, right.kind):
        raise Unreadable("a word in a product")
    return Node("mul", (*left.parts, right) if left.kind == "mul" else (left, right))


def _proper(node: Node) -> bool:
    """Is it a fraction of whole numbers below one, as in a mixed number?"""
    if node.kind != "div" or any(p.kind != "number" for p in node.parts):
        return False
    upper, lower = (part.number for part in node.parts)
    return upper.denominator == lower.denominator == 1 and Fraction(0) < upper < lower
