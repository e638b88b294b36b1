"""A model by name: a pocket model, a folder, a run's checkpoint or a hub id, with its hash."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crt.errors import DataError, EngineError, first_line, install_command
from crt.io import cache_folder, checked_sum, read_json, sha256, write_json
from crt.pocket import is_world
from crt.processes import cpu_flags, has_gpu, silence_libraries

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.py")
WORDS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tiktoken.model")
AS_IS = ("TokenizersBackend", "PreTrainedTokenizerFast")
GGUF_DTYPE = "bfloat16"  # what a .gguf file becomes
BFLOAT16_PARAMETERS = 25e6  # measured: docs/notes/cores.md
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}
HUB_ID = r"[\w.-]+/[\w.-]+"


@dataclass(frozen=True)
class ModelFiles:
    """What is known of a model before its weights are loaded."""

    name: str
    folder: Path
    tokenizer: "PreTrainedTokenizerBase"
    eos_token_ids: tuple[int, ...]  # tokens that end a response
    context: int | None  # positions the model was made for
    hash: str  # of the weights
    adapter: bool


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to sample, its tokenizer, and a hash of its weights for manifests."""

    files: ModelFiles
    model: "PreTrainedModel"
    dtype: str

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The model's own."""
        return self.files.tokenizer

    @property
    def hash(self) -> str:
        """SHA-256 of the weights."""
        return self.files.hash


def load_model(
    name: str,
    *,
    revision: str | None = None,
    dtype: Dtype = "auto",
    trust_remote_code: bool = False,
    device: str | None = None,
) -> LoadedModel:
    """The model and its tokenizer, from safetensors alone; code from elsewhere only if asked."""
    files = model_files(name, revision=revision, trust_remote_code=trust_remote_code)
    return with_weights(files, dtype, trust_remote_code, device)


def with_weights(
    files: ModelFiles,
    dtype: Dtype = "auto",
    trust_remote_code: bool = False,
    device: str | None = None,
) -> LoadedModel:
    """The same, with the weights in memory."""
    import torch

    options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    if dtype == "auto" and device is None and faster_in_bfloat16(files.folder):
        dtype = "bfloat16"
    model = _weights(files.folder, dtype, options)
    _check_sizes(files, model)
    chosen: Any = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return LoadedModel(files, model.to(chosen).eval(), str(model.dtype).removeprefix("torch."))


def faster_in_bfloat16(folder: Path) -> bool:
    """Whether a model on this CPU, saved in float32, is sampled in bfloat16 unless told otherwise.

    A stated rule: the processor multiplies bfloat16 and the model is as large as was measured to
    be faster (benchmarks/dtype.py). A model saved in another format keeps it.
    """
    if _is_adapter(folder):
        return faster_in_bfloat16(model_folder(base_of(folder)))
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    large = size >= BFLOAT16_PARAMETERS * 4
    return (
        large
        and saved_dtype(folder) == "float32"
        and not has_gpu()
        and not BFLOAT16_FLAGS.isdisjoint(cpu_flags())
    )


def saved_dtype(folder: Path) -> str | None:
    """The number format that the model was saved for, as its configuration says."""
    config = _json_in(folder / "config.json")
    return config.get("dtype") or config.get("torch_dtype")


def describe_dtype(files: ModelFiles, asked: str, used: str) -> Iterator[str]:
    """A sentence where the number format was chosen here."""
    if asked == "auto" and used == "bfloat16" and faster_in_bfloat16(files.folder):
        yield (
            f"{files.name} is used in bfloat16, which this processor multiplies faster than "
            'float32. dtype = "float32" turns it off.'
        )


