"""A model and its tokenizer from a folder."""

from pathlib import Path

from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from crt.errors import DataError


def load(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Loads in float32, ready to sample, from the folder alone."""
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} holds no model: give a folder with config.json and weights")
    logging.disable_progress_bar()  # a bar for a few megabytes only disturbs what is printed
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return model.eval(), tokenizer
