"""Polynomials with rational coefficients, in which equal things look the same.

The atoms of a monomial are variables, π, e, i, prime numbers under a root (2^(1/2)) and, opaque,
anything else (sin x, 2^n). Roots of distinct primes are independent over the rationals
(Besicovitch), so without opaque atoms two values are equal exactly if their polynomials are.
"""

from fractions import Fraction
from functools import lru_cache
from math import comb, factorial
from typing import NamedTuple

from crt.grading.parser import Node, constants_in

Monomial = tuple[tuple[object, Fraction], ...]
Poly = dict[Monomial, Fraction]

MAX_TERMS = 300
MAX_BITS = 20_000

ONE: Monomial = ()


class TooHard(ValueError):
    """Too large, undefined or not a value: algebra does not decide."""


def plus(one: Poly, other: Poly) -> Poly:
    """The sum."""
    total = dict(one)
    for monomial, coefficient in other.items():
        total[monomial] = total.get(monomial, Fraction(0)) + coefficient
    return {monomial: c for monomial, c in total.items() if c}


def times(one: Poly, other: Poly) -> Poly:
    """The product, unless it grows too large."""
    if len(one) * len(other) > MAX_TERMS * 4:
        raise TooHard("too many terms")
    total: Poly = {}
    for left, a in one.items():
        for right, b in other.items():
            monomial, c = (
                (left or right, Fraction(1)) if not (left and right) else _joined(left, right)
            )
            total[monomial] = total.get(monomial, Fraction(0)) + a * b * c
    if len(total) > MAX_TERMS or any(c.numerator.bit_length() > MAX_BITS for c in total.values()):
        raise TooHard("too large")
    return {monomial: c for monomial, c in total.items() if c}


