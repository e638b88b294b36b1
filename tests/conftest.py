"""A real browser, for the pages; without one their tests are skipped and say so."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("CRT_PROCESSES", "1")  # the tests are what runs side by side

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")  # while it is open, no test may start an event loop of its own
def chromium() -> Iterator[Any]:
    """Headless chromium with a profile of its own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        path = next(filter(None, map(shutil.which, NAMES)), str(own) if own.exists() else None)
        if path is None:
            pytest.skip("there is no chromium here: make test-browser gets it and runs these")
        browser = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()
