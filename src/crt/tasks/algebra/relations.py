"""Equations and inequalities: labels such as `x =`, and relations that are the answer itself."""

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from crt.tasks.algebra import exact, interval, values
from crt.tasks.algebra.node import Node, name, names_in
from crt.tasks.algebra.polynomial import Poly
from crt.tasks.algebra.units import may_be_unit

if TYPE_CHECKING:
    from crt.tasks.algebra.structure import Rules

_TURNED = {"<": ">", ">": "<", "le": "ge", "ge": "le"}
_EQUALS = {"=", "approx", "equiv"}
_INFINITY = name("infty")


def unlabelled(items: list[Node], strict: bool) -> tuple[list[Node], Node | None]:
    """The items without a common `x =`, and that label.

    `x = 1, x = 2`, `x_1 = 1, x_2 = 2` and `x = 1, 2` lose it; `x = 1, y = 2` keep theirs. A gold
    (`strict`) gives up only a lone name: `x + y = 5` may be the answer itself.
    """
    split = [_split(item, strict) for item in items]
    labels = [label for label, _ in split]
    first = labels[0] if labels else None
    stems = {_stem(label) for label in labels if label is not None}
    if first is None or len(stems) > 1:
        return items, None
    if None in labels[1:] and any(label is not None for label in labels[1:]):
        return items, None
    return [value for _, value in split], first


def values_in_order(items: list[Node]) -> list[Node] | None:
    """The values of `x = 1, y = 2`, if every item has a label of its own."""
    split = [_split(item, strict=True) for item in items]
    stems = {_stem(label) for label, _ in split if label is not None}
    if len(items) < 2 or len(stems) < len(items):
        return None
    return [value for _, value in split]


def _stem(label: Node) -> Node:
    """A name without its subscript."""
    return label._replace(text=label.text.partition("_")[0])


def _split(item: Node, strict: bool) -> tuple[Node | None, Node]:
    """An item's label and value: of `A = πr² = 9π ≈ 28.3` these are A and 9π."""
    if item.kind != "relation":
        return None, item
    operators, sides = item.text.split(), item.parts
    if operators == ["in"] and _lone(sides[0]) and sides[1].kind in ("bracket", "union"):
        return sides[0], sides[1]
    if not set(operators) <= _EQUALS:
        return None, item
    if _is_label(sides[0], strict):
        exact_sides = sides[1 : operators.index("approx") + 1] if "approx" in operators else sides
        return sides[0], (exact_sides or sides)[-1]
    turned = operators == ["="] and sides[1].kind != "word" and _lone(sides[1])
    if turned and sides[1].text not in names_in(sides[0]):
        return sides[1], sides[0]  # 5 = x
    return None, item


def _lone(node: Node) -> bool:
    """A name, a word, names in a tuple or ratio, or a function: x, area, (x, y), f(x), |z|."""
    if node.kind == "name":
        return node.text not in ("pi", "e", "i", "infty")
    if node.kind == "word":
        return may_be_unit(node.text)  # "area = 5", but not "less than = 5"
    if node.kind == "ratio" or (node.kind == "bracket" and node.text == "()"):  # (x, y) = (1, 2)
        return all(part.kind == "name" for part in node.parts)
    if node.kind == "call" and node.text not in ("factorial", "binom"):
        return bool(names_in(node)) or len(node.text) == 1 or "_" in node.text
    return False


def _is_label(node: Node, strict: bool) -> bool:
    """What may stand before `=` as a mere name of the value.

    Beside a lone name these are sums and products of several names, `a + b` or `AB`: with a
    number in it (`y − 3 = 2`) the left side would say something else about the value.
    """
    if _lone(node):
        return True
    if node.kind == "unit":
        return False
    found = exact.polynomial(node)
    if found is None or len(names_in(node)) < 2:
        return False
    if strict and (len(found.upper) > 1 or any(power != 1 for m in found.upper for _, power in m)):
        return False
    plain = all(abs(c) == 1 and monomial for monomial, c in found.upper.items())
    return plain and all(abs(c) == 1 for c in found.lower.values())


