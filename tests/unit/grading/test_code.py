"""Programs in a sandbox: right ones pass, and nothing a program does makes a wrong one pass."""

import json
import socket
import tempfile
from pathlib import Path

import pytest

from crt.data.formats import read_code, select_fields
from crt.grading.code import Limits, check, extract_program, read_tests, run_in_sandbox, run_tests
from crt.grading.grader import Grader
from crt.types import Problem

LIMITS = Limits(1.0, 1024)
SQUARE = {"setup": "", "tests": ["assert f(3) == 9", "assert f(4) == 16"]}


def verdict(program: str, tests: dict = SQUARE) -> str:
    return str(run_in_sandbox(program, tests, LIMITS)[0])


def test_a_right_program_passes_and_a_wrong_one_does_not() -> None:
    assert verdict("def f(x): return x * x") == "correct"
    assert verdict("def f(x): return 9") == "wrong"  # the second test counts as well
    assert verdict("def g(x): return x * x") == "wrong"
    assert verdict("def f(x) return x") == "wrong"


def test_the_reason_names_the_test() -> None:
    _, reason, _ = run_in_sandbox("def f(x): return 9", SQUARE, LIMITS)
    assert reason == "failed: assert f(4) == 16"
    _, reason, _ = run_in_sandbox("def f(x): return 1 / 0", SQUARE, LIMITS)
    assert reason == "failed (ZeroDivisionError): assert f(3) == 9"


MBPP = {
    "task_id": 7,
    "prompt": "Write a function to find the circumference of a circle.",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(circle(10), 62.83, rel_tol=0.001)"],
    "code": "…",
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "from typing import List\n\ndef twice(x: List[int]) -> List[int]:\n    '''Twice'''\n",
    "entry_point": "twice",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate([1, 2]) == [2, 4]\n",
}


def test_mbpp() -> None:
    problem = read_code(select_fields({**MBPP, "question": MBPP["prompt"]}))
    assert "circle(10)" in problem.question and problem.verifier == "code"
    right = "Here:\n```python\nimport math\ndef circle(r):\n    return 2 * math.pi * r\n```\nDone."
    assert run_tests(right, problem.answer, LIMITS)[0] == "correct"
    wrong = right.replace("2 *", "3 *")
    assert run_tests(wrong, problem.answer, LIMITS)[0] == "wrong"


def test_humaneval() -> None:
    problem = read_code(select_fields({**HUMANEVAL, "question": HUMANEVAL["prompt"]}))
    # the imports of the prompt are there, though the response does not repeat them
    right = "```python\ndef twice(x: List[int]) -> List[int]:\n    return [2 * i for i in x]\n```"
    assert run_tests(right, problem.answer, LIMITS)[0] == "correct"
    assert run_tests(right.replace("2 *", "3 *"), problem.answer, LIMITS)[0] == "wrong"


def test_through_the_grader_with_permission() -> None:
    problem = Problem("p", "", "assert f(3) == 9")
    with Grader(2, 1.0, 1024, verifier="code") as grader:
        grader.check()
        grade = grader.grade_problem("```\ndef f(x):\n    return x * x\n```", problem)
        assert (grade.verdict, grade.extracted) == ("correct", "def f(x):\n    return x * x\n")
        assert grader.grade_problem("I cannot.", problem).verdict == "no_answer"


TESTS = {
    "exceptions": "try:\n    f(-1)\nexcept ValueError:\n    pass\nelse:\n    assert False",
    "in place": "a = [3, 1]\nf(a)\nassert a == [1, 3]",
    "objects": "p = Point(1, 2)\np.x = 5\nassert p.total() == 7",
    "iterators": "assert list(f(3)) == [0, 1, 2]",
    "kinds": "assert f() == ({1: (2, 3.5)}, {4}, None, b'x', 10**5000)",
    "a builtin": "assert sum(10, 15) == 25",
    "keywords": "assert f(a=1, b=[2]) == [2, 1]",
}
PROGRAMS = {
    "exceptions": "def f(x):\n    raise ValueError('negative')",
    "in place": "def f(a): a.sort()",
    "objects": "class Point:\n    def __init__(self, x, y): self.x, self.y = x, y\n"
    "    def total(self): return self.x + self.y",
    "iterators": "def f(n):\n    yield from range(n)",
    "kinds": "def f(): return {1: (2, 3.5)}, {4}, None, b'x', 10**5000",
    "a builtin": "def sum(a, b): return a + b",
    "keywords": "def f(a, b): return b + [a]",
}


