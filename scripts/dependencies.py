"""Writes docs/reference/dependencies.md: every pinned package with its licence and what brings it.

    python scripts/dependencies.py

Licences are those that the installed packages declare of themselves.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
OURS = "crt-train"
SHORT = {  # what classifiers and free text call a licence → its SPDX name
    "MIT License": "MIT", "Apache Software License": "Apache-2.0", "BSD License": "BSD",
    "Apache License 2.0": "Apache-2.0", "Apache 2.0": "Apache-2.0", "Apache": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0", "Apache 2.0 License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "BSD 3-Clause": "BSD-3-Clause",
    "Python Software Foundation License": "PSF-2.0", "ISC License (ISCL)": "ISC",
}  # fmt: skip
HEAD = """# What is installed, and under which licence

`constraints.txt` pins every package that `make` installs to the version. This list is written by
`python scripts/dependencies.py` from what the packages declare. The extra is the smallest part of
`crt-train` that brings a package: `base` is `pip install crt-train` alone, `dev` is for tests,
`docs` for the site.

| package | version | licence | extra |
|---|---|---|---|
"""


def main() -> int:
    """Writes the list; fails when a pinned package is not installed in that version."""
    extras = brought_by()
    rows: list[str] = []
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if "==" not in line:
            continue
        name, version = line.split("==")
        try:
            installed = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            print(f"{name} is pinned and not installed: run make docs.", file=sys.stderr)
            return 2
        if installed["Version"].split("+")[0] != version:
            print(f"{name} is {installed['Version']}, not {version}: make setup.", file=sys.stderr)
            return 2
        extra = extras.get(canonical(name), "dev")
        rows.append(f"| {name} | {version} | {licence(installed)} | {extra} |")
    (ROOT / "docs" / "reference" / "dependencies.md").write_text(HEAD + "\n".join(rows) + "\n")
    return 0


def licence(installed: metadata.PackageMetadata) -> str:
    """As the package says it: an expression, a classifier, or the first line of a text."""
    if expression := installed.get("License-Expression"):
        return expression
    named = [
        entry.rpartition(" :: ")[2]
        for entry in installed.get_all("Classifier") or []
        if entry.startswith("License :: ") and not entry.endswith("OSI Approved")
    ]
    lines = (installed.get("License") or "").strip().splitlines()
    text = " or ".join(SHORT.get(each, each) for each in named)
    if not text and lines and len(lines) < 3:
        text = SHORT.get(lines[0], lines[0])
    return text or "see its files"


def brought_by() -> dict[str, str]:
    """Package → the smallest extra that needs it, directly or through others."""
    found: dict[str, str] = {}
    for extra in ("", "data", "report", "train", "serve", "dev", "docs"):
        left = needs(OURS, extra)
        while left:
            name = left.pop()
            if name not in found and name != canonical(OURS):
                found[name] = extra or "base"
                left += needs(name, "")
    return found


def needs(package: str, extra: str) -> list[str]:
    """What a package asks for, with one of its extras."""
    try:
        lines = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return []
    wanted = [Requirement(line) for line in lines]
    return [
        name
        for each in wanted
        if each.marker is None or each.marker.evaluate({"extra": extra})
        for name in (canonical(each.name), *inner(each))
    ]


def inner(requirement: Requirement) -> list[str]:
    """`crt-train[data]` inside an extra stands for what that extra needs."""
    if canonical(requirement.name) != canonical(OURS):
        return []
    return [name for extra in requirement.extras for name in needs(OURS, extra)]


def canonical(name: str) -> str:
    """A package's name as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
