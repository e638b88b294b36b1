"""Single values: numbers and expressions, with their units, bases and ratios."""

from typing import TYPE_CHECKING

from crt.tasks.algebra import exact, interval, units
from crt.tasks.algebra.node import Node, name, number

if TYPE_CHECKING:
    from crt.tasks.algebra.structure import Rules


def same_measured(mine: Node, gold: Node, rules: "Rules") -> bool | None:
    """Two values with or without units; a unit that one side does not have is not held against it.

    Percent is different: `50\\%` is the number 0.5. A gold `50\\%` may be answered 50, because
    there the question has named the percent; a gold 50 may not be answered `50\\%`.
    """
    if gold.kind == "base":
        return _same_numeral(mine, gold)
    (my_value, my_unit), (gold_value, gold_unit) = without_unit(mine), without_unit(gold)
    if "%" in (my_unit, gold_unit):
        return _percent(my_value, my_unit, gold_value, gold_unit, rules)
    plain = same_value(my_value, gold_value, rules)
    if "degree" in (my_unit, gold_unit) and "" in (my_unit, gold_unit):
        return _either(plain, same_value(_radians(mine), _radians(gold), rules))
    if not my_unit or not gold_unit:
        return plain
    alike = units.same_unit(my_unit, gold_unit)
    if alike is None:
        scale = number(units.ratio(my_unit, gold_unit))
        return same_value(Node("mul", (my_value, scale)), gold_value, rules)
    return plain if alike else False


def _percent(mine: Node, my_unit: str, gold: Node, gold_unit: str, rules: "Rules") -> bool | None:
    hundredth = number(100)
    if my_unit == gold_unit:
        return same_value(mine, gold, rules)
    if gold_unit == "%":
        if my_unit:
            return False
        as_fraction = same_value(mine, Node("div", (gold, hundredth)), rules)
        return _either(same_value(mine, gold, rules), as_fraction)
    if gold_unit:
        return False
    as_fraction = same_value(Node("div", (mine, hundredth)), gold, rules)
    return _either(as_fraction, same_value(mine, gold, rules)) if rules.percent else as_fraction


def _radians(node: Node) -> Node:
    value, unit = without_unit(node)
    half_turn = Node("div", (name("pi"), number(180)))
    return Node("mul", (value, half_turn)) if unit == "degree" else value


def _either(one: bool | None, other: bool | None) -> bool | None:
    if one or other:
        return True
    return None if None in (one, other) else False


def _same_numeral(mine: Node, gold: Node) -> bool:
    """The gold names a base: the same digits, with that base or with none."""
    if mine.kind == "base":
        return (mine.text, mine.number) == (gold.text, gold.number)
    return mine.kind == "number" and mine.number == int(gold.text)


def without_unit(node: Node) -> tuple[Node, str]:
    """A value and its unit, also where the unit stands inside: `2 + 3√2 cm`, `270°/7`, `−5 m`."""
    if node.kind == "unit":
        return node.parts[0], node.text
    if node.kind == "neg" or node.kind == "div":
        value, unit = without_unit(node.parts[0])
        return (node._replace(parts=(value, *node.parts[1:])), unit) if unit else (node, "")
    if node.kind in ("add", "mul"):
        return _common_unit(node)
    return node, ""


def _common_unit(node: Node) -> tuple[Node, str]:
    found = [without_unit(part) for part in node.parts]
    carried = [unit for _, unit in found if unit]
    shared = len(carried) == len(found) or carried == [found[-1][1]]
    lifts = len(carried) == 1 if node.kind == "mul" else shared and len(set(carried)) == 1
    if not carried or not lifts:
        return node, ""
    return node._replace(parts=tuple(value for value, _ in found)), carried[0]


def same_ratio(mine: Node, gold: Node, rules: "Rules") -> bool | None:
    """`2:4` is `1:2` and 1/2; a time of day (`8:34`) is only itself."""
    if mine.kind == gold.kind == "ratio":
        if len(mine.parts) != len(gold.parts):
            return False
        pairs = list(zip(mine.parts, gold.parts, strict=True))
        verdicts = [same_measured(a, b, rules) for a, b in pairs]
        nothing = exact.constant(mine.parts[0]) == 0 or exact.constant(gold.parts[0]) == 0
        if all(verdicts) or nothing or _is_time(mine) or _is_time(gold):
            return all(verdicts)
        crossed = [
            same_value(Node("mul", (a, gold.parts[0])), Node("mul", (b, mine.parts[0])), rules)
            for a, b in pairs
        ]
        return False if False in crossed else None if None in crossed else True
    ratio, other = (mine, gold) if mine.kind == "ratio" else (gold, mine)
    unlike = other.kind in ("word", "matrix", "bracket", "base")
    if len(ratio.parts) != 2 or _is_time(ratio) or unlike:
        return False
    return same_value(Node("div", ratio.parts), other, rules)


def _is_time(ratio: Node) -> bool:
    """Two digits after a colon may be minutes."""
    return any(len(term) == 2 and term.isdigit() for term in ratio.text.split(":")[1:])


def same_value(mine: Node, gold: Node, rules: "Rules") -> bool | None:
    """Two values without units, by tolerance, algebra, bounds and, in doubt, the oracle."""
    if rules.tolerance is not None:
        near = _near(mine, gold, rules.tolerance)
        if near is not None:
            return near
    algebra = exact.equal(mine, gold)
    if algebra is not None:
        return algebra
    if interval.apart(mine, gold):
        return False
    return None if rules.oracle is None else rules.oracle(mine, gold)


def _near(mine: Node, gold: Node, tolerance: float) -> bool | None:
    """Within an absolute error; None when either is not a number."""
    a, b = interval.number(mine), interval.number(gold)
    if a is None or b is None:
        return None
    slack = 1e-12 * max(1.0, abs(b.high))  # so that 1.1 is within 0.1 of 1
    return abs((a.low + a.high) / 2 - (b.low + b.high) / 2) <= tolerance + slack
