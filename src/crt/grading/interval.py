"""Bounds that a value certainly lies between: two values whose bounds do not meet differ."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial, reduce
from operator import mul

from crt.grading.parser import Node, NotAValue, combine, kinds, variables

_TINY = 4e-16  # more than one rounding of a double
_LARGE = 1.7e308
WHOLE_ONLY = {"floor", "ceiling", "factorial", "binom", "gcd", "lcm"}
_UNKNOWN = (NotAValue, ValueError, OverflowError, ZeroDivisionError)
_RISING = {"arctan": math.atan, "sinh": math.sinh, "tanh": math.tanh}


@dataclass(frozen=True, slots=True)
class Bounds:
    """`low` ≤ value ≤ `high`."""

    low: float
    high: float

    def __neg__(self) -> "Bounds":
        return Bounds(-self.high, -self.low)

    def __add__(self, other: "Bounds") -> "Bounds":
        low, high = self.low + other.low, self.high + other.high
        if math.isnan(low) or math.isnan(high):
            raise NotAValue("infinity minus infinity")
        # rounding is relative to the larger term, not to the result
        ends = map(abs, (self.low, self.high, other.low, other.high))
        slack = 2 * _TINY * max(filter(math.isfinite, ends), default=0.0)
        return Bounds(low - slack, high + slack)

    def __mul__(self, other: "Bounds") -> "Bounds":
        corners = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        if any(map(math.isnan, corners)):
            raise NotAValue("zero times infinity")
        return _outward(min(corners), max(corners))

    def __truediv__(self, other: "Bounds") -> "Bounds":
        if other.low <= 0 <= other.high:
            raise NotAValue("division by zero")
        return self * _outward(1 / other.high, 1 / other.low)


def _outward(low: float, high: float) -> Bounds:
    """A little wider than rounding can err; beyond the largest double only that is known."""
    low, high = min(low, _LARGE), max(high, -_LARGE)
    return Bounds(low - abs(low) * _TINY - 5e-324, high + abs(high) * _TINY + 5e-324)


def _around(value: float | Fraction) -> Bounds:
    return _outward(float(value), float(value))


def differ(one: Node, other: Node) -> bool:
    """Are the two values certainly different, at some choice of their variables?

    Points -1 and -2 are whole numbers, 1 to 3 are not. Formulas with a floor or a factorial are
    meant for whole numbers and may differ elsewhere.
    """
    points = (0,)
    if variables(one) or variables(other):
        points = (-1, -2) if (kinds(one) | kinds(other)) & WHOLE_ONLY else (1, 2, 3)
    for point in points:
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


@lru_cache(maxsize=20_000)
def _bounds(node: Node, point: int) -> Bounds:
    """Bounds of a tree's value with its variables at the given point."""
    parts = [_bounds(part, point) for part in node.parts]
    return combine(node, parts, _around, partial(_named, point), _power, _call)


def _named(point: int, name: str) -> Bounds:
    """A constant's value, or a fixed value for a variable, the same in every process."""
    if name in ("i", "infty"):
        raise NotAValue(name)
    if name in ("pi", "e"):
        return _around(math.pi if name == "pi" else math.e)
    seed = zlib.crc32(f"{name}/{point}".encode())
    return _around(float(2 + seed % 23) if point < 0 else 0.3 + (seed % 100_003) / 40_000 * point)


def _power(base: Bounds, exponent: Bounds, power: Node) -> Bounds:
    """Positive bases by logarithm; others only to a whole power, or an odd root."""
    if base.low > 0:
        return _exp(_log(base) * exponent)
    if power.kind == "number" and power.number.denominator == 1 and 0 <= power.number <= 64:
        return reduce(mul, [base] * int(power.number), _around(1.0))
    if power.kind == "number" and base.high < 0 and power.number.denominator % 2:
        size = _exp(_log(-base) * exponent)
        return -size if power.number.numerator % 2 else size
    raise NotAValue("a negative number to this power")


def _exp(value: Bounds) -> Bounds:
    """e to the value; what overflows is only known to be large."""
    low = _LARGE if value.low > 709 else math.exp(value.low)
    high = math.inf if value.high > 709 else math.exp(value.high)
    return Bounds(low * (1 - 4 * _TINY), high * (1 + 4 * _TINY) + 5e-324)


def _log(value: Bounds) -> Bounds:
    if value.low <= 0:
        raise NotAValue("logarithm of what may be negative")
    low, high = math.log(value.low), math.log(value.high)
    return Bounds(low - abs(low) * 4 * _TINY - 1e-300, high + abs(high) * 4 * _TINY + 1e-300)


def _wave(function: Callable[[float], float], value: Bounds) -> Bounds:
    """Sine and cosine move no faster than their argument."""
    middle = (value.low + value.high) / 2
    reach = (value.high - value.low) / 2 + abs(middle) * _TINY + 4 * _TINY
    if not math.isfinite(reach) or reach > 1:
        raise NotAValue("too wide for a wave")
    return Bounds(function(middle) - reach, function(middle) + reach)


def _rising(function: Callable[[float], float], value: Bounds) -> Bounds:
    bounds = _outward(function(value.low), function(value.high))
    return _outward(bounds.low, bounds.high)


def _call(function: str, arguments: list[Bounds]) -> Bounds:
    x = arguments[0]
    match function:
        case "sin" | "cos":
            return _wave(getattr(math, function), x)
        case "tan":
            return _wave(math.sin, x) / _wave(math.cos, x)
        case "cot":
            return _wave(math.cos, x) / _wave(math.sin, x)
        case "sec" | "csc":
            return _around(1.0) / _wave(math.cos if function == "sec" else math.sin, x)
        case "log" if len(arguments) == 2:
            return _log(x) / _log(arguments[1])
        case "arctan" | "sinh" | "tanh":
            return _rising(_RISING[function], x)
        case "arcsin" if x.low > -1 and x.high < 1:
            return _rising(math.asin, x)
        case "abs":
            inner = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
            return Bounds(inner, max(abs(x.low), abs(x.high)))
        case "factorial" if x.low > 1e300:
            return Bounds(_LARGE, math.inf)
        case "factorial" if x.low >= 1:
            return _exp(_rising(math.lgamma, Bounds(x.low + 1, min(x.high, 1e300) + 1)))
        case "floor" | "ceiling":
            step = math.floor if function == "floor" else math.ceil
            return _outward(float(step(x.low)), float(step(x.high)))
        case "binom" if len(arguments) == 2:
            return _binomial(x, arguments[1])
        case _:
            raise NotAValue(function)


def _binomial(upper: Bounds, lower: Bounds) -> Bounds:
    """n over k from logarithms of factorials; loose, but enough to tell two formulas apart."""
    n, k = round((upper.low + upper.high) / 2), round((lower.low + lower.high) / 2)
    if not 0 <= k < n <= 10**12 or abs(upper.high - n) > 1e-3 or abs(lower.high - k) > 1e-3:
        raise NotAValue("not whole numbers")
    value = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    slack = 1e-14 * math.lgamma(n + 1) + 1e-12
    return _exp(Bounds(value - slack, value + slack))
