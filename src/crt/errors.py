"""What goes wrong for a user: one clear sentence each, never a traceback."""

import difflib
from collections.abc import Iterable


class CrtError(Exception):
    """Says what happened, where, with which value, and what to do; `crt` exits with 2."""


class ConfigError(CrtError):
    """A recipe or a setting cannot be used."""


class DataError(CrtError):
    """A data file, or a problem in it, cannot be used."""


class GradingError(CrtError):
    """The grader does not work, so no figure could be trusted."""


class EngineError(CrtError):
    """Sampling or training cannot start or go on."""


def shown(text: str) -> str:
    """For a terminal: what somebody else wrote may not move the cursor or change colours."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The nearest of the choices, or all of them if they are few."""
    names = list(choices)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if near:
        return f"Did you mean `{near[0]}`?"
    return f"There are: {', '.join(names)}." if len(names) <= 30 else "Nothing is called like it."
