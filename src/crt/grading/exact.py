"""Exact values: quotients of polynomials with rational coefficients, in which equals look the same.

The atoms of a monomial are variables, π, e, i, prime numbers under a root (2^(1/2)) and, opaque,
anything else (sin x, 2^n). Roots of distinct primes are independent over the rationals
(Besicovitch), so without opaque atoms a/b and c/d are equal exactly if a·d = b·c.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb, factorial, floor

from crt.grading.parser import Node, NotAValue, all_nodes, combine, name

Monomial = tuple[tuple[object, Fraction], ...]
Poly = dict[Monomial, Fraction]

MAX_TERMS = 300
MAX_BITS = 20_000
MAX_POWER = 400
MAX_ROOT = 10**9  # larger numbers under a root are not factorised here

_ONE: Monomial = ()
_UNDECIDED = (NotAValue, ZeroDivisionError, OverflowError, ValueError)


@dataclass(frozen=True, slots=True)
class Quotient:
    """`upper / lower`; `opaque` says that it has atoms that may depend on each other."""

    upper: Poly
    lower: Poly
    opaque: bool = False

    @property
    def is_polynomial(self) -> bool:
        """Only a number is below the line."""
        return set(self.lower) == {_ONE}

    @property
    def rational(self) -> Fraction | None:
        """The number that it is, if it has no atoms."""
        if not self.upper:
            return Fraction(0)
        if set(self.upper) == set(self.lower) == {_ONE}:
            return self.upper[_ONE] / self.lower[_ONE]
        return None

    @property
    def key(self) -> tuple[object, object]:
        """Itself as a part of an atom."""
        upper, lower = (tuple(sorted(side.items(), key=repr)) for side in (self.upper, self.lower))
        return upper, lower

    def __add__(self, other: "Quotient") -> "Quotient":
        upper = _plus(_times(self.upper, other.lower), _times(other.upper, self.lower))
        return _reduced(upper, _times(self.lower, other.lower), self.opaque or other.opaque)

    def __mul__(self, other: "Quotient") -> "Quotient":
        upper, lower = _times(self.upper, other.upper), _times(self.lower, other.lower)
        return _reduced(upper, lower, self.opaque or other.opaque)

    def __truediv__(self, other: "Quotient") -> "Quotient":
        if not other.upper:
            raise NotAValue("division by zero")
        return self * _reduced(other.lower, other.upper, other.opaque)


def _reduced(upper: Poly, lower: Poly, opaque: bool) -> Quotient:
    """With 1 below when the lower side is one number, else with leading coefficient 1."""
    lead = next(iter(lower.values())) if len(lower) == 1 else lower[min(lower, key=repr)]
    if lead != 1:
        upper, lower = ({m: c / lead for m, c in side.items()} for side in (upper, lower))
    return Quotient(upper, lower, opaque)


def equal(one: Node, other: Node) -> bool | None:
    """Whether two values are the same, or None if that takes more than algebra."""
    if not (_is_finite(one) and _is_finite(other)):
        return None
    try:
        a, b = _quotient(one), _quotient(other)
        if _times(a.upper, b.lower) == _times(b.upper, a.lower):
            return True
    except _UNDECIDED:
        return None
    return None if a.opaque or b.opaque else False


def _is_finite(node: Node) -> bool:
    """Infinity is a name when it stands alone; ∞ − ∞ and ∞⁰ are no algebra."""
    inner = node.parts[0] if node.kind == "neg" else node
    return inner.kind == "name" or name("infty") not in all_nodes(inner)


def constant(node: Node) -> Fraction | None:
    quotient = quotient_of(node)
    return None if quotient is None else quotient.rational


def quotient_of(node: Node) -> Quotient | None:
    try:
        return _quotient(node)
    except _UNDECIDED:
        return None


@lru_cache(maxsize=20_000)
def _quotient(node: Node) -> Quotient:
    parts = [_quotient(part) for part in node.parts]
    return combine(node, parts, _number, _atom, _power, _call)


def _number(value: Fraction) -> Quotient:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise NotAValue("too many digits")
    return Quotient({_ONE: value} if value else {}, {_ONE: Fraction(1)})


def _atom(atom: object, power: Fraction = Fraction(1), opaque: bool = False) -> Quotient:
    return Quotient({((atom, power),): Fraction(1)}, {_ONE: Fraction(1)}, opaque)


def _power(base: Quotient, exponent: Quotient, _: Node) -> Quotient:
    power, value = exponent.rational, base.rational
    if power is None:
        return _atom(("pow", base.key, exponent.key), opaque=True)
    if power.denominator == 1:
        return _whole_power(base, power.numerator)
    if value is None or max(value.numerator, value.denominator) > MAX_ROOT:
        return _atom(("pow", base.key, power), opaque=True)
    return _root(value, power)


def _whole_power(base: Quotient, power: int) -> Quotient:
    sizes = [max(c.numerator.bit_length(), c.denominator.bit_length()) for c in base.upper.values()]
    size = max(sizes, default=1)
    if abs(power) > (MAX_BITS // size if base.rational is not None else MAX_POWER):
        return _atom(("pow", base.key, Fraction(power)), opaque=True)
    if power == 0 and not base.upper:
        raise NotAValue("0^0")
    result = _number(Fraction(1))
    base, power = (result / base if power < 0 else base), abs(power)
    while power:
        if power & 1:
            result = result * base
        power >>= 1
        base = base * base if power else base
    return result


def _root(value: Fraction, power: Fraction) -> Quotient:
    """A rational number to a fractional power, as primes under roots; √−4 is 2i."""
    result = _number(Fraction(1))
    if value == 0:
        return _number(value) if power > 0 else result / _number(value)
    if value < 0:
        if power.denominator == 2:
            result = _whole_power(_atom("i"), power.numerator)
        elif power.denominator % 2 == 0:
            raise NotAValue("an even root of a negative number")
        elif power.numerator % 2:
            result = _number(Fraction(-1))
    for prime, count in _prime_factors(abs(value)).items():
        whole, rest = divmod(count * power, 1)
        result = result * _number(Fraction(prime) ** whole)
        if rest:
            result = result * _atom(prime, rest)
    return result


@lru_cache(maxsize=5000)
def _prime_factors(value: Fraction) -> dict[int, int]:
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


def _call(function: str, arguments: list[Quotient]) -> Quotient:
    values = [argument.rational for argument in arguments]
    rationals = [value for value in values if value is not None]
    result = _call_rational(function, rationals) if len(rationals) == len(values) else None
    if result is not None:
        return _number(Fraction(result))
    return _atom(("call", function, *(argument.key for argument in arguments)), opaque=True)


def _call_rational(function: str, values: list[Fraction]) -> Fraction | int | None:
    """Functions of rational numbers whose value is one; None for all others."""
    first = values[0]
    small = all(value.denominator == 1 and 0 <= value <= 500 for value in values)
    match function:
        case "abs" | "floor" | "ceiling":
            return {"abs": abs, "floor": floor, "ceiling": ceil}[function](first)
        case "max" | "min":
            return max(values) if function == "max" else min(values)
        case "factorial" if small:
            return factorial(int(first))
        case "binom" if small and len(values) == 2:
            return comb(int(first), int(values[1]))
        case "log" if first == 1:
            return 0
        case _:
            return None


# Arithmetic of polynomials


def _plus(one: Poly, other: Poly) -> Poly:
    total = dict(one)
    for monomial, coefficient in other.items():
        total[monomial] = total.get(monomial, Fraction(0)) + coefficient
    return {monomial: c for monomial, c in total.items() if c}


def _times(one: Poly, other: Poly) -> Poly:
    """The product, unless it grows too large."""
    if len(one) * len(other) > MAX_TERMS * 4:
        raise NotAValue("too many terms")
    total: Poly = {}
    for left, a in one.items():
        for right, b in other.items():
            if left and right:
                monomial, c = _multiply_monomials(left, right)
            else:
                monomial, c = left or right, Fraction(1)
            total[monomial] = total.get(monomial, Fraction(0)) + a * b * c
    if len(total) > MAX_TERMS or any(c.numerator.bit_length() > MAX_BITS for c in total.values()):
        raise NotAValue("too large")
    return {monomial: c for monomial, c in total.items() if c}


def _multiply_monomials(left: Monomial, right: Monomial) -> tuple[Monomial, Fraction]:
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
