"""What an answer's tree is made of."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from crt.grading.latex import Token, tidy, tokenise, with_thousands
from crt.grading.units import SCALES, may_be_unit

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
        product = factor(self)
        while True:
            if self.accept("*"):
                sign = self.accept("-", "+")
                right = factor(self)
                product = _times(product, Node("neg", (right,)) if sign == "-" else right)
            elif self.accept("/"):
                product = Node("div", (product, factor(self)))
            elif can_start(self):
                product = self.beside(product)
            else:
                return product

    def beside(self, left: Node) -> Node:
        """Two factors side by side: a mixed number (1 1/2, 1\\frac12) or a product."""
        whole = left.number.denominator == 1 and left.kind == "number"
        if self.next.kind == "number" and self.tokens[self.at - 1].text not in ")]}":
            return self.mixed(left) if whole and self.next.spaced else self.refuse()
        was_fraction = self.next.text == "frac"
        right = factor(self)
        if whole and was_fraction and _proper(right):
            return Node("add", (left, right))
        return _times(left, right)

    def mixed(self, left: Node) -> Node:
        upper = factor(self)
        self.expect("/")
        right = Node("div", (upper, factor(self)))
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
        if currency := self.accept(*CURRENCIES):  # 5 € as well as € 5
            return Node("unit", (value,), text=CURRENCIES[currency])
        words = unit_words(self)
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
        return called(reader, token.text)
    if token.kind == "sign":
        return opened(reader, token.text)
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
        return opened_set(reader)
    return opened(reader, text)


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
        given = whole_argument(reader)
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
    return Node("pow", (argument(reader), number(Fraction(1, degree.number))))


def _applied_to(reader: "Reader") -> tuple[Node, ...]:
    r"""A bracket's values, or the factors that follow: `\sin 2x` is sin(2x)."""
    if reader.next.text in ("(", "{", "["):
        inside = atom(reader)
        return inside.parts if inside.kind in ("bracket", "list") else (inside,)
    argument = factor(reader)
    while reader.next.kind in ("number", "name", "command") and can_start(reader):
        argument = reader.beside(argument)
    return (argument,)
