"""The tiny model of the training tests, with recipes for a comparison of a few steps."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "tiny_model", Path(__file__).parents[2] / "train" / "conftest.py"
)
assert spec and spec.loader
tiny_model = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tiny_model)
tiny = tiny_model.tiny

METHODS = {
    "two": 'type = "crt"\nshorten.slack = "auto"\nsaturation = { at_least = 2, window = 1, '
    "latest = 0.5, improvement = 0.0 }",
    "grpo": 'type = "grpo"',
    "short": 'type = "length_only"',
}


@pytest.fixture(scope="session")
def recipes(tiny) -> dict[str, Path]:
    """Name → recipe: 400 tokens are about four steps."""
    text = (tiny / "recipe.toml").read_text()
    head, rest = text[: text.index("[method]")], text[text.index("[schedule]") :]
    rest = rest.replace("steps = 8", "steps = 20\ntokens = 400")
    rest += f'[evaluation]\ndata = ["{tiny / "data.jsonl"}:12"]\nrollouts = 2\nmax_tokens = 10\n'
    found = {}
    for name, method in METHODS.items():
        path = tiny / f"{name}.toml"
        named = head.replace('name = "tiny"', f'name = "{name}"')
        path.write_text(f"{named}[method]\n{method}\n{rest}")
        found[name] = path
    return found
