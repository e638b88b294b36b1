"""Runs a program against unit tests. Started as a script by `code.py`, once per response.

Two processes: the program is alone in one of them, the tests are in the other. The tests call the
program's functions over a pipe and get plain values back. So the program cannot patch `assert`,
return an object that equals everything, read the expected values or the nonce, or end the tests:
the verdict is written by the process of the tests, after the last one.

Protections, as far as the system has them: namespaces (no network), Landlock (reads only Python's
own folders), seccomp (no sockets, processes, signals, or writes), and limits on memory, time and
files. Without seccomp an audit hook stands in for it, which a determined program can get around.

Only the standard library is imported: this file runs by itself, with `python -I`.
"""

import ast
import builtins
import contextlib
import ctypes
import importlib
import importlib.abc
import json
import os
import platform
import resource
import struct
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NoReturn

MAX_MESSAGE = 16 * 2**20  # bytes
MAX_ITEMS = 100_000  # of an iterator that a function returned

libc = ctypes.CDLL(None, use_errno=True)
prctl = getattr(libc, "prctl", lambda *_: -1)  # Linux alone has it
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
CLONE_NEWUSER, CLONE_NEWIPC, CLONE_NEWNET, CLONE_THREAD = (
    0x10000000,
    0x08000000,
    0x40000000,
    0x10000,
)
EPERM, ENOSYS, SIGKILL = 1, 38, 9

# System calls that are refused, for x86_64 and arm64.
REFUSED = {
    "network": ((41, 53, 425), (198, 199, 425)),  # socket socketpair io_uring_setup
    "processes": ((57, 58, 59, 322), (221, 281)),  # fork vfork execve execveat
    "signals": (
        (62, 129, 200, 234, 297, 424, 434, 438),  # kill rt_sigqueueinfo tkill tgkill … pidfd_*
        (129, 130, 131, 138, 240, 424, 434, 438),
    ),
    "others": (  # ptrace process_vm_* setsid setpgid prlimit64 sched_setaffinity setpriority
        (101, 310, 311, 112, 109, 302, 203, 141),
        (117, 270, 271, 157, 154, 261, 122, 140),
    ),
    "kernel": (  # unshare setns mount bpf perf_event_open keyctl add_key request_key userfaultfd
        (272, 308, 165, 321, 298, 250, 248, 249, 323, 29, 64, 68, 240),
        (97, 268, 40, 280, 241, 219, 217, 218, 282, 194, 190, 186, 180),
    ),
    "files": (  # creat truncate ftruncate rename* link* unlink* symlink* mkdir* mknod* rmdir …
        (
            *(85, 76, 77, 82, 264, 316, 86, 265, 87, 263, 88, 266, 83, 258, 133, 259, 84),
            *(90, 91, 268, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 452),
        ),
        (45, 46, 38, 276, 37, 35, 36, 34, 33, 52, 53, 54, 55, 88, 5, 6, 7, 452),
    ),
}
ABSENT = (435, 437)  # clone3, openat2: their arguments cannot be looked at
CLONE, OPEN, OPENAT = (56, 220), (2, None), (257, 56)
WRITING = 0x243  # O_WRONLY | O_RDWR | O_CREAT | O_TRUNC
ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
LOAD, EQUAL, AT_LEAST, HAS_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000


# ---- Protections


def enter_namespaces() -> list[str]:
    """No network and no rights over other processes; or, for root, another user."""
    if hasattr(libc, "unshare"):
        for flags in (CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC, CLONE_NEWUSER | CLONE_NEWNET):
            if libc.unshare(flags) == 0:
                return ["namespaces"]
    if os.getuid() == 0:
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            return ["another user"]
    return []


def set_limits(seconds: int, memory_mb: int) -> None:
    """Memory, processor time, and no file of any size; what the system cannot limit is left."""
    for name, value in (
        ("RLIMIT_AS", memory_mb * 2**20),
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_NOFILE", 64),
        ("RLIMIT_NPROC", 64),
        ("RLIMIT_CORE", 0),
    ):
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, ValueError, OSError):
            continue


