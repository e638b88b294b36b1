"""Lists, sets, tuples, intervals, matrices, equations: what must be compared with what."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from crt.tasks.algebra import relations, values
from crt.tasks.algebra.node import Node, kinds_in

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
    mine, gold = relations.as_interval(mine, gold), relations.as_interval(gold, mine)
    mine_items, mine_label = relations.unlabelled(_items(mine), strict=False)
    gold_items, gold_label = relations.unlabelled(_items(gold), strict=True)
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
    named_mine, named_gold = relations.values_in_order(mine), relations.values_in_order(gold)
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
        return relations.same_relation(mine, gold, rules, same)
    if mine.kind == "list" or gold.kind == "list" or _is_set(mine) or _is_set(gold):
        return matched(_items(mine), _items(gold), rules, _is_set(mine) or _is_set(gold))
    if mine.kind == gold.kind == "bracket":
        return _brackets(mine, gold, rules)
    if mine.kind == gold.kind == "union":
        return matched(list(mine.parts), list(gold.parts), rules, True)
    if mine.kind == gold.kind == "matrix":
        return _rows(mine, gold, rules)
    if "ratio" in kinds:
        return values.same_ratio(mine, gold, rules)
    if kinds & {"word", "bracket", "union", "matrix"}:
        return False
    return values.same_measured(mine, gold, rules)


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