def _joined(left: Monomial, right: Monomial) -> tuple[Monomial, Fraction]:
    """The product of two monomials: i² is −1, and 2^(1/2)·2^(1/2) is the number 2."""
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, Fraction(0)) + power
    coefficient = Fraction(1)
    if powers.get("i", 0):
        turns = int(powers["i"]) % 4
        coefficient, powers["i"] = Fraction(-1 if turns > 1 else 1), Fraction(turns % 2)
    for atom, power in powers.items():
        if isinstance(atom, int):
            coefficient *= Fraction(atom) ** (power.numerator // power.denominator)
            powers[atom] = power % 1
    return tuple(sorted(((a, p) for a, p in powers.items() if p), key=repr)), coefficient


@lru_cache(maxsize=5000)
def primes(value: Fraction) -> dict[int, int]:
    """A positive number's primes and how often each is in it; below the line counts negative."""
    counts: dict[int, int] = {}
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        divisor = 2
        while divisor * divisor <= number:
            while number % divisor == 0:
                counts[divisor] = counts.get(divisor, 0) + sign
                number //= divisor
            divisor += 1 if divisor == 2 else 2
        if number > 1:
            counts[number] = counts.get(number, 0) + sign
    return counts


MAX_POWER = 400
MAX_ROOT = 10**9  # larger numbers under a root are not factorised here


class Quotient(NamedTuple):
    """`upper / lower`; `opaque` says that it has atoms that may depend on each other."""

    upper: Poly
    lower: Poly
    opaque: bool = False


def equal(one: Node, other: Node) -> bool | None:
    """Whether two values are the same, or None if that takes more than algebra."""
    if not (_finite(one) and _finite(other)):
        return None
    try:
        a, b = quotient(one), quotient(other)
        if times(a.upper, b.lower) == times(b.upper, a.lower):
            return True
    except (TooHard, ZeroDivisionError, OverflowError, ValueError):
        return None
    return None if a.opaque or b.opaque else False


def _finite(node: Node) -> bool:
    """Infinity is a name when it stands alone; ∞ − ∞ and ∞⁰ are no algebra."""
    inner = node.parts[0] if node.kind == "neg" else node
    return inner.kind == "name" or "infty" not in constants_in(inner)


def constant(node: Node) -> Fraction | None:
    """The rational number that a tree is, if it is one."""
    try:
        return _rational(quotient(node))
    except (TooHard, ZeroDivisionError, OverflowError, ValueError):
        return None


def polynomial(node: Node) -> Quotient | None:
    """The tree as a quotient of polynomials, or None."""
    try:
        return quotient(node)
    except (TooHard, ZeroDivisionError, OverflowError, ValueError):
        return None


@lru_cache(maxsize=20_000)
def quotient(node: Node) -> Quotient:
    """The quotient of polynomials that a tree stands for."""
    match node.kind:
        case "number":
            return _constant(node.number)
        case "name":
            return Quotient({((node.text, Fraction(1)),): Fraction(1)}, {ONE: Fraction(1)})
        case "base":
            return _constant(Fraction(int(node.text, int(node.number))))
        case "unit":
            return _measured(node)
        case "neg":
            return _product(_constant(Fraction(-1)), quotient(node.parts[0]))
        case "add":
            return _sum([quotient(part) for part in node.parts])
        case "mul":
            return _product(*(quotient(part) for part in node.parts))
        case "div":
            return _product(quotient(node.parts[0]), _inverse(quotient(node.parts[1])))
        case "pow":
            return _power(node)
        case "call":
            return _call(node)
        case _:
            raise TooHard(node.kind)


def _constant(value: Fraction) -> Quotient:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooHard("too many digits")
    return Quotient({ONE: value} if value else {}, {ONE: Fraction(1)})


def _measured(node: Node) -> Quotient:
    """Inside an expression a degree is π/180 and a percent 1/100; no other unit has a value."""
    inner = quotient(node.parts[0])
    if node.text == "%":
        return _product(inner, _constant(Fraction(1, 100)))
    if node.text == "degree":
        radian = Quotient({(("pi", Fraction(1)),): Fraction(1, 180)}, {ONE: Fraction(1)})
        return _product(inner, radian)
    raise TooHard(f"the unit {node.text}")


def _sum(terms: list[Quotient]) -> Quotient:
    total = terms[0]
    for term in terms[1:]:
        upper = plus(times(total.upper, term.lower), times(term.upper, total.lower))
        lower = times(total.lower, term.lower)
        total = _reduced(Quotient(upper, lower, total.opaque or term.opaque))
    return total


def _product(*factors: Quotient) -> Quotient:
    total = factors[0]
    for other in factors[1:]:
        upper, lower = times(total.upper, other.upper), times(total.lower, other.lower)
        total = _reduced(Quotient(upper, lower, total.opaque or other.opaque))
    return total


def _inverse(value: Quotient) -> Quotient:
    if not value.upper:
        raise TooHard("division by zero")
    return _reduced(Quotient(value.lower, value.upper, value.opaque))


def _reduced(value: Quotient) -> Quotient:
    """With 1 below when the lower side is one number, else with leading coefficient 1."""
    lower = value.lower
    lead = next(iter(lower.values())) if len(lower) == 1 else lower[min(lower, key=repr)]
    if lead == 1:
        return value
    upper = {monomial: c / lead for monomial, c in value.upper.items()}
    return value._replace(upper=upper, lower={m: c / lead for m, c in value.lower.items()})


def _power(node: Node) -> Quotient:
    base, exponent = quotient(node.parts[0]), quotient(node.parts[1])
    power = _rational(exponent)
    if power is None:
        return _opaque("pow", _frozen(base), _frozen(exponent))
    if power.denominator == 1:
        return _whole_power(base, power.numerator)
    value = _rational(base)
    if value is None or max(value.numerator, value.denominator) > MAX_ROOT:
        return _opaque("pow", _frozen(base), power)
    return _root(value, power)


def _whole_power(base: Quotient, power: int) -> Quotient:
    sizes = [max(c.numerator.bit_length(), c.denominator.bit_length()) for c in base.upper.values()]
    size = max(sizes, default=1)
    if abs(power) > (MAX_BITS // max(size, 1) if _rational(base) is not None else MAX_POWER):
        return _opaque("pow", _frozen(base), Fraction(power))
    if power == 0 and not base.upper:
        raise TooHard("0^0")
    base = _inverse(base) if power < 0 else base
    result, power = _constant(Fraction(1)), abs(power)
    while power:
        if power & 1:
            result = _product(result, base)
        power >>= 1
        base = _product(base, base) if power else base
    return result


def _root(value: Fraction, power: Fraction) -> Quotient:
    """A rational number to a fractional power, as primes under roots; √−4 is 2i."""
    if value == 0:
        return _constant(Fraction(0)) if power > 0 else _inverse(_constant(Fraction(0)))
    result = _constant(Fraction(1))
    if value < 0:
        if power.denominator == 2:
            turn = Quotient({(("i", Fraction(1)),): Fraction(1)}, {ONE: Fraction(1)})
            result = _whole_power(turn, power.numerator)
        elif power.denominator % 2 and power.numerator % 2:
            result = _constant(Fraction(-1))
        elif power.denominator % 2 == 0:
            raise TooHard("an even root of a negative number")
    for prime, count in primes(abs(value)).items():
        total = count * power
        whole, rest = total.numerator // total.denominator, total % 1
        result = _product(result, _constant(Fraction(prime) ** whole))
        if rest:
            root = Quotient({((prime, rest),): Fraction(1)}, {ONE: Fraction(1)})
            result = _product(result, root)
    return result


def _call(node: Node) -> Quotient:
    parts = [quotient(part) for part in node.parts]
    values = [_rational(part) for part in parts]
    if None not in values:
        known = _known(node.text, [value for value in values if value is not None])
        if known is not None:
            return _constant(Fraction(known))
    return _opaque("call", node.text, *(_frozen(part) for part in parts))


def _known(function: str, values: list[Fraction]) -> Fraction | int | None:
    """Functions of rational numbers whose value is one; None for all others."""
    first = values[0]
    whole = all(value.denominator == 1 and 0 <= value <= 500 for value in values)
    if function == "abs":
        return abs(first)
    if function == "floor":
        return first.numerator // first.denominator
    if function == "ceiling":
        return -(-first.numerator // first.denominator)
    if function in ("max", "min"):
        return max(values) if function == "max" else min(values)
    if function == "factorial" and whole:
        return factorial(int(first))
    if function == "binom" and whole and len(values) == 2:
        return comb(int(first), int(values[1]))
    if function == "log" and first == 1:
        return 0
    return None


def _opaque(*name: object) -> Quotient:
    return Quotient({((name, Fraction(1)),): Fraction(1)}, {ONE: Fraction(1)}, opaque=True)


def _frozen(value: Quotient) -> tuple[object, object]:
    return tuple(sorted(value.upper.items(), key=repr)), tuple(
        sorted(value.lower.items(), key=repr)
    )


def _rational(value: Quotient) -> Fraction | None:
    """The number that a quotient is, if it has no atoms."""
    if not value.upper:
        return Fraction(0)
    if set(value.upper) == set(value.lower) == {ONE}:
        return value.upper[ONE] / value.lower[ONE]
    return None
