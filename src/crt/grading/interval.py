"""Bounds that a value certainly lies between: two values whose bounds do not meet differ."""

import math
import zlib
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import NamedTuple

from crt.grading.parser import Node, kinds, variables

_TINY = 4e-16  # more than one rounding of a double
_LARGE = 1.7e308
WHOLE_ONLY = {"floor", "ceiling", "factorial", "binom", "gcd", "lcm"}


class Bounds(NamedTuple):
    """`low` ≤ value ≤ `high`."""

    low: float
    high: float


class NoBounds(ValueError):
    """Not a real number here, or not known."""


_UNKNOWN = (ValueError, OverflowError, ZeroDivisionError)  # NoBounds is a ValueError


def differ(one: Node, other: Node) -> bool:
    """Are the two values certainly different, at some choice of their variables?"""
    for point in _points(one, other):
        try:
            a, b = _bounds(one, point), _bounds(other, point)
        except _UNKNOWN:
            continue
        if a.low > b.high or b.low > a.high:
            return True
    return False


def constant_bounds(node: Node) -> Bounds | None:
    """Bounds of a value without variables, or None."""
    if variables(node):
        return None
    try:
        return _bounds(node, 0)
    except _UNKNOWN:
        return None


def _points(one: Node, other: Node) -> tuple[int, ...]:
    """Which choices of the variables to try: -1 and -2 are whole numbers, 1 to 3 are not.

    Formulas with a floor or a factorial are meant for whole numbers and may differ elsewhere.
    """
    if not (variables(one) or variables(other)):
        return (0,)
    return (-1, -2) if (kinds(one) | kinds(other)) & WHOLE_ONLY else (1, 2, 3)


def _value_of(name: str, point: int) -> float:
    """A constant's value, or a fixed value for a variable, the same in every process."""
    if name in ("i", "infty"):
        raise NoBounds(name)
    if name in ("pi", "e"):
        return math.pi if name == "pi" else math.e
    seed = zlib.crc32(f"{name}/{point}".encode())
    return float(2 + seed % 23) if point < 0 else 0.3 + (seed % 100_003) / 40_000 * point


@lru_cache(maxsize=20_000)
def _bounds(node: Node, point: int) -> Bounds:
    """Bounds of a tree's value with its variables at the given point."""
    parts = [_bounds(part, point) for part in node.parts]
    match node.kind:
        case "number":
            return _around(float(node.number))
        case "name":
            return _around(_value_of(node.text, point))
        case "base":
            return _around(float(int(node.text, int(node.number))))
        case "neg":
            return _negative(parts[0])
        case "add":
            return _sum(parts)
        case "mul":
            return reduce(_times, parts)
        case "div":
            return _times(parts[0], _inverse(parts[1]))
        case "pow":
            return _power(parts[0], parts[1], node.parts[1])
        case "call":
            return _call(node.text, parts)
        case "unit" if node.text in ("%", "degree"):
            return _times(parts[0], _around(0.01 if node.text == "%" else math.pi / 180))
        case _:
            raise NoBounds(node.kind)


def _around(value: float) -> Bounds:
    slack = abs(value) * _TINY + 5e-324
    return Bounds(value - slack, value + slack)


def _negative(value: Bounds) -> Bounds:
    return Bounds(-value.high, -value.low)


def _sum(parts: list[Bounds]) -> Bounds:
    """A sum's rounding is relative to its largest term, not to its result."""
    low, high = sum(part.low for part in parts), sum(part.high for part in parts)
    if math.isnan(low) or math.isnan(high):
        raise NoBounds("not a number")
    finite = [abs(x) for p in parts for x in p if math.isfinite(x)]
    slack = len(parts) * _TINY * max(finite, default=0.0)
    return Bounds(low - slack, high + slack)


def _times(one: Bounds, other: Bounds) -> Bounds:
    corners = [a * b for a in one for b in other]
    if any(math.isnan(corner) for corner in corners):
        raise NoBounds("zero times infinity")
    return _outward(min(corners), max(corners))


def _outward(low: float, high: float) -> Bounds:
    """A little wider than rounding can err; beyond the largest double only that is known."""
    low, high = min(low, _LARGE), max(high, -_LARGE)
    return Bounds(low - abs(low) * _TINY - 5e-324, high + abs(high) * _TINY + 5e-324)


