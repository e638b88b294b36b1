"""Lists, sets, tuples, intervals, matrices, equations: what must be compared with what."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from crt.grading import exact, interval, units
from crt.grading.exact import Poly
from crt.grading.parser import Node, kinds_in, name, names_in, number
from crt.grading.units import may_be_unit

Oracle = Callable[[Node, Node], bool]

MAX_ITEMS = 60
# What our grammar leaves to math-verify's; anything else that cannot be read is malformed.
_OTHER_PARSER = re.compile(r"\\(?:sum|prod|int|iint|oint|lim|pmod|bmod|mod|cap|setminus|partial)\b")


@dataclass(frozen=True, slots=True)
class Rules:
    """What the task allows: an absolute error, a percentage without its sign; who settles doubt."""

    tolerance: float | None = None
    percent: bool = False
    oracle: Oracle | None = None


def same(mine: Node, gold: Node, rules: Rules) -> bool | None:
    """Whether an answer's tree is the gold's."""
    if mine == gold:
        return True
    mine, gold = as_interval(mine, gold), as_interval(gold, mine)
    mine_items, mine_label = unlabelled(_items(mine), strict=False)
    gold_items, gold_label = unlabelled(_items(gold), strict=True)
    ordered = _in_order(_items(mine), _items(gold))
    if ordered:
        return every(same(a, b, rules) for a, b in zip(*ordered, strict=True))
    if mine_label == gold_label or None not in (mine_label, gold_label):
        if mine_label != gold_label:
            mine_items, gold_items = _items(mine), _items(gold)
        return _collected(mine, gold, mine_items, gold_items, rules)
    bare = _collected(mine, gold, mine_items, gold_items, rules)
    if bare is True or not (_is_equation(mine) and _is_equation(gold)):
        return bare
    return _collected(mine, gold, [mine], [gold], rules)  # y = 2x − 3 against 2x − y = 3


def _in_order(mine: list[Node], gold: list[Node]) -> tuple[list[Node], list[Node]] | None:
    """`1, 2` against `x = 1, y = 2`: without its names the one must keep the other's order."""
    if len(mine) != len(gold):
        return None
    named_mine, named_gold = values_in_order(mine), values_in_order(gold)
    if named_gold and not any(item.kind == "relation" for item in mine):
        return mine, named_gold
    if named_mine and not any(item.kind == "relation" for item in gold):
        return named_mine, gold
    return None


def _collected(
    mine: Node, gold: Node, mine_items: list[Node], gold_items: list[Node], rules: Rules
) -> bool | None:
    """The members of two answers, each of which may be a single one."""
    mine_items, gold_items = _signs_written_out(mine_items), _signs_written_out(gold_items)
    if len(mine_items) == len(gold_items) == 1:
        return _single(mine_items[0], gold_items[0], rules)
    if "unread" in (mine.kind, gold.kind):
        return _ask(mine, gold, rules)
    return matched(mine_items, gold_items, rules, _is_set(mine) or _is_set(gold))


def _items(node: Node) -> list[Node]:
    """A list's and a set's members; anything else is its own only member."""
    return list(node.parts) if node.kind == "list" or _is_set(node) else [node]


def _is_set(node: Node) -> bool:
    return node.kind == "bracket" and node.text == "{}"


def _is_equation(node: Node) -> bool:
    return node.kind == "relation"


def _signs_written_out(items: list[Node]) -> list[Node]:
    """`±3` is 3 and −3; `∓` takes the other sign. Two separate ± are left as they are."""
    out: list[Node] = []
    for item in items:
        signs = _plusminus_in(item)
        once = signs.count("pm") <= 1 and signs.count("mp") <= 1 and signs
        out += [_with_sign(item, up) for up in (True, False)] if once else [item]
    return out


def _plusminus_in(node: Node) -> list[str]:
    own = [node.text] if node.kind == "plusminus" else []
    return own + [sign for part in node.parts for sign in _plusminus_in(part)]


def _with_sign(node: Node, up: bool) -> Node:
    if node.kind == "plusminus":
        inner = _with_sign(node.parts[0], up)
        return inner if up == (node.text == "pm") else Node("neg", (inner,))
    return node._replace(parts=tuple(_with_sign(part, up) for part in node.parts))


