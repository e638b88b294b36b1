"""Are two trees the same answer? Lists, intervals, matrices, equations, units and values.

Three values everywhere: True and False are proofs, None means that it takes symbolic work.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from crt.grading import exact, interval, units
from crt.grading.parser import CONSTANTS, Node, all_nodes, name, negated, number, variables

Oracle = Callable[[Node, Node], bool | None]

MAX_ITEMS = 60
# What our grammar leaves to math-verify's; anything else that cannot be parsed is malformed.
_OTHER_PARSER = re.compile(r"\\(?:sum|prod|int|iint|oint|lim|pmod|bmod|mod|cap|setminus|partial)\b")
_REVERSED = {">": "<", "ge": "le"}
_EQUALS = {"=", "approx", "equiv"}
_INFINITY = name("infty")


def undecided(answer: Node, gold: Node) -> None:
    """The oracle that knows nothing, where no symbolic work is done."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the task allows: an absolute error, a percentage without its sign; who settles doubt."""

    tolerance: float | None = None
    percent: bool = False
    oracle: Oracle = undecided


def same(answer: Node, gold: Node, rules: Rules) -> bool | None:
    if answer == gold:
        return True
    answer, gold = _as_interval(answer, gold), _as_interval(gold, answer)
    answers, golds = _items(answer), _items(gold)
    named, gold_named = _own_values(answers), _own_values(golds)
    if len(answers) == len(golds) and (named is None) != (gold_named is None):
        bare = answers if named is None else golds
        if all(item.kind != "relation" for item in bare):  # `1, 2` against `x = 1, y = 2`
            pairs = zip(named or answers, gold_named or golds, strict=True)  # in this order
            return _all(same(a, b, rules) for a, b in pairs)
    values, label = _without_label(answers, strict=False)
    gold_values, gold_label = _without_label(golds, strict=True)
    if label != gold_label and label is not None and gold_label is not None:
        return _same_items(answer, gold, answers, golds, rules)
    verdict = _same_items(answer, gold, values, gold_values, rules)
    if label == gold_label or verdict is True or not answer.kind == gold.kind == "relation":
        return verdict
    return _same_items(answer, gold, [answer], [gold], rules)  # y = 2x − 3 against 2x − y = 3


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    """False if one is False, else None if one is None; it stops at the first False."""
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True


def _any(*verdicts: bool | None) -> bool | None:
    return True if True in verdicts else None if None in verdicts else False


# Collections


def _items(node: Node) -> list[Node]:
    """A list's and a set's members; anything else is its own only member."""
    return list(node.parts) if node.kind == "list" or _is_set(node) else [node]


def _is_set(node: Node) -> bool:
    return node.kind == "bracket" and node.text == "{}"


def _same_items(
    answer: Node, gold: Node, answers: list[Node], golds: list[Node], rules: Rules
) -> bool | None:
    """The members of two answers, each of which may be a single one."""
    answers, golds = _expand_signs(answers), _expand_signs(golds)
    if len(answers) == len(golds) == 1:
        return _same_single(answers[0], golds[0], rules)
    if "unread" in (answer.kind, gold.kind):
        return _same_unread(answer, gold, rules)
    return _same_members(answers, golds, rules, _is_set(answer) or _is_set(gold))


def _expand_signs(items: list[Node]) -> list[Node]:
    """`±3` is 3 and −3; `∓` takes the other sign. Two separate ± are left as they are."""
    expanded: list[Node] = []
    for item in items:
        signs = [node.text for node in all_nodes(item) if node.kind == "plusminus"]
        once = signs and len(signs) == len(set(signs))
        expanded += [_with_sign(item, up) for up in (True, False)] if once else [item]
    return expanded


def _with_sign(node: Node, up: bool) -> Node:
    if node.kind == "plusminus":
        inner = _with_sign(node.parts[0], up)
        return inner if up == (node.text == "pm") else negated(inner)
    return node._replace(parts=tuple(_with_sign(part, up) for part in node.parts))


def _same_members(
    answer: list[Node], gold: list[Node], rules: Rules, distinct: bool
) -> bool | None:
    """Whether two collections have the same members, in any order.

    A member may be repeated, unless the gold is a list that repeats one: then each must come as
    often as there. Sameness is transitive, so answers with the same partners are one member.
    """
    if max(len(answer), len(gold)) > MAX_ITEMS or (not distinct and len(answer) < len(gold)):
        return False
    table = [[_same_member(a, b, rules) for b in gold] for a in answer]
    lines = table + [[row[k] for row in table] for k in range(len(gold))]
    if any(all(verdict is False for verdict in line) for line in lines):
        return False
    if any(True not in line for line in lines):
        return None
    partners = Counter(tuple(verdict is True for verdict in row) for row in table)
    if distinct or all(sum(row) == 1 for row in partners):
        return True
    return len(answer) == len(gold) and all(count <= sum(row) for row, count in partners.items())


