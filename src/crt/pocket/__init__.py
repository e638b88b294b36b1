"""The pocket model: a miniature reasoner for seeing, testing and teaching the method.

May import: nothing.
"""

from pathlib import Path
from typing import Any

from crt.errors import DataError


def path() -> Path:
    """The folder of the shipped weights and tokenizer, in Hugging Face format."""
    return Path(__file__).resolve().parent.parent / "assets" / "pocket"


def load(folder: Path) -> tuple[Any, Any]:
    """A model and its tokenizer in float32, ready to sample, from the folder alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} holds no model: give a folder with config.json and weights")
    logging.disable_progress_bar()  # a bar for a few megabytes only disturbs what is printed
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype="float32")
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)
