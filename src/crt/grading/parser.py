"""LaTeX answers as trees: what is written, before anything is computed."""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce
from operator import add, mul
from typing import Any, NamedTuple

from crt.grading.latex import Token, join_thousands, normalise, tokenise, words
from crt.grading.units import SCALES, may_be_unit

MAX_DEPTH = 50  # deeper nesting is no answer, and would use up the stack of a caller
MAX_TOKENS = 1500
MAX_DIGITS = 400

ZERO = Fraction(0)
CONSTANTS = {"pi", "e", "i", "infty"}


class Node(NamedTuple):
    """One piece of an answer.

    Values: number, name, add, mul, div, pow, neg, plusminus, call, base. Around values: unit,
    relation, ratio, list, bracket, union, matrix, row, word. `unread` could not be parsed.
    """

    kind: str
    parts: "tuple[Node, ...]" = ()
    text: str = ""
    number: Fraction = ZERO


def number(value: Fraction | int) -> Node:
    return Node("number", number=Fraction(value))


def name(text: str) -> Node:
    return Node("name", text=text)


def negated(node: Node) -> Node:
    return Node("neg", (node,))


def all_nodes(tree: Node) -> list[Node]:
    """The tree and everything in it, from the top down."""
    nodes = [tree]
    for node in nodes:
        nodes += node.parts
    return nodes


def variables(tree: Node) -> set[str]:
    """The names in a tree that are no constants."""
    return {node.text for node in all_nodes(tree) if node.kind == "name"} - CONSTANTS


def kinds(tree: Node) -> set[str]:
    """The kinds of nodes in a tree, and the names of its functions."""
    nodes = all_nodes(tree)
    return {node.kind for node in nodes} | {node.text for node in nodes if node.kind == "call"}


class NotAValue(ValueError):
    """A tree is not one value, or it is too large to compute here."""


def combine(
    node: Node,
    parts: list[Any],
    number: Callable[[Fraction], Any],
    name: Callable[[str], Any],
    power: Callable[[Any, Any, Node], Any],
    call: Callable[[str, list[Any]], Any],
) -> Any:
    """A node's value from its parts' values, in any arithmetic: exact, of bounds, or sympy's."""
    match node.kind:
        case "number":
            return number(node.number)
        case "base":
            return number(Fraction(int(node.text, int(node.number))))
        case "name":
            return name(node.text)
        case "neg":
            return number(Fraction(-1)) * parts[0]
        case "add":
            return reduce(add, parts)
        case "mul":
            return reduce(mul, parts)
        case "div":
            return parts[0] / parts[1]
        case "pow":
            return power(parts[0], parts[1], node.parts[1])
        case "call":
            return call(node.text, parts)
        case "unit" if node.text == "%":
            return number(Fraction(1, 100)) * parts[0]
        case "unit" if node.text == "degree":
            return number(Fraction(1, 180)) * name("pi") * parts[0]
        case _:
            raise NotAValue(node.kind)


class Parsed(NamedTuple):
    """An answer as a tree; `joined` says that `1,234` was taken for one number."""

    tree: Node
    joined: bool


@lru_cache(maxsize=20_000)
def parse(answer: str, thousands: bool = True) -> Parsed:
    """The tree of an answer; what cannot be parsed becomes a node `unread`, never an error."""
    text = normalise(answer)
    if text is None:
        return Parsed(Node("unread", text=answer), False)
    joined = join_thousands(text) if thousands else text
    tokens = tokenise(joined)
    tree = _parse_tokens(tokens) if 0 < len(tokens) <= MAX_TOKENS else None
    return Parsed(tree or Node("unread", text=_to_latex(tokens)), joined != text)


def _parse_tokens(tokens: list[Token]) -> Node | None:
    try:
        parser = Parser(list(tokens))
        tree = parser.answer()
    except (Unreadable, ZeroDivisionError, OverflowError):
        return None
    complete = parser.position == len(tokens)
    return tree if complete and _depth(tree) <= MAX_DEPTH else None


def _depth(node: Node) -> int:
    """How deep a tree is, counted without recursion: `5!!!…` is deep without any bracket."""
    level, depth = [node], 0
    while level:
        level, depth = [part for node in level for part in node.parts], depth + 1
    return depth


