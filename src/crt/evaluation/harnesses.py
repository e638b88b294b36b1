"""Completions as lm-eval, lighteval and inspect_ai write them, as rows that `crt score` knows."""

import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import zstandard

from crt.data.sources import LARGEST_JSON, READERS, read_file
from crt.errors import DataError
from crt.io import read_json

LARGEST_SAMPLE = 256 << 20  # bytes of one sample of inspect_ai, unpacked
ZSTD = 93  # in a zip file; this Python's own module does not know it
STOP_REASONS = {"stop": "eos", "max_tokens": "length", "model_length": "length"}

Row = dict[str, Any]


def read_records(path: Path) -> Iterator[Row] | None:
    """The samples of a log that is no JSONL; None for any other file."""
    if path.suffix == ".eval":
        return _zipped_samples(path)
    if path.suffix == ".json":
        return _samples_of(path)
    if path.suffix == ".parquet":
        return (row.value for row in read_file(path)) if path.suffix in READERS else None
    return None


def _samples_of(path: Path) -> Iterator[Row]:
    if path.is_file() and path.stat().st_size > LARGEST_JSON:
        raise DataError(f"{path} is over {LARGEST_JSON >> 20} MB: log in the format .eval")
    log = read_json(path)
    samples = log.get("samples") if isinstance(log, dict) else log
    if not isinstance(samples, list):
        raise DataError(f"{path} has no list of samples: inspect_ai's logs have one")
    yield from (sample if isinstance(sample, dict) else {} for sample in samples)


def _zipped_samples(path: Path) -> Iterator[Row]:
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as log:
            for info in log.infolist():
                if info.filename.startswith("samples/") and info.filename.endswith(".json"):
                    sample = json.loads(_member(log, info, file))
                    yield sample if isinstance(sample, dict) else {}
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (
        *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError, ValueError),
        *(RecursionError, NotImplementedError, RuntimeError, EOFError),
    ) as error:
        raise DataError(f"{path} is no log of inspect_ai, or damaged: {error}.") from None


def _member(log: zipfile.ZipFile, info: zipfile.ZipInfo, file: IO[bytes]) -> bytes:
    """A file of the log, unpacked, but no more of it than a sample may have."""
    if info.compress_type != ZSTD:
        with log.open(info) as packed:
            content = packed.read(LARGEST_SAMPLE + 1)
    else:
        file.seek(info.header_offset + 26)  # the lengths of name and extra field
        name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
        file.seek(info.header_offset + 30 + name + extra)
        reader = zstandard.ZstdDecompressor().stream_reader(file, closefd=False)
        content = reader.read(min(info.file_size, LARGEST_SAMPLE) + 1)
    if len(content) > LARGEST_SAMPLE:
        raise ValueError(f"a sample has over {LARGEST_SAMPLE >> 20} MB")
    return content


def as_row(value: Row) -> Row:
    """A record of one of these tools with our field names; any other record as it is.

    Verdicts of theirs are not taken: the same grader reads all. `prompt` is what was asked, where
    the question stands among other words.
    """
    try:
        if "resps" in value:
            return _of_lm_eval(value)
        if "epoch" in value and "output" in value:
            return _of_inspect(value)
        if any(key in value for key in ("model_response", "__model_response__", "predictions")):
            return _of_lighteval(value)
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise DataError(f"a record of another tool that cannot be read: {error!r:.80}") from None
    return value


def _of_lm_eval(value: Row) -> Row:
    """`--log_samples`: a line per filter, of which all have the same responses."""
    (texts, *others), doc = value["resps"], value.get("doc") or {}
    question = next((doc[key] for key in ("question", "problem", "query") if key in doc), None)
    arguments = value.get("arguments") or {}
    first = next(iter(arguments.values() if isinstance(arguments, Mapping) else arguments), None)
    prompt = next(iter(first.values() if isinstance(first, Mapping) else first or ()), None)
    row = {"question": question, "prompt": _text(prompt)}
    row["lm_eval_filter"] = value.get("filter")
    return row | {"response": [texts, *others] if isinstance(texts, str) else list(texts)}


def _of_inspect(value: Row) -> Row:
    """A sample of `inspect eval`; reasoning that is kept apart goes back between its tags."""
    output, asked = value["output"], value["input"]
    choice = output["choices"][0]
    if not isinstance(asked, str):
        asked = next(_text(m["content"]) for m in reversed(asked) if m["role"] == "user")
    return {
        "question": asked,
        "prompt": asked,
        "response": _text(choice["message"]["content"]),
        "tokens": (output.get("usage") or {}).get("output_tokens"),
        "stop": STOP_REASONS.get(choice.get("stop_reason") or ""),
    }


def _of_lighteval(value: Row) -> Row:
    """A row of `--save-details`, now and before version 0.10."""
    if "predictions" in value:
        texts, asked = _several(value["predictions"]), value.get("example") or value["full_prompt"]
        tokens = value.get("cont_tokens")
    else:
        answer = value.get("model_response") or value["__model_response__"]
        doc = value.get("doc") or value.get("__doc__") or {}
        texts, tokens = _several(answer["text"]), answer.get("output_tokens")
        asked = doc.get("original_query") or doc["query"]
        thoughts = answer.get("reasonings") or ()
        if any(thoughts):
            pairs = zip(thoughts, texts, strict=True)
            texts = [_think(thought) + text if thought else text for thought, text in pairs]
    known = tokens is not None and len(tokens) == len(texts) and all(map(len, tokens))
    return {
        "question": asked,
        "prompt": asked,
        "response": list(texts),
        "tokens": [len(ids) for ids in tokens or ()] if known else None,
    }


def _several(texts: Any) -> Any:
    """A list, also of one response that is not in a list."""
    return [texts] if isinstance(texts, str) else texts


def _think(thought: str) -> str:
    return f"<think>\n{thought}\n</think>\n"


def _text(content: Any) -> str | None:
    """The words of a message, in whatever parts it comes; lm-eval packs chats as JSON."""
    if isinstance(content, str) or content is None:
        return content
    parts: Sequence[Any] = content
    texts = [part if isinstance(part, str) else part.get("text") or "" for part in parts]
    thoughts = [str(part.get("reasoning") or "") for part in parts if isinstance(part, dict)]
    return "".join([*map(_think, filter(None, thoughts)), *texts])