def restrict_reading() -> list[str]:
    """Landlock: nothing but Python's own folders and the system's libraries can be opened."""
    if not sys.platform.startswith("linux") or libc.syscall(444, None, 0, 1) < 1:
        return []
    every_access = (1 << 13) - 1
    ruleset = libc.syscall(444, struct.pack("=Q", every_access), ctypes.c_size_t(8), 0)
    roots = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    roots |= {"/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache"}
    for root in sorted(root for root in roots if os.path.exists(root) and root != "/"):
        opened = os.open(root, os.O_PATH | os.O_CLOEXEC)
        access = 0b1101 if os.path.isdir(root) else 0b101  # execute, read files, list folders
        rule = struct.pack("=Qi", access, opened)
        libc.syscall(445, ruleset, 1, rule, 0)
        os.close(opened)
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    restricted = libc.syscall(446, ruleset, 0) == 0
    os.close(ruleset)
    return ["landlock"] if restricted else []


def refuse_system_calls() -> list[str]:
    """A seccomp filter; it cannot be taken off again."""
    if not sys.platform.startswith("linux") or platform.machine() not in ARCHES:
        return []
    column, arch = ARCHES[platform.machine()]
    refuse, absent = (RETURN, 0, 0, ERROR | EPERM), (RETURN, 0, 0, ERROR | ENOSYS)
    code = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, arch), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    code += [(AT_LEAST, 0, 1, 0x40000000), refuse]
    for numbers in REFUSED.values():
        for number in numbers[column]:
            code += [(EQUAL, 0, 1, number), refuse]
    for number in ABSENT:
        code += [(EQUAL, 0, 1, number), absent]
    # a thread may be made, a process may not; a file may be read
    for numbers, argument, bits, wanted in (
        (CLONE, 0, CLONE_THREAD, True),
        (OPEN, 1, WRITING, False),
        (OPENAT, 2, WRITING, False),
    ):
        number = numbers[column]
        if number is not None:
            jumps = (1, 0) if wanted else (0, 1)
            code += [(EQUAL, 0, 4, number), (LOAD, 0, 0, 16 + 8 * argument)]
            code += [(HAS_BITS, *jumps, bits), refuse, (RETURN, 0, 0, ALLOW)]
    code.append((RETURN, 0, 0, ALLOW))
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(code), ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return ["seccomp"] if prctl(PR_SET_SECCOMP, 2, header, 0, 0) == 0 else []


def refuse_by_audit() -> list[str]:
    """Where there is no seccomp: Python's own events of network, processes and writing."""
    refused = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn")
    refused += ("os.system", "os.kill", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "shutil.")
    refused += ("os.truncate", "os.link", "os.symlink", "os.chmod", "os.chown", "ctypes.", "pty.")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if writes or event.startswith(refused):
            raise PermissionError(f"{event} is not allowed here")

    sys.addaudithook(hook)
    return ["audit hook"]


# ---- The pipe between tests and program: plain values alone


class Peer:
    """Messages to and from the other process, with a limit on their size."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer
        self.changes = False  # whether a call may change its arguments in place

    def send(self, message: Any) -> None:
        content = json.dumps(message).encode()
        if len(content) > MAX_MESSAGE:
            raise ValueError("a value is too large to be passed on")
        content = struct.pack("=I", len(content)) + content
        while content:
            content = content[os.write(self.writer, content) :]

    def receive(self) -> Any:
        (size,) = struct.unpack("=I", self._read(4))
        if size > MAX_MESSAGE:
            raise ValueError("a value is too large to be passed on")
        return json.loads(self._read(size))

    def _read(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size:
            piece = os.read(self.reader, min(size, 2**20))
            if not piece:
                raise EOFError
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


COLLECTIONS: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: Any, keep: Callable[[Any], int] | None = None) -> Any:
    """A value as JSON; what is no plain value is kept here under a number, if it may be."""
    if value is None or isinstance(value, bool | str):
        return value if not isinstance(value, str) else str(value)
    if isinstance(value, int):
        return ["int", format(int(value), "x")]
    if isinstance(value, float):
        return ["float", repr(float(value))]
    if isinstance(value, complex):
        return ["complex", repr(value.real), repr(value.imag)]
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.hex()]
    if isinstance(value, Fraction):
        return ["fraction", str(value)]
    if isinstance(value, range):
        return ["range", value.start, value.stop, value.step]
    for name, kind in COLLECTIONS.items():
        if isinstance(value, kind):
            return [name, [encode(item, keep) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[encode(k, keep), encode(v, keep)] for k, v in value.items()]]
    if hasattr(value, "item") and type(value).__module__ == "numpy":
        return encode(value.item() if not value.shape else value.tolist(), keep)
    if keep is not None and isinstance(value, Iterator | type({}.keys()) | type({}.values())):
        items = [item for item, _ in zip(value, range(MAX_ITEMS + 1), strict=False)]
        return ["iterator", [encode(item, keep) for item in items[:MAX_ITEMS]]]
    if keep is None:
        raise Unsent(f"a {type(value).__name__} cannot be passed to the program")
    return ["object", keep(value)]


def decode(value: Any, find: Callable[[int], Any]) -> Any:
    """The value of `encode`, whatever the other side has sent."""
    if value is None or isinstance(value, bool | str):
        return value
    match value:
        case ["int", str(digits)]:
            return int(digits, 16)
        case ["float", str(text)]:
            return float(text)
        case ["complex", str(real), str(imaginary)]:
            return complex(float(real), float(imaginary))
        case ["bytes", str(text)]:
            return bytes.fromhex(text)
        case ["fraction", str(text)]:
            return Fraction(text)
        case ["range", int(start), int(stop), int(step)]:
            return range(start, stop, step)
        case ["dict", list(pairs)]:
            return {decode(k, find): decode(v, find) for k, v in pairs}
        case ["iterator", list(items)]:
            return iter([decode(item, find) for item in items])
        case ["object", int(number)]:
            return find(number)
        case [str(name), list(items)] if name in COLLECTIONS:
            return COLLECTIONS[name](decode(item, find) for item in items)
    raise ValueError("not a value")


class Unsent(Exception):
    """The tests use what cannot be sent to another process: nothing is known about the program."""


class Source(importlib.abc.InspectLoader):
    """Runs a text as a module."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_source(self, fullname: str) -> str:
        return self.text

    def run(self, module: types.ModuleType) -> None:
        self.exec_module(module)


