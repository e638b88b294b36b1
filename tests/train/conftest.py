"""A tiny model with problems and a recipe, in a folder."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `trained`, here and in forked processes

from tiny_model import make_model, make_tokenizer

RECIPE = """
name = "tiny"
seed = 5
[model]
name = "{model}"
dtype = "float32"
[prompt]
instruction = "{{question}}"
[data]
train = ["{data}"]
[method]
type = "crt"
shorten.slack = "auto"
shorten.smoothing = 0.5
saturation = {{ at_least = 2, window = 1, latest = 0.5, improvement = 0.0 }}
[schedule]
steps = 8
problems_per_step = 4
save_every = 2
[sampling]
group_size = 4
max_tokens = 10
[preflight]
max_truncated = 1.0
[reference]
rollouts = 4
[validation]
problems = 4
rollouts = 2
final_rollouts = 3
finalists = 2
[grading]
workers = 1
[optim]
learning_rate = 1e-2
kl = 0.01
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A folder with `model/`, `data.jsonl` and `recipe.toml`."""
    folder = tmp_path_factory.mktemp("tiny")
    make_model().save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    colours = ["red", "green", "blue"]
    rows = [
        {
            "question": f"{colours[i % 3]} {colours[i // 3 % 3]} hmm",
            "answer": str(i % 3),
            "id": f"q{i}",
        }
        for i in range(36)
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = RECIPE.format(model=folder / "model", data=folder / "data.jsonl")
    (folder / "recipe.toml").write_text(recipe)
    return folder