def _single(mine: Node, gold: Node, rules: Rules) -> bool | None:
    """Two answers that are not lists."""
    if mine == gold:
        return True
    kinds = {mine.kind, gold.kind}
    if "unread" in kinds or "plusminus" in kinds_in(mine) | kinds_in(gold):
        return _ask(mine, gold, rules)
    if "relation" in kinds:
        return same_relation(mine, gold, rules, same)
    if mine.kind == "list" or gold.kind == "list" or _is_set(mine) or _is_set(gold):
        return matched(_items(mine), _items(gold), rules, _is_set(mine) or _is_set(gold))
    if mine.kind == gold.kind == "bracket":
        return _brackets(mine, gold, rules)
    if mine.kind == gold.kind == "union":
        return matched(list(mine.parts), list(gold.parts), rules, True)
    if mine.kind == gold.kind == "matrix":
        return _rows(mine, gold, rules)
    if "ratio" in kinds:
        return same_ratio(mine, gold, rules)
    if kinds & {"word", "bracket", "union", "matrix"}:
        return False
    return same_measured(mine, gold, rules)


def _ask(mine: Node, gold: Node, rules: Rules) -> bool | None:
    """Symbolic work, unless the prediction is simply malformed."""
    if mine.kind == "unread" and not _OTHER_PARSER.search(mine.text) and gold.kind != "unread":
        return False
    return None if rules.oracle is None else rules.oracle(mine, gold)


def _brackets(mine: Node, gold: Node, rules: Rules) -> bool | None:
    """Tuples and intervals: same ends, same values, in this order."""
    mine, gold = _open_at_infinity(mine), _open_at_infinity(gold)
    ends_matter = len(gold.parts) == 2  # [1, 2] is not (1, 2), but [1, 2, 3] can only be a tuple
    if len(mine.parts) != len(gold.parts) or (ends_matter and mine.text != gold.text):
        return False
    return every(same(a, b, rules) for a, b in zip(mine.parts, gold.parts, strict=True))


def _open_at_infinity(node: Node) -> Node:
    low = "(" if _infinite(node.parts[0]) else node.text[0]
    high = ")" if _infinite(node.parts[-1]) else node.text[1]
    return node._replace(text=low + high)


def _infinite(node: Node) -> bool:
    inner = node.parts[0] if node.kind == "neg" else node
    return inner.kind == "name" and inner.text == "infty"


def _rows(mine: Node, gold: Node, rules: Rules) -> bool | None:
    shape = [len(row.parts) for row in mine.parts]
    if shape != [len(row.parts) for row in gold.parts]:
        return False
    pairs = zip(mine.parts, gold.parts, strict=True)
    cells = ((a, b) for one, other in pairs for a, b in zip(one.parts, other.parts, strict=True))
    return every(same(a, b, rules) for a, b in cells)


def every(verdicts: Iterable[bool | None]) -> bool | None:
    """All: False if one is False, else None if one is None."""
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True


def matched(mine: list[Node], gold: list[Node], rules: Rules, distinct: bool) -> bool | None:
    """Whether two collections have the same members, in any order.

    A member may be repeated, unless the gold is a list that repeats one: then each must come as
    often as there. Sameness is transitive, so taking the first partner never goes wrong.
    """
    if max(len(mine), len(gold)) > MAX_ITEMS or (not distinct and len(mine) < len(gold)):
        return False
    table = [[_member(a, b, rules) for b in gold] for a in mine]
    if any(all(v is False for v in row) for row in table):
        return False
    if any(all(row[k] is False for row in table) for k in range(len(gold))):
        return False
    if any(v is None for row in table for v in row):
        return None if _doubtful(table) else _counted(table, distinct)
    return _counted(table, distinct)


def _member(mine: Node, gold: Node, rules: Rules) -> bool | None:
    """Inside a collection {5} is not 5, nor is y = 5 when the others have another name."""
    if _is_set(mine) != _is_set(gold):
        return False
    kinds = {mine.kind, gold.kind}
    if "relation" in kinds and len(kinds) > 1 and "bracket" not in kinds:
        return False
    return same(mine, gold, rules)


def _doubtful(table: list[list[bool | None]]) -> bool:
    """Has some member no certain partner?"""
    columns = list(zip(*table, strict=True))
    return any(True not in row for row in table) or any(True not in column for column in columns)


def _counted(table: list[list[bool | None]], distinct: bool) -> bool:
    """Each member has a partner; where the gold repeats a member, each partner serves once."""
    repeats = any(row.count(True) > 1 for row in table)
    if distinct or not repeats:
        return True
    if len(table) != len(table[0]):
        return False
    free = set(range(len(table)))
    for row in table:
        partner = next((k for k in sorted(free) if row[k]), None)
        if partner is None:
            return False
        free.discard(partner)
    return True


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
        if operator != "approx" and same_value(first, side, rules) is not True:
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
