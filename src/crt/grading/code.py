"""The verifier `code`: a program out of a response, run against unit tests in a sandbox."""

import ast
import json
import math
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from crt.errors import ConfigError
from crt.types import Verdict

MAX_OUTPUT = 2**16
SANDBOX = Path(__file__).with_name("sandbox.py")
_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_DEFINES = re.compile(r"^\s*(?:def|class|async def)\s|=", re.MULTILINE)
_VERDICTS = {"passed": Verdict.CORRECT, "failed": Verdict.WRONG, "unknown": Verdict.UNGRADED}


class Limits(NamedTuple):
    """Seconds of processor time, and memory; three times as long by the clock."""

    seconds: float
    memory_mb: int


def run_tests(reply: str, gold: str, limits: Limits) -> tuple[Verdict, str | None, str]:
    """The verdict on the program in a reply, the program, and the reason."""
    tests = read_tests(gold)
    if tests is None:
        return Verdict.UNGRADED, None, "the tests cannot be read"
    program = extract_program(reply)
    if program is None:
        return Verdict.NO_ANSWER, None, "no program: neither a code block nor Python alone"
    verdict, reason, _ = run_in_sandbox(program, tests, limits)
    return verdict, program, reason


def read_tests(gold: str) -> dict[str, Any] | None:
    """`{"setup": …, "tests": […]}`, or plain text, which is tests alone."""
    if not gold.lstrip().startswith("{"):
        return {"setup": "", "tests": [gold]} if gold.strip() else None
    try:
        value = json.loads(gold)
        tests, setup = value["tests"], value.get("setup", "")
    except (ValueError, KeyError, RecursionError):
        return None
    tests = [tests] if isinstance(tests, str) else tests
    sound = isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests)
    return {"setup": setup, "tests": tests} if sound and isinstance(setup, str) else None


def extract_program(reply: str) -> str | None:
    """The last code block that defines something, else the last; or a reply that is Python."""
    blocks: list[str] = _FENCE.findall(reply)
    if blocks:
        return ([block for block in blocks if _DEFINES.search(block)] or blocks)[-1]
    try:
        parsed = ast.parse(reply)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Assign)
    return reply if any(isinstance(node, kinds) for node in parsed.body) else None


def run_in_sandbox(
    program: str, tests: dict[str, Any], limits: Limits
) -> tuple[Verdict, str, list[str]]:
    """Verdict, reason and the protections that were active.

    A pass is believed only with the nonce, which the process of the tests alone has read.
    """
    nonce = secrets.token_hex(16)
    seconds = max(1, math.ceil(limits.seconds))
    request = json.dumps({**tests, "program": program, "nonce": nonce})
    with tempfile.TemporaryDirectory(prefix="crt-code-") as folder:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-B", str(SANDBOX), str(seconds), str(limits.memory_mb)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={"PATH": os.defpath, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        except OSError as error:
            return Verdict.UNGRADED, f"the sandbox cannot start: {error.strerror}", []
        try:
            output, returncode = _exchange(process, request, 3 * seconds + 5)
        except TimeoutError:
            return Verdict.WRONG, f"the program did not end within {3 * seconds + 5} seconds", []
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close() if pipe else None
    try:
        reply = json.loads(output)
    except ValueError:
        reply = {}
    if reply.get("nonce") == nonce:
        return _VERDICTS[reply["verdict"]], reply["reason"], reply["protections"]
    if returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Verdict.WRONG, f"the tests took more than {seconds} seconds", []
    return Verdict.UNGRADED, f"the sandbox failed (exit code {returncode})", []


def _exchange(process: Any, request: str, seconds: float) -> tuple[bytes, int]:
    """The first of what the sandbox writes, and its exit code; TimeoutError after the deadline."""
    end, output = time.monotonic() + seconds, b""
    with suppress(BrokenPipeError):
        process.stdin.write(request.encode("utf-8", "replace"))
        process.stdin.close()
    while len(output) < MAX_OUTPUT:
        if not select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError
        piece = os.read(process.stdout.fileno(), MAX_OUTPUT)
        if not piece:
            break
        output += piece
    try:
        return output, process.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return output, -signal.SIGKILL


@cache
def check(limits: Limits) -> list[str]:
    """The protections of this machine; ConfigError if no program can be run at all."""
    tests = {"setup": "", "tests": ["assert add(1, 2) == 3"]}
    program = "import math\ndef add(a, b):\n    return a + b\n"
    verdict, reason, protections = run_in_sandbox(program, tests, limits)
    if verdict is not Verdict.CORRECT:
        raise ConfigError(
            f"the verifier code cannot run programs here: {reason}. It needs Linux or macOS, and "
            "a Python that every user may read."
        )
    return protections
