"""A disk that is full or read-only, told in one sentence whichever library met it first."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from crt.errors import CrtError, DataError

FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
# What torch, safetensors and tokenizers say of it, the last as a bare Exception; torch writes
# through C++ streams, which forget the reason.
WORDS = ("No space left", "Read-only file", "Disk quota", "os error", "PytorchStreamWriter failed",
         "inline_container", "iostream error")  # fmt: skip


@contextlib.contextmanager
def disk_told(folder: Path) -> Iterator[None]:
    """Libraries that save weights have errors of their own for what the disk refuses."""
    try:
        yield
    except CrtError:
        raise
    except Exception as error:
        told = disk_fault(error)
        if told is None:
            raise
        raise DataError(
            f"{folder} cannot be written: {told}. What is saved is whole: when there is room, go "
            f"on with `crt train --resume {folder}`."
        ) from error


def disk_fault(error: BaseException | None) -> str | None:
    """What the disk said, if it is behind this error, or behind what that came from."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FAULTS:
            return os.strerror(error.errno)
        if any(word in str(error) for word in WORDS):
            return str(error).splitlines()[0][:200]
        error = error.__cause__ or error.__context__
    return None
