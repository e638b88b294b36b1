import ast
import subprocess
import sys
from pathlib import Path

import pytest

import crt
from crt.cli import VERBS, main
from crt.version import __version__

RECIPE = str(Path(__file__).parents[2] / "recipes" / "pocket.toml")


def test_help_lists_every_verb(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"crt {__version__}\n"


def test_bad_input_is_one_sentence_and_exit_code_2(capsys):
    assert main(["show", "no-such-recipe.toml"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("crt show: no-such-recipe.toml cannot be read")


@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        ("trian", "crt: there is no verb 'trian'. Did you mean `train`?\n"),
        ("xyzzy", f"crt: there is no verb 'xyzzy'. There are: {', '.join(VERBS)}.\n"),
    ],
)
def test_a_verb_that_is_none_is_answered_with_the_nearest(verb, sentence, capsys):
    assert main([verb, "--help"]) == 2
    assert capsys.readouterr().err == sentence


@pytest.mark.parametrize("words", [["show"], ["show", RECIPE, "--bad"]])
def test_wrong_words_exit_with_2(words):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2


def test_a_closed_pipe_is_no_traceback():
    command = f'"{sys.executable}" -m crt show "{RECIPE}" | true'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr


def loaded_after(statement: str) -> set[str]:
    """Names of the top-level modules in a fresh interpreter after a statement."""
    code = f"{statement}\nimport sys; print(' '.join({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.split())


def test_importing_the_core_loads_no_torch():
    loaded = loaded_after(
        "import crt.algorithm.step, crt.algorithm.registry, crt.algorithm.statistics"
    )
    assert "numpy" in loaded
    assert not loaded & {"torch", "transformers", "pydantic", "sympy", "rich"}


def test_importing_crt_loads_nothing_heavy():
    heavy = {"numpy", "torch", "pydantic", "sympy", "rich", "typing", "re"}
    assert not loaded_after("import crt") & heavy


def test_help_loads_nothing_heavy():
    loaded = loaded_after("from crt.cli import main; main([])")
    assert not loaded & {"numpy", "torch", "pydantic", "sympy", "rich", "typing", "shutil"}


def test_help_is_as_wide_as_it_is_told_to_be(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert main([]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 58


@pytest.mark.parametrize("verb", [["train", RECIPE], ["demo"], ["ask", "How many?"]])
def test_a_light_installation_says_what_is_missing(verb, tmp_path):
    missing = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'tokenizers')))"
    )
    code = f"{missing}; from crt.cli import main; sys.exit(main({verb!r}))"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'crt-train[train]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())  # nothing half-made


def test_public_names_are_there():
    for name in crt.__all__:
        assert getattr(crt, name) is not None
    assert set(dir(crt)) == set(crt.__all__) == names_for_type_checkers()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        crt.nonsense  # noqa: B018


def names_for_type_checkers() -> set[str]:
    stub = ast.parse(Path(crt.__file__).with_suffix(".pyi").read_text())
    return {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom)
            for alias in node.names}  # fmt: skip