def _same_member(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Inside a collection {5} is not 5, nor is y = 5 when the others have another name."""
    if _is_set(answer) != _is_set(gold):
        return False
    kinds = {answer.kind, gold.kind}
    if "relation" in kinds and len(kinds) > 1 and "bracket" not in kinds:
        return False
    return same(answer, gold, rules)


# Single answers


def _same_single(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Two answers that are not lists."""
    if answer == gold:
        return True
    kinds = {answer.kind, gold.kind}
    nodes = (*all_nodes(answer), *all_nodes(gold))
    if "unread" in kinds or any(node.kind == "plusminus" for node in nodes):
        return _same_unread(answer, gold, rules)
    if "relation" in kinds:
        return _same_relation(answer, gold, rules)
    is_set = _is_set(answer) or _is_set(gold)
    if is_set or "list" in kinds:
        return _same_members(_items(answer), _items(gold), rules, is_set)
    if kinds == {"bracket"}:
        return _same_bracket(answer, gold, rules)
    if kinds == {"union"}:
        return _same_members(list(answer.parts), list(gold.parts), rules, True)
    if kinds in ({"matrix"}, {"row"}):
        return _same_parts(answer, gold, rules)
    if "ratio" in kinds:
        return _same_ratio(answer, gold, rules)
    if kinds & {"word", "bracket", "union", "matrix"}:
        return False
    return _same_measured(answer, gold, rules)


def _same_unread(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Symbolic work, unless the answer is simply malformed."""
    malformed = answer.kind == "unread" and not _OTHER_PARSER.search(answer.text)
    return False if malformed and gold.kind != "unread" else rules.oracle(answer, gold)


def _same_bracket(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Tuples and intervals: same ends, same values, in this order."""
    answer, gold = _open_at_infinity(answer), _open_at_infinity(gold)
    if len(gold.parts) == 2 and answer.text != gold.text:
        return False  # [1, 2] is not (1, 2), but [1, 2, 3] can only be a tuple
    return _same_parts(answer, gold, rules)


def _open_at_infinity(node: Node) -> Node:
    infinite = (_INFINITY, negated(_INFINITY))
    low = "(" if node.parts[0] in infinite else node.text[0]
    high = ")" if node.parts[-1] in infinite else node.text[1]
    return node._replace(text=low + high)


def _same_parts(answer: Node, gold: Node, rules: Rules) -> bool | None:
    if len(answer.parts) != len(gold.parts):
        return False
    return _all(same(a, b, rules) for a, b in zip(answer.parts, gold.parts, strict=True))


# Labels: the `x =` in front of a value


def _without_label(items: list[Node], strict: bool) -> tuple[list[Node], Node | None]:
    """The items without a common `x =`, and that label.

    `x = 1, x = 2`, `x_1 = 1, x_2 = 2` and `x = 1, 2` lose it; `x = 1, y = 2` keep theirs. A gold
    (`strict`) gives up only a lone name: `x + y = 5` may be the answer itself.
    """
    split = [_split_label(item, strict) for item in items]
    labels = [label for label, _ in split]
    present = [label for label in labels if label is not None]
    if not present or labels[0] is None or len(set(map(_stem, present))) > 1:
        return items, None
    if len(present) not in (1, len(labels)):
        return items, None
    return [value for _, value in split], labels[0]


def _own_values(items: list[Node]) -> list[Node] | None:
    """The values of `x = 1, y = 2`, if every item has a label of its own."""
    split = [_split_label(item, strict=True) for item in items]
    stems = {_stem(label) for label, _ in split if label is not None}
    if len(items) < 2 or len(stems) < len(items):
        return None
    return [value for _, value in split]


def _stem(label: Node) -> Node:
    return label._replace(text=label.text.partition("_")[0])


def _split_label(item: Node, strict: bool) -> tuple[Node | None, Node]:
    """An item's label and value: of `A = πr² = 9π ≈ 28.3` these are A and 9π."""
    if item.kind != "relation":
        return None, item
    operators, sides = item.text.split(), item.parts
    if operators == ["in"] and _is_lone(sides[0]) and sides[1].kind in ("bracket", "union"):
        return sides[0], sides[1]
    if not set(operators) <= _EQUALS:
        return None, item
    if _is_label(sides[0], strict):
        exact_sides = sides[1 : operators.index("approx") + 1] if "approx" in operators else sides
        return sides[0], (exact_sides or sides)[-1]
    left, right = sides[0], sides[1]
    is_reversed = operators == ["="] and right.kind != "word" and _is_lone(right)  # 5 = x
    return (right, left) if is_reversed and right.text not in variables(left) else (None, item)


def _is_lone(node: Node) -> bool:
    """A name, a word, names in a tuple or ratio, or a function: x, area, (x, y), f(x), |z|."""
    if node.kind == "name":
        return node.text not in CONSTANTS
    if node.kind == "word":
        return units.may_be_unit(node.text)  # "area = 5", but not "less than = 5"
    if node.kind == "ratio" or (node.kind == "bracket" and node.text == "()"):  # (x, y) = (1, 2)
        return all(part.kind == "name" for part in node.parts)
    if node.kind == "call" and node.text not in ("factorial", "binom"):
        return bool(variables(node)) or len(node.text) == 1 or "_" in node.text
    return False


def _is_label(node: Node, strict: bool) -> bool:
    """What may stand before `=` as a mere name of the value.

    Beside a lone name these are sums and products of several names, `a + b` or `AB`: with a
    number in it (`y − 3 = 2`) the left side would say something else about the value.
    """
    if _is_lone(node):
        return True
    if node.kind == "unit" or len(variables(node)) < 2:
        return False
    quotient = exact.quotient_of(node)
    if quotient is None:
        return False
    upper = quotient.upper
    if strict and (len(upper) > 1 or any(power != 1 for m in upper for _, power in m)):
        return False
    plain = all(abs(c) == 1 and monomial for monomial, c in upper.items())
    return plain and all(abs(c) == 1 for c in quotient.lower.values())


# Equations and inequalities


def _same_relation(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Two relations, or a relation and a value."""
    if answer.kind == gold.kind == "relation":
        return _same_relations(answer, gold, rules)
    chain, value = (answer, gold) if answer.kind == "relation" else (gold, answer)
    if not set(chain.text.split()) <= _EQUALS or not _is_consistent(chain, rules):
        return False
    pairs = [(side, value) if chain is answer else (value, side) for side in chain.parts]
    return _any(*[same(a, b, rules) for a, b in pairs])


def _is_consistent(chain: Node, rules: Rules) -> bool:
    """Do a chain's sides name one value? Those after `≈` within one per cent."""
    first, *others = chain.parts
    return all(
        _is_near(first, side, relative=0.01) if operator == "approx"
        else _same_value(first, side, rules)
        for operator, side in zip(chain.text.split(), others, strict=True)
    )  # fmt: skip


def _same_relations(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Side by side; or, with two sides, as one difference compared with zero."""
    answer, gold = _ascending(answer), _ascending(gold)
    if len(answer.parts) != len(gold.parts) or answer.text != gold.text:
        return False
    sides = [same(a, b, rules) for a, b in zip(answer.parts, gold.parts, strict=True)]
    if all(side is True for side in sides):
        return True
    return _are_proportional(answer, gold, rules) if len(sides) == 2 else False


def _ascending(relation: Node) -> Node:
    """Written with < and ≤ when it is written with > and ≥ throughout."""
    operators = relation.text.split()
    if not set(operators) <= {">", "ge"}:
        return relation
    text = " ".join(_REVERSED[operator] for operator in reversed(operators))
    return Node("relation", relation.parts[::-1], text)


def _are_proportional(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Is one difference of sides a constant times the other (positive, for inequalities)?"""
    one, other = (Node("add", (r.parts[0], negated(r.parts[1]))) for r in (answer, gold))
    a, b = exact.quotient_of(one), exact.quotient_of(other)
    if a is None or b is None or not all((q.upper and q.is_polynomial) for q in (a, b)):
        return rules.oracle(one, other)
    upper, gold_upper = a.upper, b.upper
    same_terms = set(upper) == set(gold_upper)
    factors = {upper[term] / gold_upper[term] for term in upper} if same_terms else set[Fraction]()
    if len(factors) != 1:
        return rules.oracle(one, other) if a.opaque or b.opaque else False
    return factors.pop() > 0 or answer.text in _EQUALS | {"ne"}


def _as_interval(node: Node, other: Node) -> Node:
    """`x > 2` as (2, ∞), if the other answer is an interval or says `x ∈` one."""
    if node.kind != "relation" or not (other.kind == "bracket" or other.text == "in"):
        return node
    ascending = _ascending(node)
    operators, sides = ascending.text.split(), ascending.parts
    if not set(operators) <= {"<", "le"}:
        return node
    left = "[" if operators[0] == "le" else "("
    right = "]" if operators[-1] == "le" else ")"
    if len(sides) == 3 and _is_lone(sides[1]):
        return Node("bracket", (sides[0], sides[2]), left + right)
    if len(sides) == 2 and _is_lone(sides[1]) and not variables(sides[0]):
        return Node("bracket", (sides[0], _INFINITY), left + ")")
    if len(sides) == 2 and _is_lone(sides[0]) and not variables(sides[1]):
        return Node("bracket", (negated(_INFINITY), sides[1]), "(" + right)
    return node


# Values with units, numerals, ratios


def _same_measured(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Two values with or without units; a unit that one side does not have is not held against it.

    Percent is different: `50\\%` is the number 0.5. A gold `50\\%` may be answered 50, because
    there the question has named the percent; a gold 50 may not be answered `50\\%`.
    """
    if gold.kind == "base":  # the same digits, with that base or with none
        return answer == gold or (answer.kind == "number" and answer.number == int(gold.text))
    value, unit = _split_unit(answer)
    gold_value, gold_unit = _split_unit(gold)
    plain = _same_value(value, gold_value, rules)
    pure = {"%", "degree"} & {unit, gold_unit}  # these two are numbers: 1/100 and π/180
    if pure and "" in (unit, gold_unit):
        converted = _same_value(_as_number(value, unit), _as_number(gold_value, gold_unit), rules)
        may_be_left_out = "degree" in pure or gold_unit == "%" or rules.percent
        return _any(converted, plain) if may_be_left_out else converted
    if not unit or not gold_unit:
        return plain
    scale = units.conversion(unit, gold_unit)
    if scale is None or ("%" in pure and unit != gold_unit):
        return False
    converted = Node("mul", (value, number(scale)))
    return plain if scale == 1 else _same_value(converted, gold_value, rules)


def _as_number(value: Node, unit: str) -> Node:
    return Node("unit", (value,), unit) if unit in ("%", "degree") else value


def _split_unit(node: Node) -> tuple[Node, str]:
    """A value and its unit, also where the unit stands inside: `2 + 3√2 cm`, `270°/7`, `−5 m`.

    Of a product it is one factor's, of a sum that of all terms or of the last one alone.
    """
    if node.kind == "unit":
        return node.parts[0], node.text
    if node.kind not in ("neg", "div", "add", "mul"):
        return node, ""
    split = [_split_unit(part) for part in (node.parts[:1] if node.kind == "div" else node.parts)]
    present = [unit for _, unit in split if unit]
    if node.kind == "add":
        of_all_or_last = len(present) == len(split) or present == [split[-1][1]]
        common = of_all_or_last and len(set(present)) == 1
    else:
        common = len(present) == 1
    if not common:
        return node, ""
    values = (*(value for value, _ in split), *node.parts[len(split) :])
    return node._replace(parts=values), present[0]


def _same_ratio(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """`2:4` is `1:2` and 1/2; a time of day (`8:34`) is only itself."""
    if answer.kind != gold.kind:
        ratio, other = (answer, gold) if answer.kind == "ratio" else (gold, answer)
        unlike = other.kind in ("word", "matrix", "bracket", "base")
        if len(ratio.parts) != 2 or _may_be_time(ratio) or unlike:
            return False
        return _same_value(Node("div", ratio.parts), other, rules)
    if len(answer.parts) != len(gold.parts):
        return False
    pairs = list(zip(answer.parts, gold.parts, strict=True))
    equal = all(_same_measured(a, b, rules) for a, b in pairs)
    first, gold_first = pairs[0]
    has_zero = exact.constant(first) == 0 or exact.constant(gold_first) == 0
    if equal or has_zero or _may_be_time(answer) or _may_be_time(gold):
        return equal
    products = [(Node("mul", (a, gold_first)), Node("mul", (b, first))) for a, b in pairs]
    return _all([_same_value(a, b, rules) for a, b in products])


def _may_be_time(ratio: Node) -> bool:
    """Two digits after a colon may be minutes."""
    return any(len(term) == 2 and term.isdigit() for term in ratio.text.split(":")[1:])


def _same_value(answer: Node, gold: Node, rules: Rules) -> bool | None:
    """Two values without units, by tolerance, algebra, bounds and, in doubt, the oracle."""
    if rules.tolerance is not None:
        near = _is_near(answer, gold, rules.tolerance)
        if near is not None:
            return near
    equal = exact.equal(answer, gold)
    if equal is not None:
        return equal
    return False if interval.differ(answer, gold) else rules.oracle(answer, gold)


def _is_near(
    answer: Node, gold: Node, tolerance: float = 0.0, relative: float = 0.0
) -> bool | None:
    """Within an absolute and a relative error; None when either is not a number."""
    a, b = interval.middle(answer), interval.middle(gold)
    if a is None or b is None:
        return None
    rounding = 1e-12 * max(1.0, abs(b))  # so that 1.1 is within 0.1 of 1
    return abs(a - b) <= tolerance + relative * abs(a) + rounding
