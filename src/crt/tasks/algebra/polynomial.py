"""Polynomials with rational coefficients, in which equal things look the same.

The atoms of a monomial are variables, π, e, i, prime numbers under a root (2^(1/2)) and, opaque,
anything else (sin x, 2^n). Roots of distinct primes are independent over the rationals
(Besicovitch), so without opaque atoms two values are equal exactly if their polynomials are.
"""

from fractions import Fraction
from functools import lru_cache

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
