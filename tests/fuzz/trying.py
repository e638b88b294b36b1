"""Random input: how many times, from which seed, and small changes to what is right."""

import json
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from crt.errors import CrtError

SEED = int(os.environ.get("FAULTS_SEED", "0"))
LONG = os.environ.get("FAULTS") == "all"
TIMES = 20  # as many in the long way
COUNTS: Counter[str] = Counter()


def tried(what: str, times: int, *strategies: st.SearchStrategy[Any]) -> Callable[..., Any]:
    """The test is called with examples of these strategies, and each is counted."""

    def decorate(test: Callable[..., None]) -> Any:
        def counted(**drawn: Any) -> None:
            COUNTS[what] += 1
            test(*(drawn[f"value{i}"] for i in range(len(strategies))))

        how = settings(
            max_examples=times * (TIMES if LONG else 1),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        named = {f"value{i}": strategy for i, strategy in enumerate(strategies)}
        found = seed(SEED)(how(given(**named)(counted)))
        found.__name__, found.__doc__ = test.__name__, test.__doc__
        return found

    return decorate


def told(error: CrtError) -> None:
    """What a user reads is a text that says something, in lines a terminal can show."""
    text = str(error)
    assert len(text) > 10 and "Traceback" not in text and "0x7f" not in text


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(
        [-1, 0, 2**31, 2**63, 10**400, 1e308, -0.0, "", "0", "../..", "\x00", "\u202e"]
    ),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


def changed_json(right: Any) -> st.SearchStrategy[Any]:
    """The same with one to three values, at any depth, replaced, removed or doubled."""
    places = list(_places(right))
    change = st.tuples(st.sampled_from(places), st.sampled_from(["set", "remove"]), odd_values)
    return st.lists(change, min_size=1, max_size=3).map(lambda changes: _changed(right, changes))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    if not isinstance(value, dict | list):
        return
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from _places(each, (*path, key))


def _changed(right: Any, changes: list[tuple[tuple[Any, ...], str, Any]]) -> Any:
    value = json.loads(json.dumps(right))
    for (*above, last), how, odd in changes:
        try:
            place = value
            for key in above:
                place = place[key]
            if how == "remove":
                del place[last]
            else:
                place[last] = odd
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
    return value


def changed_text(right: bytes) -> st.SearchStrategy[bytes]:
    """The same with pieces cut out, doubled, or replaced by anything."""
    position = st.integers(0, len(right))
    change = st.tuples(position, position, st.one_of(st.binary(max_size=8), st.just(right[:40])))
    return st.lists(change, min_size=1, max_size=3).map(lambda changes: _spliced(right, changes))


def _spliced(right: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for start, end, piece in changes:
        start, end = min(start, end), max(start, end)
        right = right[:start] + piece + right[min(end, start + 200) :]
    return right
