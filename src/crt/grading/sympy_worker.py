"""The worker process: settles with sympy what algebra leaves open.

`python -m crt.grading.sympy_worker` reads one JSON request per line and writes one JSON reply per
line. What our grammar cannot read goes through math-verify's parser. Two expressions are the same
if their difference vanishes to 180 digits at every point that is tried: math-verify's own
comparison rounds to six digits (1/2004! would be 1/2006!).
"""

import contextlib
import json
import os
import resource
import signal
import sys
from fractions import Fraction
from typing import Any

from crt.grading.parser import Node, kinds_in
from crt.grading.verifiers import GoldUnread, decide

DIGITS = 200
ZERO_BELOW = 10.0**-180
_WHOLE_ONLY = {"floor", "ceiling", "factorial", "binom", "gcd", "lcm"}
# Values for the variables; negative ones count only where both sides are real.
_POINTS = ("17/13", "-29/31", "101/7", "-53/11", "1/37")
_WHOLE_POINTS = ("3", "6", "7", "12", "5")


def oracle(mine: Node, gold: Node) -> bool:
    """Whether two trees are one value; a prediction that is no expression is not the gold."""
    try:
        expression = to_expression(gold)
    except Exception as error:  # sympy raises nearly anything on what it cannot build
        raise GoldUnread(gold.text or gold.kind) from error
    if expression is None:
        if "\\" in gold.text.replace(r"\text", ""):
            raise GoldUnread(gold.text)
        return False  # words, which were compared as words
    try:
        other = to_expression(mine)
    except (ValueError, TypeError, AttributeError, ZeroDivisionError):
        return False
    return other is not None and same_expression(other, expression, _whole_only(mine, gold))


def _whole_only(mine: Node, gold: Node) -> bool:
    kinds = kinds_in(mine) | kinds_in(gold)
    return bool(kinds & _WHOLE_ONLY) or _signs_alternate(mine) or _signs_alternate(gold)


def _signs_alternate(node: Node) -> bool:
    """(−1)^n is meant for whole n."""
    if node.kind == "pow" and node.parts[0].kind == "neg" and node.parts[1].kind != "number":
        return True
    return any(_signs_alternate(part) for part in node.parts)


def to_expression(node: Node) -> Any:
    """A sympy expression, or None for what is not one value."""
    import sympy

    if node.kind == "unread":
        found = None if r"\text" in node.text else parsed(node.text)  # it would drop the words
        return found if isinstance(found, sympy.Expr) else None
    parts = [to_expression(part) for part in node.parts]
    if any(part is None for part in parts):
        return None
    match node.kind:
        case "number":
            return sympy.Rational(node.number.numerator, node.number.denominator)
        case "base":
            return sympy.Integer(int(node.text, int(node.number)))
        case "name":
            constants = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}
            constants["infty"] = None  # no value: sympy would make 1 of ∞⁰
            return constants.get(node.text, sympy.Symbol(node.text))
        case "neg":
            return -parts[0]
        case "add":
            return sympy.Add(*parts)
        case "mul":
            return sympy.Mul(*parts)
        case "div":
            return parts[0] / parts[1]
        case "pow":
            return _power(parts[0], parts[1])
        case "call":
            return _called(node.text, parts)
        case "unit" if node.text in ("%", "degree"):
            return parts[0] * (sympy.Rational(1, 100) if node.text == "%" else sympy.pi / 180)
        case _:
            return None


def _power(base: Any, exponent: Any) -> Any:
    """As in school, an odd root of a negative number is negative."""
    import sympy

    if exponent.is_Rational and exponent.q % 2 and exponent.q > 1 and base.is_negative:
        return sympy.Integer(-1) ** exponent.p * (-base) ** exponent
    return base**exponent


