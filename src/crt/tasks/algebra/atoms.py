"""The innermost level of the grammar: numbers, names, fractions, roots, functions, brackets."""

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from crt.tasks.algebra import brackets
from crt.tasks.algebra.node import Node, Unreadable, name, number
from crt.tasks.algebra.tokens import Token

if TYPE_CHECKING:
    from crt.tasks.algebra.reader import Reader

MAX_DIGITS = 400
CURRENCIES = {"$": "dollar", "euro": "euro", "pounds": "sterling", "yen": "yen", "rupee": "rupee"}
_GREEK = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"),
    *("kappa", "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "chi"),
    *("psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi"),
    *("Psi", "Omega", "ell", "hbar", "pi", "infty", "mho", "top", "R"),
}
_DECORATED = {"overline", "bar", "vec", "hat", "tilde", "overrightarrow", "widehat", "underline"}
_LABELS = {"angle", "triangle", "measuredangle"}
_APPLIED = set("fghFGHPN")  # followed by a bracket these are functions, not factors
_COUNTS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve"),
]
_SINGLE_UNITS = set("msghlLNJWKCFAVt")


def can_start(reader: "Reader") -> bool:
    """Can the next token begin a factor that stands beside another one?"""
    token = reader.next
    if token.kind in ("number", "name", "function"):
        return True
    if token.kind == "letter":
        return token.text not in _SINGLE_UNITS
    if token.kind == "sign":
        return token.text in "([{" or (token.text == "|" and reader.bars == 0)
    starts = _GREEK | _DECORATED | _LABELS | {"frac", "sqrt", "binom", r"\{", "lfloor", "lceil"}
    return token.kind == "command" and token.text in starts | {"begin", "emptyset"}


def unit_words(reader: "Reader") -> str:
    """The words after a value, with their powers: `cm^2`, `square feet`, `miles per hour`."""
    words: list[str] = []
    while reader.next.kind in ("word", "letter") or (words and reader.next.text in ("/", "^")):
        token = reader.take()
        if token.text == "^":
            words[-1] += f"^{_small_power(reader)}"
        else:
            words.append(token.text)
    if words[-1:] == ["/"]:
        raise Unreadable("a unit that ends in a slash")
    return " ".join(words)


def _small_power(reader: "Reader") -> str:
    node = argument(reader)
    if node.kind != "number" or node.number not in (2, 3):
        raise Unreadable("not the power of a unit")
    return str(node.number)


def factor(reader: "Reader") -> Node:
    """An atom with its powers, factorials and subscripts."""
    token = reader.next
    node = atom(reader)
    while True:
        if reader.accept("^"):
            node = raised(reader, node)
        elif reader.next.text == "_" and node.kind == "number":
            reader.take()
            node = in_base(token, argument(reader))
        elif reader.accept("!"):
            node = Node("call", (node,), text="factorial")
        else:
            return node


def raised(reader: "Reader", base: Node) -> Node:
    """A power; `^\\circ` is the unit degree, a prime makes another name."""
    if reader.next.text == "circ":
        reader.take()
        return Node("unit", (base,), text="degree")
    if reader.next.text == "{" and _is_circ(reader):
        reader.at += 3
        return Node("unit", (base,), text="degree")
    sign = reader.accept("-", "+")
    exponent = whole_argument(reader)
    return Node("pow", (base, Node("neg", (exponent,)) if sign == "-" else exponent))


def _is_circ(reader: "Reader") -> bool:
    return [t.text for t in reader.tokens[reader.at + 1 : reader.at + 3]] == ["circ", "}"]


def in_base(token: Token, base: Node) -> Node:
    """A numeral with its base: `1011_2`."""
    words = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
    size = words.get(base.text, base.number)
    digits = token.text
    valid = digits.isdigit() and size.denominator == 1 and 2 <= size <= 36
    if not valid or any(int(digit) >= size for digit in digits):
        raise Unreadable("not a numeral of this base")
    return Node("base", text=digits.lstrip("0") or "0", number=Fraction(size))


def atom(reader: "Reader") -> Node:
    """The smallest piece that has a value of its own."""
    reader.deeper()
    node = _atom(reader, reader.take())
    reader.depth -= 1
    return node


