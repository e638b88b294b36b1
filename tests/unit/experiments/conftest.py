"""The tiny model of the training tests, with recipes for a comparison of a few steps."""

from pathlib import Path

import pytest

from tests.support.tiny_model import tiny  # noqa: F401

METHODS = {
    "two": 'type = "crt"\nsaturation = { at_least = 2, window = 1, '
    "latest = 0.5, improvement = 0.0 }",
    "grpo": 'type = "grpo"',
    "short": 'type = "length_only"',
}


@pytest.fixture(scope="session")
def recipes(tiny) -> dict[str, Path]:  # noqa: F811
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
