"""Nothing of the package runs code that comes with data."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import crt
from crt.cli import main, parser_for
from crt.config import ModelConfig
from crt.errors import shown

SOURCES = sorted(Path(crt.__file__).parent.rglob("*.py"))
LOADS_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "imp", "code"}
RUNS_CODE = {"eval", "exec", "compile", "__import__"}


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_source_can_run_what_it_reads(path):
    assert not LOADS_CODE & set(imported(path))
    for call in calls(path):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        assert name not in RUNS_CODE, f"line {call.lineno}"
        whole = ast.unparse(call.func)
        assert whole not in ("os.system", "os.popen", "yaml.load"), call.lineno
        if whole == "torch.load":
            assert any(ast.unparse(k) == "weights_only=True" for k in call.keywords), call.lineno
        for keyword in call.keywords:
            on = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            assert not (keyword.arg in ("shell", "trust_remote_code") and on), call.lineno


def test_code_of_a_model_runs_only_when_asked():
    from crt.sampling.models import load_model, load_tokenizer, model_files, with_weights

    assert ModelConfig(name="pocket").trust_remote_code is False
    for function in (load_model, model_files, load_tokenizer, with_weights):
        assert inspect.signature(function).parameters["trust_remote_code"].default is False
    args = parser_for("eval").parse_args(["eval", "pocket"])
    assert not args.trust_remote_code


def test_a_terminal_is_not_steered_by_what_is_told(capsys, tmp_path):
    name = "\x1b[31mred\x07\x9b2J"
    assert main(["eval", name, "--data", "pocket"]) == 2
    told = capsys.readouterr().err
    assert "\x1b" not in told and "\x07" not in told and "\x9b" not in told
    assert shown("two\nlines\tand \x1b[0m") == "two\nlines\tand \ufffd[0m"
