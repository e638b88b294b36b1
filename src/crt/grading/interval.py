"""Bounds that a value certainly lies between: two values whose bounds do not meet differ."""

import zlib
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from mpmath import ctx_iv
from mpmath.libmp import ComplexResult, to_int

from crt.grading.parser import Node, NotAValue, combine, kinds, variables

LARGE = 10**6  # e to a larger power is only known to be large
LARGEST = 2**333  # of what a function is applied to
WHOLE_ONLY = {"floor", "ceiling", "factorial", "binom", "gcd", "lcm"}
_UNKNOWN = (NotAValue, ComplexResult, ValueError, OverflowError, ZeroDivisionError)
_iv: Any = ctx_iv.MPIntervalContext()
_iv.prec = 80


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
        if a < b or a > b:  # both are None where the bounds meet
            return True
    return False


def middle(node: Node) -> float | None:
    """A constant's value to the precision of a float; None for what is no constant."""
    if variables(node):
        return None
    try:
        return float(_bounds(node, 0).mid)
    except _UNKNOWN:
        return None


@lru_cache(maxsize=20_000)
def _bounds(node: Node, point: int) -> Any:
    """Bounds of a tree's value with its variables at the given point."""
    parts = [_bounds(part, point) for part in node.parts]
    return combine(node, parts, _number, partial(_named, point), _power, _call)


def _number(value: Fraction) -> Any:
    return _iv.mpf(value.numerator) / value.denominator


def _named(point: int, name: str) -> Any:
    """A constant's value, or a fixed value for a variable, the same in every process."""
    if name in ("i", "infty"):
        raise NotAValue(name)
    if name in ("pi", "e"):
        return +getattr(_iv, name)
    seed = zlib.crc32(f"{name}/{point}".encode())
    return _iv.mpf(2 + seed % 23 if point < 0 else 0.3 + (seed % 100_003) / 40_000 * point)


def _power(base: Any, exponent: Any, power: Node) -> Any:
    """Positive bases by logarithm; others only to a whole power, or an odd root."""
    if base > 0:
        return _exp(_iv.log(base) * exponent)
    if power.kind == "number" and power.number.denominator == 1 and 0 <= power.number <= 64:
        return base ** int(power.number)
    if power.kind == "number" and base < 0 and power.number.denominator % 2:
        size = _exp(_iv.log(-base) * exponent)
        return -size if power.number.numerator % 2 else size
    raise NotAValue("a negative number to this power")


def _exp(value: Any) -> Any:
    """e to the value; what would be too long to compute is only known to be large or small."""
    low = _iv.exp(_iv.mpf(min(value.a, LARGE))).a if value.a > -LARGE else 0
    high = _iv.exp(_iv.mpf(max(value.b, -LARGE))).b if value.b < LARGE else _iv.inf
    return _iv.mpf([low, high])


def _call(function: str, arguments: list[Any]) -> Any:
    x = arguments[0]
    if function == "factorial" and x >= LARGEST:
        return _iv.mpf([LARGEST, _iv.inf])
    if function != "abs" and not abs(x) < LARGEST:
        raise NotAValue("too large for a function")
    match function:
        case "sin" | "cos" | "tan" | "cot" | "sec" | "csc":
            return getattr(_iv, function)(x)
        case "log" if len(arguments) == 2:
            return _iv.log(x) / _iv.log(arguments[1])
        case "arctan":
            return _iv.atan2(x, 1)
        case "arcsin" if abs(x) < 1:
            return _iv.atan2(x, _iv.sqrt(1 - x * x))
        case "sinh":
            return (_exp(x) - _exp(-x)) / 2
        case "tanh":
            return 1 - 2 / (_exp(2 * x) + 1)
        case "abs":
            return abs(x)
        case "factorial" if x >= 1:
            return _exp(_iv.loggamma(x + 1))
        case "floor" | "ceiling":
            return _iv.mpf([to_int(end, "f" if function == "floor" else "c") for end in x._mpi_])
        case "binom" if len(arguments) == 2 and arguments[1] > 0 and arguments[1] < x:
            n, k = arguments
            return _exp(_iv.loggamma(n + 1) - _iv.loggamma(k + 1) - _iv.loggamma(n - k + 1))
    raise NotAValue(function)