def model_files(
    name: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> ModelFiles:
    """Tokenizer, configuration and hash, found, fetched if need be, and checked."""
    from transformers import AutoConfig

    silence_libraries()
    folder = model_folder(name, revision)
    checksum, adapter = weights_hash(folder), _is_adapter(folder)
    body = model_folder(base_of(folder)) if adapter else folder
    options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    config = _loading(body, "configuration", AutoConfig.from_pretrained, options)
    has_tokenizer = (folder / "tokenizer_config.json").is_file()
    tokenizer = load_tokenizer(folder if has_tokenizer else body, trust_remote_code)
    context = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    eos_token_ids = eos_token_ids_of(body, tokenizer)
    return ModelFiles(name, folder, tokenizer, eos_token_ids, context, checksum, adapter)


def load_tokenizer(folder: Path, trust_remote_code: bool = False) -> "PreTrainedTokenizerBase":
    """The folder's tokenizer.

    One that says it is what its tokenizer.json holds is taken at its word: for some architectures,
    Qwen2 among them, AutoTokenizer puts the family's own rules of splitting in their place.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not trust_remote_code and not any((folder / name).is_file() for name in WORDS):
        raise EngineError(f"{folder} has no tokenizer: none of {', '.join(WORDS)} is there.")
    options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    kind = _json_in(folder / "tokenizer_config.json").get("tokenizer_class")
    as_is = kind in AS_IS and (folder / "tokenizer.json").is_file()
    loader = PreTrainedTokenizerFast if as_is else AutoTokenizer
    return _loading(folder, "tokenizer", loader.from_pretrained, options)


def model_folder(name: str, revision: str | None = None) -> Path:
    """Where the model's files are; a hub id is fetched first."""
    if is_world(name):
        return _world_folder(name)
    if Path(name).is_dir():
        return _folder(checkpoint_of(Path(name)), "it holds no model")
    if name.endswith(".gguf"):
        return gguf_folder(Path(name))
    if not re.fullmatch(HUB_ID, name) or name.startswith("."):
        raise EngineError(
            f"{name!r} is no folder, no .gguf file, no hub id (owner/name) and not `pocket`."
        )
    return _from_hub(name, revision)


def checkpoint_of(folder: Path) -> Path:
    """The recommended checkpoint, if it is the folder of a run; otherwise the folder itself."""
    checkpoints = folder / "checkpoints"
    if not checkpoints.is_dir():
        return folder
    step = _json_in(folder / "progress.json").get("recommended")
    if not isinstance(step, int):
        raise EngineError(
            f"{folder} is a run that recommends no checkpoint yet: name one of {checkpoints}/step-…"
        )
    return checkpoints / f"step-{step:04d}"


def _world_folder(world: str) -> Path:
    from crt.pocket import path

    try:
        folder = path(world)
    except DataError as error:
        raise EngineError(str(error)) from None
    if not (folder / "config.json").is_file():
        raise EngineError(
            f"the model {world} is not in this installation: make it in a clone with "
            f"`python -m tools.pocket build --world {world} --install`."
        )
    return folder


def tokenizer_folder(name: str) -> Path:
    """Where a tokenizer's files are: a model's folder, or one with a tokenizer alone."""
    path = Path(name)
    return path if (path / "tokenizer_config.json").is_file() else model_folder(name)


def weights_hash(folder: Path) -> str:
    """SHA-256 over the configuration and all safetensors files; a base's weights are included."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickles = sorted(path.name for kind in PICKLES for path in folder.glob(kind))
        only = f", only {pickles[0]}, which can run code when it is loaded" if pickles else ""
        raise EngineError(f"{folder} has no .safetensors weights{only}: convert the model first.")
    digest = hashlib.sha256()
    is_adapter = _is_adapter(folder)
    weights = (folder / ("adapter_config.json" if is_adapter else "config.json"), *files)
    sums = _sums_in(folder / "record.json")
    for path in weights:
        digest.update(bytes.fromhex(checked_sum(path, sums)))
    for name in {*sums} - {path.name for path in weights}:
        checked_sum(folder / name, sums)
    if is_adapter:
        digest.update(weights_hash(model_folder(base_of(folder))).encode())
    return digest.hexdigest()


def base_of(folder: Path) -> str:
    """The model that an adapter belongs to."""
    name = _json_in(folder / "adapter_config.json").get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise EngineError(f"{folder / 'adapter_config.json'} does not name its base model.")
    return name


def eos_token_ids_of(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """The tokens that end a response: the model's own and the tokenizer's."""
    named = [_eos_in(folder / name) for name in ("generation_config.json", "config.json")]
    own = next((ids for ids in named if ids), [])
    eos_token_ids = {end for end in (*own, tokenizer.eos_token_id) if isinstance(end, int)}
    if not eos_token_ids:
        raise EngineError(f"{folder} names no token that ends a response (eos_token_id).")
    return tuple(sorted(eos_token_ids))


def cache_bytes(model: "PreTrainedModel") -> int:
    """Bytes of keys and values that one token of one response takes."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize


def _folder(path: Path, otherwise: str) -> Path:
    if not (path / "config.json").is_file() and not _is_adapter(path):
        raise EngineError(f"{path} cannot be loaded, {otherwise}: it has no config.json.")
    return path


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file()


def _weights(folder: Path, dtype: Dtype, options: dict[str, Any]) -> "PreTrainedModel":
    from transformers import AutoModelForCausalLM

    if _is_adapter(folder):
        from peft import PeftModel

        base = _weights(model_folder(base_of(folder)), dtype, options)
        adapted = _loading(folder, "adapter", lambda at: PeftModel.from_pretrained(base, at), {})
        return adapted.merge_and_unload()
    options = {**options, "dtype": dtype, "use_safetensors": True}
    return _loading(folder, "model", AutoModelForCausalLM.from_pretrained, options)


def _loading(folder: Path, what: str, load: Callable[..., Any], options: dict[str, Any]) -> Any:
    """What a library loads; whatever it says about a bad folder becomes one sentence."""
    try:
        return load(str(folder), **options)
    except Exception as error:  # a library's own errors have no common class
        reason = first_line(error)
        raise EngineError(f"the {what} in {folder} cannot be loaded: {reason}") from None


def _check_sizes(files: ModelFiles, model: "PreTrainedModel") -> None:
    table: Any = model.get_input_embeddings()
    rows = table.weight.shape[0]
    highest = max(files.tokenizer.get_vocab().values(), default=-1)
    if highest >= rows:
        raise EngineError(
            f"the tokenizer in {files.folder} has token {highest}, but the model has {rows} "
            "embeddings: they do not belong together."
        )


def _eos_in(path: Path) -> list[Any]:
    value = _json_in(path).get("eos_token_id")
    return value if isinstance(value, list) else [] if value is None else [value]


def _json_in(path: Path) -> dict[str, Any]:
    """What a small file says; nothing if it is not there or not JSON."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _sums_in(record: Path) -> dict[str, Any]:
    """Checksums that a run noted beside a checkpoint; of files in that folder alone."""
    listed = _json_in(record).get("files")
    if not isinstance(listed, dict):
        return {}
    return {name: value for name, value in listed.items() if Path(name).name == name}


def _from_hub(name: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise EngineError(
            f"{name} is not a folder, and loading from the hub needs huggingface_hub: "
            f"{install_command('train')}"
        ) from None
    try:
        path = snapshot_download(name, revision=revision, allow_patterns=list(WANTED))
    except Exception as error:  # network, rights, spelling: the library has a class for each
        at = f"@{revision}" if revision else ""
        raise EngineError(
            f"{name}{at} is not a folder here and cannot be had from the hub: {first_line(error)}"
        ) from None
    return _folder(Path(path), "it holds no model")


# --- a `.gguf` file: dequantised once into a folder that every engine can load --------------------


def gguf_folder(file: Path) -> Path:
    """The model's folder in the cache, made if it is not there: safetensors in bfloat16.

    Two things are taken from the file's own metadata, because the library loses them: the token
    that ends a response, and the file that the weights came from.
    """
    if not file.is_file():
        raise EngineError(f"{file} is not there.")
    # of the whole file: another quantisation under the same name is another model
    folder = cache_folder("gguf") / f"{file.stem}-{sha256(file)[:16]}"
    if not (folder / "config.json").is_file():
        unfinished = folder.with_name(f".unfinished-{os.getpid()}-{folder.name}")
        unfinished.mkdir(parents=True, exist_ok=True)
        try:
            _convert_gguf(file, unfinished)
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _convert_gguf(file: Path, folder: Path) -> None:
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
            file.parent, dtype=getattr(torch, GGUF_DTYPE), **options
        )
    except Exception as error:  # damaged files fail in as many ways as there are readers
        raise EngineError(f"{file} cannot be read as a GGUF model: {first_line(error)}") from None
    if end is not None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
        model.generation_config.eos_token_id = end
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = folder / "config.json"
    write_json(config, read_json(config) | {"converted_from": file.name})


def _end_token(reader: Any) -> int | None:
    """The token that ends a turn, as the file says."""
    fields = (reader.fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eos"))
    return next((int(field.contents()) for field in fields if field is not None), None)
