"""What was tried is told: a little in `make test`, much in `make test-faults`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from trying import COUNTS, SEED


def pytest_sessionfinish(session) -> None:
    """What a process of pytest-xdist tried is counted by the one that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["fuzz"] = dict(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    COUNTS.update(getattr(node, "workeroutput", {}).get("fuzz", {}))


def pytest_terminal_summary(terminalreporter) -> None:
    if COUNTS:
        counted = ", ".join(f"{count} × {what}" for what, count in sorted(COUNTS.items()))
        terminalreporter.write_line(f"Hostile input (FAULTS_SEED={SEED}): {counted}")
