"""The worker process: whatever may hang, crash or eat memory runs here and not in the run.

The parent starts `python -m crt.grading.worker FD SECONDS MB` and sends one JSON request per
message over the connection FD: a task, answered by a verdict, what was extracted, and a reason.
"""

import contextlib
import importlib
import importlib.util
import json
import re
import resource
import signal
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from crt.errors import CrtError
from crt.grading.mathematics import GoldUnread
from crt.grading.verifiers import QUICK, Task, function_of, source_of, verify
from crt.types import Problem, Verdict

Reply = dict[str, Any]


def serve(connection: Connection, deadline_seconds: float, memory_mb: int) -> None:
    """Answers requests until the parent is gone; the process ends itself if it is left alone."""
    with contextlib.suppress(ValueError, OSError):  # not every system can limit
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20, memory_mb * 2**20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send_bytes(b'{"ready": true}')
    with contextlib.suppress(EOFError):
        while True:
            request = json.loads(connection.recv_bytes())
            if "load" in request:  # takes seconds, and no item's deadline
                connection.send_bytes(json.dumps(load(request["load"])).encode())
                continue
            signal.alarm(int(deadline_seconds) + 5)
            connection.send_bytes(json.dumps(reply_to(request)).encode())
            signal.alarm(0)


def load(verifier: str) -> Reply:
    """Imports what a verifier needs; `error` says why that failed."""
    try:
        if function_of(verifier):
            load_function(verifier)
        elif verifier in ("math", "choice", "math_verify"):
            from crt.grading.symbolic import parse_latex

            parse_latex("1")  # its grammar
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": ""}


def reply_to(request: dict[str, Any]) -> Reply:
    """The reply to one task: without a verdict where memory or the stack ran out."""
    fields = request["problem"]
    lists = {key: tuple(fields.get(key, ())) for key in ("options", "accepted")}
    task = Task(**{**request, "problem": Problem(**{**fields, **lists})})
    try:
        if task.pattern:
            found = re.findall(f"(?:{task.pattern})", task.text)
            if not found:
                reason = "no match of the pattern of grading.answer"
                return {"verdict": Verdict.NO_ANSWER, "extracted": None, "reason": reason}
            text = found[-1] if isinstance(found[-1], str) else next(filter(None, found[-1]), "")
            task = task._replace(text=text.strip(), pattern="")
        equal, reason = judge(task)
    except GoldUnread as error:
        equal, reason = None, f"the gold cannot be read: {error}"
    except MemoryError:
        return {"reason": "out of memory"}
    except RecursionError:
        return {"reason": "nested too deeply"}
    except Exception as error:  # sympy raises nearly anything on odd input: unknown, not wrong
        where = "symbolic work" if task.verifier in QUICK else f"the verifier {task.verifier}"
        equal, reason = None, f"{type(error).__name__} in {where}"
        if task.verifier not in QUICK:
            reason += f": {error}"[:300]
    verdict = {None: Verdict.UNGRADED, True: Verdict.CORRECT, False: Verdict.WRONG}[equal]
    return {"verdict": verdict, "extracted": task.text, "reason": reason}


def judge(task: Task) -> tuple[bool | None, str]:
    """The verdict of any verifier that runs in a worker."""
    if task.verifier in QUICK:
        from crt.grading.symbolic import same_value

        comparison = verify(task, same_value)
        return bool(comparison.equal), f"{comparison.reason} (symbolic)"
    if task.verifier == "regex":
        patterns = (task.problem.answer, *task.problem.accepted)
        return any(re.search(pattern, task.text) for pattern in patterns), "regular expression"
    if task.verifier == "math_verify":
        return math_verify(task)
    return own_verdict(load_function(task.verifier)(task.text, task.problem))


def math_verify(task: Task) -> tuple[bool | None, str]:
    """The library as it is, with its extraction from prose and its rounding."""
    from math_verify import (
        ExprExtractionConfig,
        LatexExtractionConfig,
        StringExtractionConfig,
        parse,
        verify,
    )

    kinds: list[Any] = [LatexExtractionConfig(), ExprExtractionConfig()]
    if task.problem.options:
        letters = tuple(chr(65 + i) for i in range(len(task.problem.options)))
        kinds = [StringExtractionConfig(strings=letters)]
    untimed: Any = None  # the process has the deadline
    given = parse(task.text, kinds, parsing_timeout=untimed)
    for answer in (task.problem.answer, *task.problem.accepted):
        gold = parse(f"${answer}$", kinds, parsing_timeout=untimed)
        gold = gold or parse(answer, kinds, parsing_timeout=untimed)
        if not gold:
            raise GoldUnread(answer)
        if verify(gold, given, timeout_seconds=untimed):
            return True, "math-verify"
    return False, "math-verify" if given else "math-verify finds no answer"


@cache
def load_function(verifier: str) -> Callable[[str, Problem], Any]:
    """The function of a name; its module runs here."""
    path, (module, _, name) = source_of(verifier), function_of(verifier).rpartition(":")
    if module.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(module).stem, path)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        sys.path.append(str(path.resolve().parent))  # last: it hides no library
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(module)
    function = getattr(loaded, name)
    if not callable(function):
        raise TypeError(f"{name} is not a function")
    return function


def own_verdict(value: Any) -> tuple[bool | None, str]:
    """What a function returned: True, False or None, or one of them with a note."""
    verdict, note = value if isinstance(value, tuple) and len(value) == 2 else (value, "")
    if type(verdict).__name__ == "bool_":  # numpy's
        verdict = bool(verdict)
    if verdict is not None and not isinstance(verdict, bool):
        return None, f"the verifier returned {value!r:.60}, not True, False or None"
    return verdict, str(note)[:300] or "own verifier"


if __name__ == "__main__":
    try:
        serve(Connection(int(sys.argv[1])), float(sys.argv[2]), int(sys.argv[3]))
    except CrtError as error:
        sys.exit(str(error))
