"""The pocket model: a miniature reasoner for seeing, testing and teaching the method."""

from pathlib import Path


def path() -> Path:
    """The folder of the shipped weights and tokenizer, in Hugging Face format."""
    return Path(__file__).resolve().parent.parent / "assets" / "pocket"