def _inverse(value: Bounds) -> Bounds:
    if value.low <= 0 <= value.high:
        raise NoBounds("division by zero")
    return _outward(1 / value.high, 1 / value.low)


def _power(base: Bounds, exponent: Bounds, power: Node) -> Bounds:
    """Positive bases by logarithm; others only to a whole power, or an odd root."""
    if base.low > 0:
        return _exp(_times(_log(base), exponent))
    if power.kind == "number" and power.number.denominator == 1 and 0 <= power.number <= 64:
        return reduce(_times, [base] * int(power.number), _around(1.0))
    if power.kind == "number" and base.high < 0 and power.number.denominator % 2:
        size = _exp(_times(_log(_negative(base)), exponent))
        return _negative(size) if power.number.numerator % 2 else size
    raise NoBounds("a negative number to this power")


def _exp(value: Bounds) -> Bounds:
    """e to the value; what overflows is only known to be large."""
    low = _LARGE if value.low > 709 else math.exp(value.low)
    high = math.inf if value.high > 709 else math.exp(value.high)
    return Bounds(low * (1 - 4 * _TINY), high * (1 + 4 * _TINY) + 5e-324)


def _log(value: Bounds) -> Bounds:
    if value.low <= 0:
        raise NoBounds("logarithm of what may be negative")
    low, high = math.log(value.low), math.log(value.high)
    return Bounds(low - abs(low) * 4 * _TINY - 1e-300, high + abs(high) * 4 * _TINY + 1e-300)


def _wave(function: Callable[[float], float], value: Bounds) -> Bounds:
    """Sine and cosine move no faster than their argument."""
    middle = (value.low + value.high) / 2
    reach = (value.high - value.low) / 2 + abs(middle) * _TINY + 4 * _TINY
    if not math.isfinite(reach) or reach > 1:
        raise NoBounds("too wide for a wave")
    return Bounds(function(middle) - reach, function(middle) + reach)


def _rising(function: Callable[[float], float], value: Bounds) -> Bounds:
    return _outward(*_outward(function(value.low), function(value.high)))


def _call(function: str, parts: list[Bounds]) -> Bounds:
    x = parts[0]
    match function:
        case "sin" | "cos":
            return _wave(getattr(math, function), x)
        case "tan":
            return _times(_wave(math.sin, x), _inverse(_wave(math.cos, x)))
        case "cot":
            return _times(_wave(math.cos, x), _inverse(_wave(math.sin, x)))
        case "sec" | "csc":
            return _inverse(_wave(math.cos if function == "sec" else math.sin, x))
        case "log" if len(parts) == 2:
            return _times(_log(x), _inverse(_log(parts[1])))
        case "arctan" | "sinh" | "tanh":
            return _rising({"arctan": math.atan}.get(function) or getattr(math, function), x)
        case "arcsin" if x.low > -1 and x.high < 1:
            return _rising(math.asin, x)
        case "abs":
            inner = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
            return Bounds(inner, max(abs(x.low), abs(x.high)))
        case "factorial" if x.low >= 1:
            return _factorial(x)
        case "floor" | "ceiling":
            step = math.floor if function == "floor" else math.ceil
            return _outward(float(step(x.low)), float(step(x.high)))
        case "binom" if len(parts) == 2 and parts[1].low > -0.5 and x.low > parts[1].high:
            return _binomial(x, parts[1])
        case _:
            raise NoBounds(function)


def _factorial(x: Bounds) -> Bounds:
    if x.low > 1e300:
        return Bounds(_LARGE, math.inf)
    return _exp(_rising(math.lgamma, Bounds(x.low + 1, min(x.high, 1e300) + 1)))


def _binomial(upper: Bounds, lower: Bounds) -> Bounds:
    """n over k from logarithms of factorials; loose, but enough to tell two formulas apart."""
    n, k = round((upper.low + upper.high) / 2), round((lower.low + lower.high) / 2)
    value = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    if abs(upper.high - n) > 1e-3 or abs(lower.high - k) > 1e-3 or n > 10**12:
        raise NoBounds("not whole numbers")
    slack = 1e-14 * math.lgamma(n + 1) + 1e-12
    return _exp(Bounds(value - slack, value + slack))
