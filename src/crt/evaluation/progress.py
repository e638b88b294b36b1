"""How far it is: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator

from crt.evaluation.evaluation import Tell

EVERY = 60.0  # seconds between lines where there is no terminal


@contextlib.contextmanager
def progress(title: str) -> Iterator[Tell]:
    """A function to be told of responses as they are done."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn())
    speed = TextColumn("{task.fields[tokens]} tokens")
    with Progress(*columns, speed, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title.replace("[", "("), tokens=0)

        def tell(total: int, done: int, tokens: int) -> None:
            known = bar.tasks[0].fields["tokens"] + tokens
            bar.update(task, total=total, advance=done, tokens=known)

        yield tell


def _lines() -> Tell:
    start = last = time.monotonic()
    count = generated = 0

    def tell(total: int, done: int, tokens: int) -> None:
        nonlocal last, count, generated
        count, generated = count + done, generated + tokens
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            speed = generated / (now - start)
            print(f"{count} of {total} responses, {speed:.0f} tokens/s", file=sys.stderr)

    return tell