# ---- The process of the program


def run_program(peer: Peer) -> NoReturn:
    """Loads the program, then answers calls until the tests are done."""
    setup, program = peer.receive()
    module = types.ModuleType("program")
    sys.modules["program"] = module
    objects: list[Any] = []

    def keep(value: Any) -> int:
        objects.append(value)
        return len(objects) - 1

    try:
        Source(setup + "\n" + program).run(module)
        peer.send(["loaded", {n: keep(v) for n, v in vars(module).items() if n[:2] != "__"}])
    except BaseException as error:
        peer.send(["failed", f"{type(error).__name__}: {error}"[:200]])
        os._exit(0)
    while True:
        action, number, name, arguments, named = peer.receive()
        try:
            found, values = objects[number], decode(arguments, objects.__getitem__)
            if action == "call":
                result = found(*values, **decode(named, objects.__getitem__))
            elif action == "get":
                result = getattr(found, name)
            else:
                result = setattr(found, name, values[0])
            reply = ["value", encode(result, keep), encode(values, keep)]
        except BaseException as error:
            reply = ["raised", type(error).__name__, str(error)[:200]]
        peer.send(reply)


# ---- The process of the tests


class Remote:
    """Something of the program's: it can be called, and its attributes read and set."""

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_remote", (peer, number))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _ask(self, "call", "", arguments, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ask(self, "get", name, (), {})

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "set", name, (value,), {})


def _ask(remote: Remote, action: str, name: str, arguments: Any, named: Any) -> Any:
    peer, number = object.__getattribute__(remote, "_remote")
    sent = _encode_arguments(list(arguments)), _encode_arguments(named)
    peer.send([action, number, name, *sent])
    found = lambda number: Remote(peer, number)  # noqa: E731
    match peer.receive():
        case ["value", result, after]:
            if peer.changes:
                for argument, changed in zip(arguments, decode(after, found), strict=True):
                    _change(argument, changed)
            return decode(result, found)
        case ["raised", str(kind), str(message)]:
            error: Any = getattr(builtins, kind, None)
            # a StopIteration would end a loop of the tests as if all were done
            refused = StopIteration | StopAsyncIteration
            known = isinstance(error, type) and issubclass(error, Exception)
            if known and not issubclass(error, refused):
                raise error(message)
            raise RuntimeError(f"{kind}: {message}")
    raise EOFError


def _encode_arguments(value: Any) -> Any:
    if isinstance(value, Remote):
        return ["object", object.__getattribute__(value, "_remote")[1]]
    if isinstance(value, list | tuple | set | frozenset):
        name = next(name for name, kind in COLLECTIONS.items() if isinstance(value, kind))
        return [name, [_encode_arguments(item) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[_encode_arguments(k), _encode_arguments(v)] for k, v in value.items()]]
    return encode(value)


def _change(argument: Any, changed: Any) -> None:
    """What the function did to its argument in place, as far as it is a plain collection."""
    if type(argument) is type(changed) and argument != changed:
        if isinstance(argument, list):
            argument[:] = changed
        elif isinstance(argument, dict | set):
            argument.clear()
            argument.update(changed)