def _called(name: str, parts: list[Any]) -> Any:
    import sympy

    if name == "log":  # without a base it may be 10 or e: an unknown base keeps both apart
        return sympy.log(parts[0]) / sympy.log(
            parts[1] if len(parts) > 1 else sympy.Symbol("base of log")
        )
    known = {
        **{"arcsin": "asin", "arccos": "acos", "arctan": "atan", "abs": "Abs", "max": "Max"},
        **{"min": "Min", "binom": "binomial"},
    }
    plain = {"sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "gcd", "lcm"}
    plain |= {"factorial", "floor", "ceiling"}
    if name in plain or name in known:
        return getattr(sympy, known.get(name, name))(*parts)
    return sympy.Function(name)(*parts)


def parsed(latex: str) -> Any:
    """What math-verify makes of LaTeX that our grammar does not know: sums, integrals, limits."""
    from math_verify import LatexExtractionConfig, parse

    found = parse(
        f"${latex}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,  # type: ignore[arg-type]  # the process has the deadline
    )
    return found[0] if found else None


def same_expression(mine: Any, gold: Any, whole: bool = False) -> bool:
    """Whether two expressions agree to 180 digits wherever they are tried."""
    from sympy.core.function import AppliedUndef

    if mine == gold:
        return True
    if mine.has(AppliedUndef) or gold.has(AppliedUndef):  # f(x): nothing to evaluate
        return bool((mine - gold).expand() == 0)
    symbols = sorted(mine.free_symbols | gold.free_symbols, key=str)
    points = (_WHOLE_POINTS if whole else _POINTS) if symbols else ("0",)
    verdicts = [vanishes(*_at(mine, gold, symbols, text, k)) for k, text in enumerate(points)]
    if False in verdicts:
        return False
    if verdicts.count(True) < min(3, len(points)):
        raise GoldUnread(f"{gold} has no value to compare")
    return True


def _at(mine: Any, gold: Any, symbols: list[Any], text: str, k: int) -> tuple[Any, Any]:
    """Both at one point; each variable has a value of its own there."""
    import sympy

    value = Fraction(text)
    values = {
        symbol: sympy.Rational(
            *(value + j * (2 + k) if value > 0 else value - j).as_integer_ratio()
        )
        for j, symbol in enumerate(symbols)
    }
    return mine.subs(values).doit(), gold.subs(values).doit()


def vanishes(mine: Any, gold: Any) -> bool | None:
    """Whether two numbers agree; None where they are not both finite, or both real or both not."""
    import sympy

    one, other = (sympy.N(side, 30, maxn=DIGITS) for side in (mine, gold))
    if not (other.is_number and other.is_finite):
        return None
    if not (one.is_number and one.is_finite):
        return None if mine.free_symbols or gold.free_symbols else False
    if bool(one.is_real) != bool(other.is_real):
        return None if not (mine.is_real and gold.is_real) else False
    if mine.is_Rational and gold.is_Rational:
        return bool(mine == gold)
    scale = 1 if gold.is_zero or mine.is_zero else max(abs(one), abs(other))
    if abs(one - other) > 1e-12 * scale:
        return False
    gap = abs(sympy.N(mine - gold, 15, maxn=DIGITS))
    return bool(gap <= ZERO_BELOW * scale)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request: `equal` and a reason, or `ungraded` with a reason."""
    try:
        found = decide(
            request["prediction"],
            request["gold"],
            tuple(request["options"]),
            request["tolerance"],
            request["percent"],
            oracle=oracle,
        )
    except GoldUnread as error:
        return {"ungraded": f"the gold cannot be read: {error}"}
    except MemoryError:
        return {"ungraded": "out of memory"}
    except RecursionError:
        return {"ungraded": "nested too deeply"}
    except Exception as error:  # sympy raises nearly anything on odd input: unknown, not wrong
        return {"ungraded": f"{type(error).__name__} in symbolic work"}
    return {"equal": bool(found.equal), "reason": f"{found.reason} (symbolic)"}


def serve(deadline_seconds: float, memory_mb: int) -> None:
    """Answers requests until the input ends; the process ends itself if it is left alone."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # a stray print is no reply
    parsed("1")  # imports, and a grammar that takes seconds to load: before the first deadline
    with contextlib.suppress(ValueError, OSError):  # not every system can limit
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20, memory_mb * 2**20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies.write('{"ready": true}\n')
    for line in sys.stdin:
        signal.alarm(int(deadline_seconds) + 5)
        reply = answer(json.loads(line))
        signal.alarm(0)
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    serve(float(sys.argv[1]), int(sys.argv[2]))
