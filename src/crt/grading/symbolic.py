"""Settles with sympy what algebra leaves open; loaded by workers alone.

What our grammar cannot read goes through math-verify's parser. Two expressions are the same if
their difference vanishes to 180 digits at every point that is tried: math-verify's own comparison
rounds to six digits (1/2004! would be 1/2006!).
"""

from fractions import Fraction
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse
from sympy.core.function import AppliedUndef

from crt.grading.interval import WHOLE_ONLY
from crt.grading.latex import words
from crt.grading.mathematics import GoldUnread
from crt.grading.parser import Node, NotAValue, all_nodes, combine, kinds

DIGITS = 200
ZERO_BELOW = 10.0**-180
# Values for the variables; negative ones count only where both sides are real.
_POINTS = ("17/13", "-29/31", "101/7", "-53/11", "1/37")
_WHOLE_POINTS = ("3", "6", "7", "12", "5")
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}
_FUNCTIONS = {
    function: getattr(sympy, function)
    for function in words("sin cos tan cot sec csc sinh cosh tanh gcd lcm factorial floor ceiling")
} | {
    **{"arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "abs": sympy.Abs},
    **{"max": sympy.Max, "min": sympy.Min, "binom": sympy.binomial},
}


def same_value(answer: Node, gold: Node) -> bool:
    """Whether two trees are one value; an answer that is no expression is not the gold."""
    try:
        gold_expression = to_expression(gold)
    except NotAValue as error:
        if "\\" in gold.text.replace(r"\text", ""):
            raise GoldUnread(gold.text) from error
        return False  # words, which were compared as words
    except Exception as error:  # sympy raises nearly anything on what it cannot build
        raise GoldUnread(gold.text or gold.kind) from error
    try:
        expression = to_expression(answer)
    except (ValueError, TypeError, AttributeError, ZeroDivisionError):
        return False
    whole = _is_for_whole_numbers(answer) or _is_for_whole_numbers(gold)
    return same_expression(expression, gold_expression, whole)


def _is_for_whole_numbers(tree: Node) -> bool:
    """Formulas with a floor or a factorial, and (−1)^n, are meant for whole n."""
    powers = [node.parts for node in all_nodes(tree) if node.kind == "pow"]
    alternates = any(base.kind == "neg" and power.kind != "number" for base, power in powers)
    return alternates or bool(kinds(tree) & WHOLE_ONLY)


def to_expression(node: Node) -> Any:
    """A sympy expression; NotAValue for what is not one value."""
    if node.kind == "unread":  # math-verify would drop the words of a text
        expression = None if r"\text" in node.text else parse_latex(node.text)
        if not isinstance(expression, sympy.Expr):
            raise NotAValue(node.text)
        return expression
    parts = [to_expression(part) for part in node.parts]
    return combine(node, parts, _number, _named, _power, _call)


def _number(value: Fraction) -> Any:
    return sympy.Rational(value.numerator, value.denominator)


def _named(name: str) -> Any:
    if name == "infty":  # ∞⁰ would be 1
        raise NotAValue(name)
    return _CONSTANTS.get(name, sympy.Symbol(name))


def _power(base: Any, exponent: Any, _: Node) -> Any:
    """As in school, an odd root of a negative number is negative."""
    if exponent.is_Rational and exponent.q % 2 and exponent.q > 1 and base.is_negative:
        return sympy.Integer(-1) ** exponent.p * (-base) ** exponent
    return base**exponent


def _call(function: str, arguments: list[Any]) -> Any:
    if function == "log":  # without a base it may be 10 or e: an unknown base keeps both apart
        base = arguments[1] if len(arguments) > 1 else sympy.Symbol("base of log")
        return sympy.log(arguments[0]) / sympy.log(base)
    return _FUNCTIONS.get(function, sympy.Function(function))(*arguments)


def parse_latex(latex: str) -> Any:
    """What math-verify makes of LaTeX that our grammar does not know: sums, integrals, limits."""
    expressions = parse(
        f"${latex}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,  # type: ignore[arg-type]  # the process has the deadline
    )
    return expressions[0] if expressions else None


def same_expression(answer: Any, gold: Any, whole: bool = False) -> bool:
    """Whether two expressions agree to 180 digits wherever they are tried."""
    if answer == gold:
        return True
    if answer.has(AppliedUndef) or gold.has(AppliedUndef):  # f(x): nothing to evaluate
        return bool((answer - gold).expand() == 0)
    symbols = sorted(answer.free_symbols | gold.free_symbols, key=str)
    points = (_WHOLE_POINTS if whole else _POINTS) if symbols else ("0",)
    verdicts: list[bool | None] = []
    for k, text in enumerate(points):
        point = Fraction(text)  # each variable has a value of its own
        values = {
            symbol: _number(point + j * (2 + k) if point > 0 else point - j)
            for j, symbol in enumerate(symbols)
        }
        verdicts.append(same_number(answer.subs(values).doit(), gold.subs(values).doit()))
    if False in verdicts:
        return False
    if verdicts.count(True) < min(3, len(points)):
        raise GoldUnread(f"{gold} has no value to compare")
    return True


def same_number(answer: Any, gold: Any) -> bool | None:
    """Whether two numbers agree; None where they are not both finite, or both real or both not."""
    a, b = (sympy.N(side, 30, maxn=DIGITS) for side in (answer, gold))
    if not (b.is_number and b.is_finite):
        return None
    if not (a.is_number and a.is_finite):
        return None if answer.free_symbols or gold.free_symbols else False
    if bool(a.is_real) != bool(b.is_real):
        return None if not (answer.is_real and gold.is_real) else False
    if answer.is_Rational and gold.is_Rational:
        return bool(answer == gold)
    scale = 1 if gold.is_zero or answer.is_zero else max(abs(a), abs(b))
    if abs(a - b) > 1e-12 * scale:
        return False
    difference = abs(sympy.N(answer - gold, 15, maxn=DIGITS))
    return bool(difference <= ZERO_BELOW * scale)
