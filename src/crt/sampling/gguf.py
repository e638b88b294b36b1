"""A `.gguf` file as a model: dequantised once into a folder that every engine can load."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from crt.errors import EngineError
from crt.io import read_json, write_json

DTYPE = "bfloat16"


def gguf_folder(file: Path) -> Path:
    """The model's folder in the cache, made if it is not there: safetensors in bfloat16.

    Two things are taken from the file's own metadata, because the library loses them: the token
    that ends a response, and the file that the weights came from.
    """
    if not file.is_file():
        raise EngineError(f"{file} is not there.")
    folder = cache_folder() / f"{file.stem}-{_digest(file)[:16]}"
    if not (folder / "config.json").is_file():
        unfinished = folder.with_name(f".unfinished-{os.getpid()}-{folder.name}")
        unfinished.mkdir(parents=True, exist_ok=True)
        try:
            _convert(file, unfinished)
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def cache_folder() -> Path:
    """Where converted models are kept: CRT_CACHE, or the user's cache."""
    named = os.environ.get("CRT_CACHE")
    if named:
        return Path(named) / "gguf"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crt" / "gguf"


def _convert(file: Path, folder: Path) -> None:
    try:
        from gguf import GGUFReader
    except ImportError:
        raise EngineError(f"{file} needs the package gguf: pip install gguf.") from None
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        end = _end_token(GGUFReader(file))
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **options)
        model = AutoModelForCausalLM.from_pretrained(
            file.parent, dtype=getattr(torch, DTYPE), **options
        )
    except Exception as error:  # damaged files fail in as many ways as there are readers
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise EngineError(f"{file} cannot be read as a GGUF model: {reason}") from None
    if end is not None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
        model.generation_config.eos_token_id = end
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = folder / "config.json"
    write_json(config, read_json(config) | {"converted_from": file.name})


def _end_token(reader: Any) -> int | None:
    """The token that ends a turn, as the file says."""
    for name in ("tokenizer.ggml.eot_token_id", "tokenizer.ggml.eos_token_id"):
        field = reader.fields.get(name)
        if field is not None:
            return int(field.contents())
    return None


def _digest(file: Path) -> str:
    """Of the whole file: another quantisation under the same name is another model."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