@pytest.mark.parametrize("what", TESTS)
def test_tests_may_use(what: str) -> None:
    tests = {"setup": "", "tests": [TESTS[what]]}
    assert verdict(PROGRAMS[what], tests) == "correct"
    assert verdict("def f(*a, **b): return 0\nPoint = sum = f", tests) == "wrong"


def test_what_cannot_be_passed_on_is_ungraded_not_wrong() -> None:
    tests = {"setup": "", "tests": ["assert f(lambda x: x) == 1"]}
    assert verdict("def f(g): return g(1)", tests) == "ungraded"


@pytest.mark.parametrize("tests", ["", "x = 1", "assert (", "{}", '{"tests": []}', '{"tests": 3}'])
def test_tests_that_prove_nothing_are_ungraded(tests: str) -> None:
    assert run_tests("```\ndef f(): pass\n```", tests, LIMITS)[0] == "ungraded"


HOSTILE = {
    "ends early": "import os; os._exit(0)",
    "ends early in the call": "import os\ndef f(x): os._exit(0)",
    "sys.exit": "import sys; sys.exit(0)",
    "SystemExit in the call": "def f(x): raise SystemExit(0)",
    "patches exits": "import os, sys\nsys.exit = os._exit = lambda *a: None\ndef f(x): return 1",
    "prints the token": 'print(\'{"verdict": "passed", "nonce": "0"}\')\ndef f(x): return 1',
    "writes to every file it has": "import os\nfor n in range(256):\n    try: os.write(n, "
    'b\'{"verdict": "passed"}\')\n    except OSError: pass\ndef f(x): return 1',
    "forges replies": "import os, struct, json\nm = json.dumps(['passed', 'yes']).encode()\n"
    "for n in range(3, 20):\n    try: os.write(n, (struct.pack('=I', len(m)) + m) * 9)\n"
    "    except OSError: pass\ndef f(x): return 1",
    "equals everything": "class E:\n    def __eq__(s, o): return True\n    def __ne__(s, o): "
    "return False\n    def __bool__(s): return True\ndef f(x): return E()",
    "an int that equals everything": "class E(int):\n    def __eq__(s, o): return True\n"
    "    __hash__ = int.__hash__\ndef f(x): return E(5)",
    "patches assert": "import builtins\nbuiltins.AssertionError = None\n"
    "AssertionError = Exception\nclass Quiet(Exception):\n    def __new__(c, *a): return None\n"
    "builtins.Exception = Quiet\ndef f(x): return 1",
    "patches the frames": "import sys\nframe = sys._getframe()\nwhile frame:\n"
    "    frame.f_globals['run_tests'] = lambda *a: ('passed', '')\n    frame = frame.f_back\n"
    "def f(x): return 1",
    "patches json and sys.modules": "import json, sys\njson.dumps = lambda *a, **b: '[]'\n"
    "sys.modules.clear()\ndef f(x): return 1",
    "looks for the tests in memory": "import gc\nfound = [o for o in gc.get_objects() if "
    "isinstance(o, dict) and 'nonce' in o]\ndef f(x): return 9 if found and x == 3 else "
    "16 if found else 1",
    "reads its parent": "import os\ndef f(x):\n    for name in ('mem', 'environ', 'cmdline', "
    "'fd/1', 'maps'):\n        try: return open(f'/proc/{os.getppid()}/{name}', 'rb').read(1) and "
    "x * x\n        except OSError: pass\n    return 1",
    "kills its parent": "import os, signal\ndef f(x):\n    os.kill(os.getppid(), signal.SIGKILL)",
    "kills everything": "import os\ndef f(x):\n    os.kill(-1, 9)",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: break\n"
    "def f(x): return 1",
    "processes": "import subprocess\ndef f(x):\n    subprocess.run(['true'])\n    return x * x",
    "threads without end": "import threading, time\ndef f(x):\n    while True: "
    "threading.Thread(target=time.sleep, args=(99,)).start()",
    "endless output": "def f(x):\n    while True: print('x' * 10**6)",
    "endless loop": "while True: pass",
    "sleeps": "import time\ndef f(x): time.sleep(1000)",
    "all memory": "def f(x): return len([0] * 10**11)",
    "a huge value": "def f(x): return 'x' * 10**8",
    "deep nesting": "def f(x):\n    a = []\n    for _ in range(10**5): a = [a]\n    return a",
    "ends the loop of the tests": "def f(x): raise StopIteration",
    "kills its own pipe": "import os\ndef f(x): os.closerange(0, 99)",
    "recursion": "def f(x): return f(x)",
    "a fault": "import ctypes\ndef f(x): ctypes.string_at(0)",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_no_hostile_program_passes(what: str) -> None:
    assert verdict(HOSTILE[what], {"setup": "", "tests": ["assert f(3) == 9"]}) == "wrong"


TRICKS = {  # tests that a program could bend if it ran beside them: the program, the tests
    "a builtin of the tests": (
        "def abs(x): return 0\ndef f(x): return 7.0",
        "assert abs(f(3) - 9.0) < 1e-6",
    ),
    "a module of the tests": (
        "class math:\n    isclose = staticmethod(lambda *a, **b: True)\ndef f(x): return 7.0",
        "assert math.isclose(f(3), 9.0)",
    ),
    "a function of the tests": (
        "def near(a, b): return True\ndef f(x): return 7.0",
        "def near(a, b):\n    return abs(a - b) < 0.1\nassert near(f(3), 9.0)",
    ),
    "the arguments": (
        "def f(a):\n    a.clear()\n    return []",
        "a = [3, 1]\nassert f(a) == sorted(a)",
    ),
    "a loop that ends early": (
        "def f(x): raise StopIteration",
        "assert all(map(lambda x: f(x) == x, [1, 2]))",
    ),
    "the check function": (
        "def check(c): pass\ndef f(x): return 7",
        "def check(candidate):\n    assert candidate(3) == 9\ncheck(f)",
    ),
}


@pytest.mark.parametrize("what", TRICKS)
def test_a_program_cannot_bend_its_tests(what: str) -> None:
    program, tests = TRICKS[what]
    assert verdict(program, {"setup": "", "tests": [tests]}) == "wrong"


def attempt(action: str) -> str:
    """A program that answers rightly only if an action is possible."""
    body = "\n".join("        " + line for line in action.splitlines())
    return (
        f"def f(x):\n    try:\n{body}\n        return x * x\n    except OSError:\n        return 0"
    )


def test_a_program_has_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)"
        assert verdict(attempt(connect)) == "wrong"