def same_relation(
    mine: Node,
    gold: Node,
    rules: "Rules",
    same: Callable[[Node, Node, "Rules"], bool | None],
) -> bool | None:
    """Two relations, or a relation and a value."""
    if mine.kind == gold.kind == "relation":
        return _both(mine, gold, rules, same)
    chain, value = (mine, gold) if mine.kind == "relation" else (gold, mine)
    if not set(chain.text.split()) <= _EQUALS or not _agrees(chain, rules):
        return False
    verdicts = [
        same(side, value, rules) if chain is mine else same(value, side, rules)
        for side in chain.parts
    ]
    return True if True in verdicts else None if None in verdicts else False


def _agrees(chain: Node, rules: "Rules") -> bool:
    """Do a chain's sides name one value? Those after `≈` within one per cent."""
    first = chain.parts[0]
    for operator, side in zip(chain.text.split(), chain.parts[1:], strict=True):
        if operator == "approx" and not _close(first, side):
            return False
        if operator != "approx" and values.same_value(first, side, rules) is not True:
            return False
    return True


def _close(one: Node, other: Node) -> bool:
    a, b = interval.number(one), interval.number(other)
    return a is not None and b is not None and abs(a.low - b.low) <= abs(a.low) / 100


def _both(
    mine: Node,
    gold: Node,
    rules: "Rules",
    same: Callable[[Node, Node, "Rules"], bool | None],
) -> bool | None:
    """Side by side; or, with two sides, as one difference compared with zero."""
    mine, gold = _rising(mine), _rising(gold)
    if len(mine.parts) == len(gold.parts) and mine.text == gold.text:
        sides = [same(a, b, rules) for a, b in zip(mine.parts, gold.parts, strict=True)]
        if all(side is True for side in sides):
            return True
    if len(mine.parts) == len(gold.parts) == 2 and mine.text == gold.text:
        return _proportional(mine, gold, rules)
    return False


def _rising(relation: Node) -> Node:
    """Written with < and ≤ when it is written with > and ≥ throughout."""
    operators = relation.text.split()
    if not set(operators) <= {">", "ge"}:
        return relation
    turned = " ".join(_TURNED[operator] for operator in reversed(operators))
    return Node("relation", relation.parts[::-1], text=turned)


def _proportional(mine: Node, gold: Node, rules: "Rules") -> bool | None:
    """Is one difference of sides a constant times the other (positive, for inequalities)?"""
    differences = [Node("add", (r.parts[0], Node("neg", (r.parts[1],)))) for r in (mine, gold)]
    found = [exact.polynomial(difference) for difference in differences]
    if found[0] is None or found[1] is None or not (found[0].upper and found[1].upper):
        return _undecided(differences, rules)
    if any(len(side.lower) > 1 or () not in side.lower for side in found if side):
        return _undecided(differences, rules)
    factor = _factor(found[0].upper, found[1].upper)
    if factor is None:
        opaque = found[0].opaque or found[1].opaque
        return _undecided(differences, rules) if opaque else False
    return factor > 0 or mine.text in _EQUALS | {"ne"}


def _factor(one: Poly, other: Poly) -> Fraction | None:
    """The number c with one = c · other, if there is one."""
    if set(one) != set(other):
        return None
    ratios = {one[monomial] / other[monomial] for monomial in one}
    return ratios.pop() if len(ratios) == 1 else None


def _undecided(differences: list[Node], rules: "Rules") -> bool | None:
    return None if rules.oracle is None else rules.oracle(differences[0], differences[1])


def as_interval(node: Node, other: Node) -> Node:
    """`x > 2` as (2, ∞), if the other answer is an interval or says `x ∈` one."""
    if node.kind != "relation" or not (other.kind == "bracket" or other.text == "in"):
        return node
    rising = _rising(node)
    operators, sides = rising.text.split(), rising.parts
    if not set(operators) <= {"<", "le"}:
        return node
    left = "[" if operators[0] == "le" else "("
    right = "]" if operators[-1] == "le" else ")"
    if len(sides) == 3 and _lone(sides[1]):
        return Node("bracket", (sides[0], sides[2]), text=left + right)
    if len(sides) == 2 and _lone(sides[1]) and not names_in(sides[0]):
        return Node("bracket", (sides[0], _INFINITY), text=left + ")")
    if len(sides) == 2 and _lone(sides[0]) and not names_in(sides[1]):
        return Node("bracket", (Node("neg", (_INFINITY,)), sides[1]), text="(" + right)
    return node
