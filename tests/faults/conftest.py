"""A tiny model with problems and a recipe, and processes in which something goes wrong."""

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from processes import COUNTS, Nursery, compiled

from tests.support.tiny_model import make_model, make_tokenizer

SEED = int(os.environ.get("FAULTS_SEED", "0"))

RECIPE = """
name = "tiny"
seed = 5
model = {{ name = "{folder}/model", dtype = "float32" }}
prompt.instruction = "{{question}}"
data.train = ["{folder}/data.jsonl"]
method.type = "crt"
method.saturation = {{ at_least = 2, window = 1, latest = 0.5, improvement = 0.0 }}
schedule = {{ steps = 6, problems_per_step = 2, save_every = 1 }}
sampling = {{ group_size = 4, max_tokens = 10 }}
preflight = {{ max_truncated = 1.0, skip = ["solves"] }}
reference.rollouts = 3
validation = {{ problems = 4, rollouts = 2, final_rollouts = 2, finalists = 2 }}
grading = {{ workers = 1, deadline_seconds = 60 }}
optim = {{ learning_rate = 1e-2, kl = 0.01 }}
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A folder with `model/`, `data.jsonl` and `recipe.toml`."""
    folder = tmp_path_factory.mktemp("tiny")
    make_model().save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    colours = ["red", "green", "blue"]
    rows = [
        {"id": f"q{i}", "question": f"{colours[i % 3]} hmm {i}", "answer": str(i % 3)}
        for i in range(18)
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "recipe.toml").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture(scope="session")
def nursery(tmp_path_factory) -> Iterator[Nursery]:
    folder = tmp_path_factory.mktemp("nursery")
    found = Nursery(folder, compiled(folder))
    yield found
    found.close()


@pytest.fixture(scope="session")
def faulty(nursery) -> Nursery:
    """The same, for tests that need a disk that fails."""
    if nursery.library is None:
        pytest.skip("there is no C compiler here, and the failing disk is written in C")
    return nursery


@pytest.fixture(scope="session")
def whole(tiny, nursery, tmp_path_factory) -> Path:
    """A run that nothing happened to."""
    run = tmp_path_factory.mktemp("whole") / "run"
    ended = nursery.live(["train", tiny / "recipe.toml", "--out", run])
    assert ended.code == 0, ended.told
    return run


@pytest.fixture
def choice(request) -> random.Random:
    """Random choices of a test; the seed is printed where it fails."""
    seed = f"{SEED}:{request.node.name}"
    print(f"FAULTS_SEED={SEED} ({seed})")
    return random.Random(seed)


def pytest_sessionfinish(session) -> None:
    """What went wrong on purpose in this process is counted by the one that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = dict(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    COUNTS.update(getattr(node, "workeroutput", {}).get("faults", {}))


def pytest_terminal_summary(terminalreporter) -> None:
    if COUNTS:
        counted = ", ".join(f"{count} × {what}" for what, count in sorted(COUNTS.items()))
        terminalreporter.write_line(f"Faults (FAULTS_SEED={SEED}): {counted}")