def _to_latex(tokens: list[Token]) -> str:
    """LaTeX again, with words in small letters, for comparing and for another parser."""
    pieces: list[str] = []
    for token in tokens:
        if token.kind in ("command", "function"):
            pieces.append("\\" + token.text.removeprefix("\\") if token.text != "\\" else r"\\")
        else:
            pieces.append(rf"\text{{{token.text.lower()}}}" if token.kind == "word" else token.text)
    return " ".join(pieces)


class Unreadable(ValueError):
    """The answer does not follow the grammar; caught by `parse`."""


def _require(condition: object) -> None:
    if not condition:
        raise Unreadable


CURRENCIES = {"$": "dollar", "euro": "euro", "pounds": "sterling", "yen": "yen", "rupee": "rupee"}
_RELATIONS = {"=", "<", ">", "le", "ge", "ne", "approx", "in", "equiv", "sim", "subset"}
_GREEK = words(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar pi "
    "infty mho top R"
)
_ACCENTS = words("overline bar vec hat tilde overrightarrow widehat underline")
_LABELS = {"angle", "triangle", "measuredangle"}
_STARTS = _GREEK | _ACCENTS | _LABELS
_STARTS |= {"frac", "sqrt", "binom", r"\{", "lfloor", "lceil", "begin", "emptyset"}
_FUNCTION_NAMES = set("fghFGHPN")  # followed by a bracket these are functions, not factors
_COUNTS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_COUNTS += ("ten", "eleven", "twelve")
_SINGLE_LETTER_UNITS = set("msghlLNJWKCFAVt")
_CLOSINGS = {"(": (")", "]"), "[": ("]", ")"), "{": ("}",)}
_MATRICES = {"pmatrix", "bmatrix", "matrix", "array", "smallmatrix", "Bmatrix"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_END = Token("end", "")


class Parser:
    """Recursive descent over the tokens, one method per level of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.bars = 0  # open |…|: the next bar closes

    @property
    def next(self) -> Token:
        return self.tokens[self.position] if self.position < len(self.tokens) else _END

    def take(self) -> Token:
        _require(self.position < len(self.tokens))
        self.position += 1
        return self.tokens[self.position - 1]

    def accept(self, *texts: str) -> str:
        """Takes the next token if it is one of these signs or commands; "" if it is not."""
        token = self.next
        if token.kind in ("sign", "command", "comma") and token.text in texts:
            self.position += 1
            return token.text
        return ""

    def expect(self, *texts: str) -> str:
        text = self.accept(*texts)
        _require(text)
        return text

    def enter(self) -> None:
        self.depth += 1
        _require(self.depth <= MAX_DEPTH)

    # Lists, relations, unions, ratios, sums

    def answer(self) -> Node:
        """item, item; item … and item"""
        self.enter()
        items = [self.item()]
        while self.next.kind == "comma":
            while self.next.kind == "comma":
                self.take()
            items.append(self.item())
        self.depth -= 1
        return items[0] if len(items) == 1 else Node("list", tuple(items))

    def item(self) -> Node:
        """side = side ≤ side …; `≈ 5` alone is 5."""
        if self.next.text in ("approx", "=") and self.position == 0:
            self.take()
        sides, relations = [self.union()], []
        while self.next.kind in ("sign", "command") and self.next.text in _RELATIONS:
            relations.append(self.take().text)
            sides.append(self.union())
        return Node("relation", tuple(sides), " ".join(relations)) if relations else sides[0]

    def union(self) -> Node:
        parts = [self.ratio()]
        while self.accept("cup"):
            parts.append(self.ratio())
        return parts[0] if len(parts) == 1 else Node("union", tuple(parts))

    def ratio(self) -> Node:
        parts, last_tokens = [self.sum()], [self.tokens[self.position - 1].text]
        while self.accept(":"):
            parts.append(self.sum())
            last_tokens.append(self.tokens[self.position - 1].text)
        return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts), ":".join(last_tokens))

    def sum(self) -> Node:
        terms = [self.signed(self.accept("+", "-", "pm", "mp"))]
        while sign := self.accept("+", "-", "pm", "mp"):
            terms.append(self.signed(sign))
        if len(terms) == 1:
            return terms[0]
        _require(all(term.kind != "word" for term in terms))
        return Node("add", tuple(terms))

    def signed(self, sign: str) -> Node:
        """A term with its sign; a second sign (`--5`) is a sign of the term."""
        inner = self.accept("+", "-") if sign else ""
        self.enter()
        term = self.measured(self.signed(inner) if inner else self.product())
        self.depth -= 1
        if sign == "-":
            return negated(term)
        return Node("plusminus", (term,), sign) if sign in ("pm", "mp") else term

    def measured(self, value: Node) -> Node:
        """A value with the unit, percent sign or scale word that follows it."""
        while self.next.kind in ("word", "letter") and self.next.text.lower() in SCALES:
            value = Node("mul", (value, number(SCALES[self.take().text.lower()])))
        if self.next.text == "%" or self.next.text.lower() in ("percent", "percentage", "pct"):
            self.take()
            return Node("unit", (value,), "%")
        if currency := self.accept(*CURRENCIES):  # 5 € as well as € 5
            return Node("unit", (value,), CURRENCIES[currency])
        unit = self.unit()
        if not unit:
            return value
        _require(value.kind not in ("word", "unit") and may_be_unit(unit))
        return Node("unit", (value,), unit)

    def unit(self) -> str:
        """The words after a value, with their powers: `cm^2`, `square feet`, `miles per hour`."""
        words: list[str] = []
        while self.next.kind in ("word", "letter") or (words and self.next.text in ("/", "^")):
            token = self.take()
            if token.text != "^":
                words.append(token.text)
                continue
            power = self.argument()
            _require(power.kind == "number" and power.number in (2, 3))
            words[-1] += f"^{power.number}"
        _require(words[-1:] != ["/"])
        return " ".join(words)

    # Products

    def product(self) -> Node:
        """Factors, written with signs or side by side; `/` divides by the next factor alone."""
        product = self.factor()
        while True:
            if self.accept("*"):
                sign = self.accept("-", "+")
                factor = self.factor()
                product = _multiplied(product, negated(factor) if sign == "-" else factor)
            elif self.accept("/"):
                product = Node("div", (product, self.factor()))
            elif self.at_factor():
                product = self.adjacent(product)
            else:
                return product

    def at_factor(self) -> bool:
        """Can the next token begin a factor that stands beside another one?"""
        token = self.next
        if token.kind == "letter":
            return token.text not in _SINGLE_LETTER_UNITS
        if token.kind == "sign":
            return token.text in "([{" or (token.text == "|" and self.bars == 0)
        is_start = token.kind == "command" and token.text in _STARTS
        return is_start or token.kind in ("number", "name", "function")

    def adjacent(self, left: Node) -> Node:
        """Two factors side by side: a mixed number (1 1/2, 1\\frac12) or a product."""
        whole = left.number.denominator == 1 and left.kind == "number"
        token, after = self.next, self.tokens[self.position - 1].text
        right = self.factor()
        if token.kind == "number" and after not in ")]}":
            self.expect("/")
            right = Node("div", (right, self.factor()))
            _require(whole and token.spaced and _is_proper_fraction(right))
            return Node("add", (left, right))
        if whole and token.text == "frac" and _is_proper_fraction(right):
            return Node("add", (left, right))
        return _multiplied(left, right)

    def factor(self) -> Node:
        """An atom with its powers, factorials and base."""
        first = self.next
        node = self.atom()
        while True:
            if self.accept("^"):
                node = self.raised(node)
            elif self.next.text == "_" and node.kind == "number":
                self.take()
                node = _numeral(first.text, self.argument())
            elif self.accept("!"):
                node = Node("call", (node,), "factorial")
            else:
                return node

    def raised(self, base: Node) -> Node:
        r"""A power; `^\circ` is the unit degree."""
        following = [t.text for t in self.tokens[self.position : self.position + 3]]
        if following[:1] == ["circ"] or following == ["{", "circ", "}"]:
            self.position += 1 if following[0] == "circ" else 3
            return Node("unit", (base,), "degree")
        return Node("pow", (base, self.exponent()))

    def exponent(self) -> Node:
        sign = self.accept("-", "+")
        operand = self.operand()
        return negated(operand) if sign == "-" else operand

    def argument(self) -> Node:
        r"""What a command is applied to: a group, or one token; of `\frac12` one digit each."""
        token = self.next
        if token.kind != "number" or len(token.text) == 1:
            return self.operand()
        _require(token.text.isdigit())
        self.tokens[self.position] = Token("number", token.text[1:])
        return number(int(token.text[0]))

    def operand(self) -> Node:
        """A group or one atom, all digits of a number included: `x^10` is meant as x¹⁰."""
        if self.next.text in ("max", "min"):
            return name(self.take().text)
        return self.atom()

    # Atoms

    def atom(self) -> Node:
        """The smallest piece that has a value of its own."""
        self.enter()
        token = self.take()
        match token.kind:
            case "number":
                node = self.literal(token)
            case "name" | "letter":
                node = self.named(token.text)
            case "word":
                node = self.phrase(token)
            case "function":
                node = self.root() if token.text == "sqrt" else self.function(token.text)
            case "sign":
                node = self.bracket(token.text)
            case "command":
                node = self.command(token.text)
            case _:
                raise Unreadable
        self.depth -= 1
        return node

    def literal(self, token: Token) -> Node:
        r"""A number; `0.1\overline{6}` repeats for ever."""
        _require(len(token.text) <= MAX_DIGITS and not re.search(r"[eE][+-]?\d{4}", token.text))
        value = Fraction(token.text)
        following = [t.text for t in self.tokens[self.position : self.position + 2]]
        if following in ([".", "overline"], [".", "bar"]):
            self.take()  # `0.\overline{3}`: the point stands alone
        elif self.next.text not in ("overline", "bar") or self.next.spaced:
            return number(value)
        self.take()
        digits = self.braced()
        _require(digits.isdigit() and len(digits) <= 60)
        places = len(token.text.partition(".")[2])
        return number(value + Fraction(int(digits), (10 ** len(digits) - 1) * 10**places))

    def named(self, text: str) -> Node:
        """A variable with its subscript and primes, or a function such as f(x)."""
        if self.accept("_"):
            text += "_" + (self.braced() if self.next.text == "{" else self.take().text)
        while self.accept("'"):
            text += "'"
        if text[0] in _FUNCTION_NAMES and self.next.text == "(":
            return Node("call", (self.atom(),), text)
        return name(text)

    def braced(self) -> str:
        """A group as it is written: it names, it is not computed."""
        self.expect("{")
        text, depth = "", 1
        while depth:
            token = self.take()
            depth += (token.text == "{") - (token.text == "}")
            text += token.text if depth else ""
        return text

    def phrase(self, token: Token) -> Node:
        """Words that stand for themselves: `no solution`."""
        words = [token.text]
        while self.next.kind in ("word", "letter"):
            words.append(self.take().text)
        text = " ".join(words).lower().strip(" .")
        return number(_COUNTS.index(text)) if text in _COUNTS else Node("word", text=text)

    def command(self, text: str) -> Node:
        """A LaTeX command that is a value, or begins one."""
        if text in ("frac", "binom"):
            parts = (self.argument(), self.argument())
            return Node("div", parts) if text == "frac" else Node("call", parts, "binom")
        if text in _GREEK:
            return self.named(text)
        if text in _ACCENTS:
            return name(f"{text}({_spelling(self.argument())})")
        if text in _LABELS:  # \angle ABC: one name
            letters = ""
            while self.next.kind in ("name", "letter"):
                letters += _spelling(self.named(self.take().text))
            return name(f"{text} {letters}")
        if text in CURRENCIES:
            return Node("unit", (self.factor(),), CURRENCIES[text])
        return Node("bracket", (), "{}") if text == "emptyset" else self.bracket(text)

    # Brackets, matrices and functions

    def bracket(self, opening: str) -> Node:
        """What stands in a bracket that has just been opened; around one value it only groups.

        `(a, b]` keeps its kinds of ends; braces are not printed, so they never are a bracket.
        """
        if opening in _CLOSINGS:
            inside, closing = self.inside(*_CLOSINGS[opening])
            if inside.kind == "list" and opening != "{":
                return Node("bracket", inside.parts, opening + closing)
            _require(closing == _CLOSINGS[opening][0])
            return inside
        if opening == r"\{":
            if self.accept(r"\}"):
                return Node("bracket", (), "{}")
            inside, _ = self.inside(r"\}")
            return Node("bracket", inside.parts if inside.kind == "list" else (inside,), "{}")
        if opening == "|":
            self.bars += 1
            inside = self.sum()
            self.bars -= 1
            self.expect("|")
            return Node("call", (inside,), "abs")
        if opening in ("lfloor", "lceil"):
            function = "floor" if opening == "lfloor" else "ceiling"
            return Node("call", self.inside("r" + opening[1:])[:1], function)
        _require(opening == "begin")
        return self.matrix()

    def inside(self, *closings: str) -> tuple[Node, str]:
        """What comes before one of the closing brackets, and that bracket."""
        bars, self.bars = self.bars, 0
        inside = self.answer()
        self.bars = bars
        return inside, self.expect(*closings)

    def matrix(self) -> Node:
        r"""The rows of `\begin{pmatrix} … \end{pmatrix}`; all must be of one length."""
        kind = self.braced()
        _require(kind in _MATRICES)
        if kind == "array" and self.next.text == "{":
            self.braced()
        rows = [[self.item()]]
        while not self.accept("end"):
            if self.accept("&"):
                rows[-1].append(self.item())
            else:
                self.expect("\\")
                if self.next.text != "end":
                    rows.append([self.item()])
        _require(self.braced() == kind and len({len(row) for row in rows}) == 1)
        return Node("matrix", tuple(Node("row", tuple(row)) for row in rows))

    def root(self) -> Node:
        degree = self.inside("]")[0] if self.accept("[") else number(2)
        _require(degree.kind == "number" and degree.number.denominator == 1 and degree.number >= 2)
        return Node("pow", (self.argument(), number(Fraction(1, degree.number))))

    def function(self, text: str) -> Node:
        """A function with its power, its base and what it is applied to, in one spelling each."""
        power, base = None, None
        while sign := self.accept("^", "_"):
            operand = self.exponent()
            power, base = (operand, base) if sign == "^" else (power, operand)
        arguments = self.function_arguments()
        _require(arguments)
        if text in _INVERSES and power in (negated(number(1)), number(-1)):
            text, power = _INVERSES[text], None
        if text in ("ln", "lg"):
            text, base = "log", name("e") if text == "ln" else number(10)
        if text == "exp" and len(arguments) == 1:
            node = Node("pow", (name("e"), *arguments))
        else:
            _require(base is None or text == "log")
            node = Node("call", (*arguments, base) if base else arguments, text)
        return node if power is None else Node("pow", (node, power))

    def function_arguments(self) -> tuple[Node, ...]:
        r"""A bracket's values, or the factors that follow: `\sin 2x` is sin(2x)."""
        if self.next.text in ("(", "{", "["):
            inside = self.atom()
            return inside.parts if inside.kind in ("bracket", "list") else (inside,)
        argument = self.factor()
        while self.next.kind in ("number", "name", "command") and self.at_factor():
            argument = self.adjacent(argument)
        return (argument,)


def _multiplied(left: Node, right: Node) -> Node:
    """A product, flat however many factors it has."""
    _require("word" not in (left.kind, right.kind))
    return Node("mul", (*left.parts, right) if left.kind == "mul" else (left, right))


def _is_proper_fraction(node: Node) -> bool:
    """Is it a fraction of whole numbers below one, as in a mixed number?"""
    if node.kind != "div" or any(part.kind != "number" for part in node.parts):
        return False
    upper, lower = (part.number for part in node.parts)
    return upper.denominator == lower.denominator == 1 and 0 < upper < lower


def _numeral(digits: str, base: Node) -> Node:
    """A numeral with its base: `1011_2`."""
    size = base.number
    _require(digits.isdigit() and size.denominator == 1 and 2 <= size <= 36)
    _require(all(int(digit) < size for digit in digits))
    return Node("base", text=digits.lstrip("0") or "0", number=size)


def _spelling(node: Node) -> str:
    """What stands under a bar or a hat, as text."""
    inner = ",".join(map(_spelling, node.parts))
    own = str(node.number) if node.kind == "number" else node.text
    return f"{own}({inner})" if inner else own
