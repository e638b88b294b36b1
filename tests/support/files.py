"""Files that tests read back through the package."""

import json
from collections.abc import Iterable
from pathlib import Path


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    """One JSON value per line; a string is written as it is, so that a line can be broken."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path
