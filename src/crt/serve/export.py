"""A level as a model folder of its own, which transformers and vLLM load as it is."""

import os
import shutil
from pathlib import Path

from crt.errors import ConfigError, DataError, did_you_mean
from crt.files import UNFINISHED, write_text
from crt.run import Run
from crt.sampling.models import LoadedModel, load_model
from crt.serve.card import model_card
from crt.serve.family import Family, Level, check_weights, model_of


def export(run: Run, family: Family, file: Path, name: str, to: Path) -> Level:
    """Writes the folder whole or not at all; one that is there is never written over."""
    level = family.level(name)
    if level is None:
        names = [each.name for each in family.levels]
        raise ConfigError(f"--level {name!r} is not in the family. {did_you_mean(name, names)}")
    if to.exists() or to.is_symlink():
        raise ConfigError(f"{to} is there already and is not written over: give another --to.")
    where = model_of(level, file)
    loaded = load_model(where, revision=level.revision, device="cpu")
    check_weights(level, loaded.hash, where, file)
    aside = to.with_name(f"{UNFINISHED}{os.getpid()}-{to.name}")
    try:
        aside.mkdir(parents=True)
        _fill(aside, loaded, family, model_card(family, level, run.config))
        aside.rename(to)
    except OSError as error:
        raise DataError(f"{to} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return level


def _fill(folder: Path, loaded: LoadedModel, family: Family, card: str) -> None:
    """Weights (an adapter merged into its base), tokenizer, generation settings and card."""
    settings = loaded.model.generation_config
    if settings is not None:
        settings.do_sample = family.measured.temperature > 0
        if settings.do_sample:
            settings.temperature = family.measured.temperature
            settings.top_p = family.measured.top_p
        settings.max_new_tokens = family.measured.max_tokens
        settings.eos_token_id = list(loaded.files.ends)
    loaded.model.save_pretrained(folder, safe_serialization=True)
    loaded.tokenizer.save_pretrained(folder)
    write_text(folder / "README.md", card)
    for path in folder.iterdir():  # as readable as what others export
        path.chmod(0o644)
        _flush(path)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