def _atom(reader: "Reader", token: Token) -> Node:
    if token.kind == "number":
        return literal(reader, token)
    if token.kind in ("name", "letter"):
        return named(reader, token.text)
    if token.kind == "word":
        return phrase(reader, token)
    if token.kind == "function":
        return brackets.called(reader, token.text)
    if token.kind == "sign":
        return brackets.opened(reader, token.text)
    if token.kind == "command":
        return command(reader, token.text)
    raise Unreadable(f"{token.text!r} begins nothing")


def literal(reader: "Reader", token: Token) -> Node:
    r"""A number; `0.1\overline{6}` repeats for ever."""
    if len(token.text) > MAX_DIGITS or re.search(r"[eE][+-]?\d{4}", token.text):
        raise Unreadable("too many digits")
    value = Fraction(token.text)
    at_repetend = reader.next.text in ("overline", "bar") and not reader.next.spaced
    dotted = reader.tokens[reader.at : reader.at + 2]
    if [t.text for t in dotted] in ([".", "overline"], [".", "bar"]):
        reader.take()  # `0.\overline{3}`: the point stands alone
        at_repetend = True
    if not at_repetend:
        return number(value)
    reader.take()
    places = len(token.text.partition(".")[2])
    return number(value + repeating(argument_digits(reader), places))


def repeating(digits: str, places: int) -> Fraction:
    """The value of digits that repeat for ever after `places` decimals."""
    return Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)


def argument_digits(reader: "Reader") -> str:
    reader.expect("{")
    token = reader.take()
    reader.expect("}")
    if not token.text.isdigit() or len(token.text) > 60:
        raise Unreadable("not digits that repeat")
    return token.text


def named(reader: "Reader", text: str) -> Node:
    """A variable with its subscript and primes, or a function such as f(x)."""
    if reader.accept("_"):
        text += "_" + subscript(reader)
    while reader.accept("'"):
        text += "'"
    if text[0] in _APPLIED and reader.next.text == "(":
        inside = atom(reader)
        return Node("call", (inside,), text=text)
    return name(text)


def subscript(reader: "Reader") -> str:
    """A subscript as it is written: it names, it is not computed."""
    if not reader.accept("{"):
        return reader.take().text
    text, depth = "", 1
    while depth:
        token = reader.take()
        depth += (token.text == "{") - (token.text == "}")
        text += token.text if depth else ""
    return text


def spelled(node: Node) -> str:
    """What stands under a bar or a hat, as text."""
    inner = ",".join(spelled(part) for part in node.parts)
    own = str(node.number) if node.kind == "number" else node.text
    return f"{own}({inner})" if inner else own


def phrase(reader: "Reader", token: Token) -> Node:
    """Words that stand for themselves: `no solution`."""
    words = [token.text]
    while reader.next.kind in ("word", "letter"):
        words.append(reader.take().text)
    spoken = " ".join(words).lower().strip(" .")
    return number(_COUNTS.index(spoken)) if spoken in _COUNTS else Node("word", text=spoken)


def argument(reader: "Reader") -> Node:
    r"""What a command is applied to: a group, or one token; of `\frac12` one digit each."""
    if reader.next.kind == "number" and len(reader.next.text) > 1:
        token = reader.next
        if not token.text.isdigit():
            raise Unreadable("a command needs braces here")
        reader.tokens[reader.at] = Token("number", token.text[1:])
        return number(int(token.text[0]))
    return whole_argument(reader)


def whole_argument(reader: "Reader") -> Node:
    """A group or one atom, all digits of a number included: `x^10` is meant as x¹⁰."""
    if reader.next.text == "max" or reader.next.text == "min":
        return name(reader.take().text)
    return atom(reader)


def command(reader: "Reader", text: str) -> Node:
    """A LaTeX command that is a value, or begins one."""
    if text in ("frac", "binom"):
        parts = (argument(reader), argument(reader))
        return Node("div", parts) if text == "frac" else Node("call", parts, text="binom")
    if text in _GREEK:
        return named(reader, text)
    if text in _DECORATED:
        return name(f"{text}({spelled(argument(reader))})")
    if text in _LABELS:  # \angle ABC: one name
        letters = ""
        while reader.next.kind in ("name", "letter"):
            letters += spelled(named(reader, reader.take().text))
        return name(f"{text} {letters}")
    if text in CURRENCIES:
        return Node("unit", (factor(reader),), text=CURRENCIES[text])
    if text == "emptyset":
        return Node("bracket", (), text="{}")
    if text == r"\{":
        return brackets.opened_set(reader)
    return brackets.opened(reader, text)