def run_tests(peer: Peer, request: dict[str, Any]) -> tuple[str, str]:
    """`passed`, `failed` or `unknown`, and why; `passed` only after the last test."""
    setup, text = request["setup"], "\n".join(request["tests"])
    try:
        statements = ast.parse(text).body
        wanted, shadowed = _names_of_program(setup + "\n" + text)
    except (SyntaxError, ValueError, RecursionError) as error:
        return "unknown", f"the tests cannot be read: {error}"
    if not any(isinstance(node, ast.Assert | ast.Call) for node in ast.walk(ast.parse(text))):
        return "unknown", "the tests hold no assert"
    peer.send([setup, request["program"]])
    match peer.receive():
        case ["loaded", dict(names)]:
            pass
        case ["failed", str(reason)]:
            return "failed", f"the program failed: {reason}"
        case _:
            return "failed", "the program ended"
    module = types.ModuleType("tests")
    Source(setup).run(module)
    for name in wanted or shadowed:
        if name in sys.stdlib_module_names:  # the tests' `math` is not the program's
            setattr(module, name, importlib.import_module(name))
        elif isinstance(names.get(name), int):
            setattr(module, name, Remote(peer, names[name]))
    peer.changes = _calls_for_effect(ast.parse(text))
    for statement in statements:
        source = ast.unparse(statement)
        try:
            Source(source).run(module)
        except Unsent as error:
            return "unknown", str(error)
        except EOFError:
            return "failed", f"the program ended in {source[:200]}"
        except BaseException as error:
            kind = "" if isinstance(error, AssertionError) else f" ({type(error).__name__})"
            return "failed", f"failed{kind}: {source[:200]}"
    return "passed", f"{len(statements)} statements of tests ran to the end"


def _calls_for_effect(tests: ast.Module) -> bool:
    """Whether the tests call something that is not theirs as a statement: `f(a)`, then look at a.

    Elsewhere a program may not change its arguments: in `f(a) == sorted(a)` it would empty a.
    """
    own = {node.name for node in ast.walk(tests) if isinstance(node, ast.FunctionDef)}
    calls = (node.value for node in ast.walk(tests) if isinstance(node, ast.Expr))
    named = (call.func for call in calls if isinstance(call, ast.Call))
    return any(isinstance(name, ast.Name) and name.id not in own for name in named)


def _names_of_program(tests: str) -> tuple[set[str], set[str]]:
    """Names that the tests use and do not define; and builtins they use, such as a tested `sum`.

    A program may stand for a builtin only where the tests ask for nothing else of it.
    """
    defined: set[str] = set()
    used: set[str] = set()
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
    used -= defined
    return used - set(vars(builtins)), used & set(vars(builtins))


def main() -> None:
    """Request on stdin, verdict on stdout; the program gets neither."""
    seconds, memory_mb = int(sys.argv[1]), int(sys.argv[2])
    sys.set_int_max_str_digits(0)
    protections = enter_namespaces()
    program_reads, tests_write = os.pipe()
    tests_read, program_writes = os.pipe()
    if os.fork() == 0:  # before the request is read: nothing of it is in this process
        silence = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silence, number)
        kept = [os.dup(os.dup(number)) for number in (program_reads, program_writes)]
        os.closerange(3, min(kept))  # everything of the tests; a dup is above all that were open
        os.closerange(max(kept) + 1, 256)
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        set_limits(seconds, memory_mb)
        peer = Peer(*kept)
        active = restrict_reading() + (refuse_system_calls() or refuse_by_audit())
        peer.send(active)
        run_program(peer)
    os.close(program_reads)
    os.close(program_writes)
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # its memory and files are closed to the program
    peer = Peer(tests_read, tests_write)
    protections += peer.receive()
    request = json.loads(sys.stdin.buffer.read())
    output = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the tests print is no verdict
    set_limits(seconds + 5, memory_mb)
    restrict_reading()
    refuse_system_calls()  # the tests are data, and no more trusted than the program
    try:
        verdict, reason = run_tests(peer, request)
    except (EOFError, BrokenPipeError):
        verdict, reason = "failed", "the program ended"
    except (MemoryError, RecursionError, ValueError, TypeError) as error:
        verdict, reason = "failed", f"the program sent nonsense ({type(error).__name__})"
    reply = {"nonce": request["nonce"], "verdict": verdict, "reason": reason}
    os.write(output, json.dumps(reply | {"protections": protections}).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
