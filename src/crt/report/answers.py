"""Which answers the page holds, and how they are packed: a question at a time, read when asked."""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crt.evaluate.records import Record
from crt.evaluate.tally import standing
from crt.report.figures.grid import Course, course
from crt.report.html import visible
from crt.report.redundancy import pieces, redundant_share
from crt.report.sources import LineUp, Row
from crt.report.summary import result
from crt.types import Verdict

MOST_COLUMNS = 9  # checkpoints whose answers are in the page
HEAD, TAIL = 5000, 2500  # characters kept of a very long answer
CHARACTERS = 4  # of a token, about, to judge before reading what will fit
PACKING = 4  # the text's size over its size in the page, about
SHORT = {"": 0, "repeat": 1, "doubt": 2}
Key = tuple[str, str]  # data set and problem


@dataclass
class Picked:
    """Of one problem's responses: the first, the shortest that is right, the first that is not."""

    sample: Record | None = None
    shortest: Record | None = None
    wrong: Record | None = None

    def see(self, record: Record, verdict: Verdict) -> None:
        """Keeps the record if it is one of the three."""
        if self.sample is None or record.rollout < self.sample.rollout:
            self.sample = record
        if verdict is Verdict.CORRECT and _shorter(record, self.shortest):
            self.shortest = record
        if verdict in (Verdict.WRONG, Verdict.NO_ANSWER) and _earlier(record, self.wrong):
            self.wrong = record


@dataclass(frozen=True)
class Texts:
    """The packed questions of a line-up, and what had to be left out."""

    columns: tuple[int, ...]  # places of the points whose answers are here
    packed: dict[Key, str] = field(default_factory=dict[Key, str])
    size: int = 0  # bytes in the page


def texts(lineup: LineUp, first: Sequence[int], budget: int) -> Texts:
    """Packs questions until the budget of bytes is used up, those named first at the front."""
    found = course(lineup)
    columns = sorted({*spaced(len(lineup.points), MOST_COLUMNS), _result(lineup)})
    wanted = _fitting(found, columns, first, budget)
    picked = [_picked(lineup, place, {found.keys[n] for n in wanted}) for place in columns]
    asked = asked_of(lineup)
    packed: dict[Key, str] = {}
    size = 0
    for number in wanted:
        key = found.keys[number]
        chunk = _packed(key, asked.get(key, {}), [column.get(key) for column in picked], lineup)
        if size + len(chunk) > budget:
            break
        packed[key], size = chunk, size + len(chunk)
    return Texts(tuple(columns), packed, size)


def _result(lineup: LineUp) -> int:
    """The place of the point that the line-up is judged by."""
    found = result(lineup)
    return lineup.points.index(found) if found else 0


def spaced(count: int, most: int) -> list[int]:
    """At most so many places, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return np.linspace(0, count - 1, most).round().astype(int).tolist()


def asked_of(lineup: LineUp) -> dict[Key, Row]:
    """The questions and their answers."""
    rows = lineup.points[0].evaluation.problems()
    return {(str(row["data"]), str(row["id"])): row for row in rows}


def questions_of(lineup: LineUp) -> dict[Key, str]:
    """The questions' texts."""
    return {key: str(row["question"]) for key, row in asked_of(lineup).items()}


def pack(value: Any) -> str:
    """JSON, deflated, as text for a script element."""
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(squeezed.compress(raw) + squeezed.flush()).decode()


def answer_row(record: Record, verdict: Verdict, kinds: Sequence[str]) -> Row:
    """One answer as the explorer shows it; pieces as [kind, text]."""
    parts = pieces(record.response)
    marked = [[SHORT[part.kind], visible(part.text)] for part in parts]
    return {
        "kinds": list(kinds),
        "verdict": str(verdict),
        "tokens": record.tokens,
        "cut": record.stop == "length",
        "extracted": None if record.extracted is None else visible(record.extracted)[:200],
        "redundant": round(100 * redundant_share(parts)),
        "pieces": shortened(marked),
    }


