"""What goes wrong for a user: one clear sentence each, never a traceback."""

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


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


def first_line(error: BaseException) -> str:
    """What a library says, in one line; its class where it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


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


def install_command(extra: str) -> str:
    """The command that adds an extra of this package, by how the package was installed."""
    from importlib import metadata

    try:
        origin = json.loads(metadata.distribution("crt-train").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):  # it runs from a clone
        origin = {"url": Path(__file__).parents[2].as_uri(), "dir_info": {}}
    return command_for(origin, extra)


def command_for(origin: Mapping[str, Any], extra: str) -> str:
    """`origin` is what pip wrote into direct_url.json (PEP 610); nothing, if from an index."""
    from urllib.parse import unquote, urlsplit

    url = origin.get("url", "")
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(url).path)}[{extra}]'"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}"
    return f"pip install 'crt-train[{extra}]{f' @ {url}' if url else ''}'"