def test_a_program_writes_nothing_and_removes_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    kept = tmp_path / "kept"
    kept.write_text("mine")
    kept.chmod(0o666)
    for action in (
        f"open({str(kept)!r}, 'w').write('x')",
        f"import os\nos.remove({str(kept)!r})",
        f"import os\nos.truncate({str(kept)!r}, 0)",
        f"import os\nos.rename({str(kept)!r}, {str(kept) + '2'!r})",
        f"import os\nos.mkdir({str(tmp_path / 'new')!r})",
        f"import os\nos.symlink('/', {str(tmp_path / 'link')!r})",
        "open('here', 'w').write('x')",
    ):
        assert verdict(attempt(action)) == "wrong", action
    assert kept.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_program_cannot_read_data_files(tmp_path: Path) -> None:
    if "landlock" not in check(LIMITS):
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "gold.jsonl").write_text(json.dumps({"answer": 9}))
    assert verdict(attempt(f"open({str(tmp_path / 'gold.jsonl')!r}).read()")) == "wrong"


def test_nothing_is_left_behind() -> None:
    before = set(Path(tempfile.gettempdir()).glob("crt-code-*"))
    verdict("def f(x): return x * x")
    assert set(Path(tempfile.gettempdir()).glob("crt-code-*")) <= before


def test_the_limits_are_named() -> None:
    assert run_in_sandbox("while True: pass", SQUARE, LIMITS)[0] == "wrong"
    assert {"seccomp", "audit hook"} & set(check(LIMITS))


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```py\ndef f(): pass\n```\nUse it:\n```\nf()\n```", "def f(): pass\n"),
        ("```\nf()\n```", "f()\n"),
        ("def f():\n    return 1\n", "def f():\n    return 1\n"),
        ("The answer is 5.", None),
        ("", None),
    ],
)
def test_the_program_of_a_reply(reply: str, program: str | None) -> None:
    assert extract_program(reply) == program


def test_tests_as_text_or_as_json() -> None:
    assert read_tests("assert f()") == {"setup": "", "tests": ["assert f()"]}
    assert read_tests('{"tests": ["a"], "setup": "b"}') == {"setup": "b", "tests": ["a"]}
    assert read_tests("  ") is None