def shortened(marked: list[list[Any]]) -> list[list[Any]]:
    """The pieces without the middle of a very long answer; a piece of kind 3 says how much went."""
    total = sum(len(text) for _, text in marked)
    if total <= HEAD + TAIL:
        return marked
    kept: list[list[Any]] = []
    place = 0
    for kind, text in marked:
        before = text[: max(0, HEAD - place)]
        after = text[max(0, total - TAIL - place) :] if place + len(text) > total - TAIL else ""
        if before:
            kept.append([kind, before])
        if after and not any(piece[0] == 3 for piece in kept):
            kept.append([3, str(total - HEAD - TAIL)])
        if after:
            kept.append([kind, after])
        place += len(text)
    return kept


def _fitting(found: Course, columns: Sequence[int], first: Sequence[int], budget: int) -> list[int]:
    """Questions in the order of their interest, as many as will about fit."""
    rest = [n for n in _spread_order(len(found.keys)) if n not in set(first)]
    tokens = np.nan_to_num(found.length[list(columns)], nan=1000.0)
    sizes = (2.5 * np.minimum(CHARACTERS * tokens, HEAD + TAIL) / PACKING).sum(axis=0)
    order = [*dict.fromkeys(first), *rest]
    within = np.cumsum(sizes[order]) <= 1.5 * budget  # the estimate is rough; packing decides
    return [number for number, fits in zip(order, within, strict=True) if fits] or order[:1]


def _spread_order(count: int) -> list[int]:
    """Every number once, early ones far apart, so that any beginning is spread over all."""
    step = max(1, round(count * 0.618))
    while np.gcd(step, count) != 1:
        step += 1
    return [(i * step) % count for i in range(count)]


def _picked(lineup: LineUp, place: int, wanted: set[Key]) -> dict[Key, Picked]:
    evaluation = lineup.points[place].evaluation
    found: dict[Key, Picked] = {}
    for record in evaluation.rollouts():
        key = (record.data, record.problem_id)
        if key in wanted:
            verdict = standing(record, evaluation.manifest["truncated"])
            found.setdefault(key, Picked()).see(record, verdict)
    return found


def _packed(key: Key, asked: Row, columns: Iterable[Picked | None], lineup: LineUp) -> str:
    truncated = lineup.points[0].evaluation.manifest["truncated"]
    return pack(
        {
            "question": visible(str(asked.get("question", key[1]))),
            "answer": visible(str(asked.get("answer", ""))),
            "columns": [list(answers_of(picked, truncated)) for picked in columns],
        }
    )


def answers_of(picked: Picked | None, truncated: Any) -> Iterator[Row]:
    """The answers that were picked, each once."""
    if picked is None:
        return
    roles: dict[int, tuple[Record, list[str]]] = {}
    for kind in ("sample", "shortest", "wrong"):
        record = getattr(picked, kind)
        if record is not None:
            roles.setdefault(record.rollout, (record, []))[1].append(kind)
    for record, kinds in roles.values():
        yield answer_row(record, standing(record, truncated), kinds)


def _shorter(record: Record, than: Record | None) -> bool:
    return than is None or _size(record) < _size(than)


def _size(record: Record) -> tuple[int, int]:
    return (len(record.response) if record.tokens is None else record.tokens, record.rollout)


def _earlier(record: Record, than: Record | None) -> bool:
    return than is None or record.rollout < than.rollout


def index_of(lineup: LineUp, held: Texts, ids: Mapping[Key, int]) -> Row:
    """What the explorer knows of every question without reading its answers."""
    found = course(lineup)
    asked = asked_of(lineup)
    return {
        "label": visible(lineup.label),
        "columns": [
            {"name": visible(point.name), "step": point.step, "texts": place in held.columns}
            for place, point in enumerate(lineup.points)
        ],
        "result": _result(lineup),
        "rollouts": int(lineup.points[0].figures["rollouts"]),
        "questions": [
            {
                "data": visible(key[0]),
                "text": _line(str(asked.get(key, {}).get("question", key[1]))),
                "chunk": ids.get(key),
                "acc": _numbers(100 * found.accuracy[:, number]),
                "len": _numbers(found.length[:, number]),
            }
            for number, key in enumerate(found.keys)
        ],
    }


def _line(text: str) -> str:
    return " ".join(visible(text).split())[:160]


def _numbers(values: Any) -> list[int | None]:
    return [None if np.isnan(value) else round(float(value)) for value in values]
