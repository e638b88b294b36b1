import ast
import os
import pty
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import crt
from crt.cli import EXAMPLES, EXIT_CODES, VERBS, main, parser_for
from crt.errors import command_for, install_command
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
    assert install_command("train") in done.stderr
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


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples_that_it_understands(verb, capsys):
    lines = EXAMPLES[verb].splitlines()
    assert lines
    for line in lines:
        assert parser_for(verb).parse_args(shlex.split(line)[1:]).verb == verb
    with pytest.raises(SystemExit) as end:
        main([verb, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown and "--quiet" in shown and "--verbose" in shown


def test_the_exit_codes_are_in_the_help(capsys):
    main([])
    assert EXIT_CODES in capsys.readouterr().out


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({}, "pip install 'crt-train[train]'"),
        ({"url": "file:///a%20b", "dir_info": {}}, "pip install '/a b[train]'"),
        ({"url": "file:///x", "dir_info": {"editable": True}}, "pip install -e '/x[train]'"),
        (
            {"url": "https://h/r.git", "vcs_info": {"vcs": "git"}},
            "pip install 'crt-train[train] @ git+https://h/r.git'",
        ),
        (
            {"url": "file:///x/c.whl", "archive_info": {}},
            "pip install 'crt-train[train] @ file:///x/c.whl'",
        ),
    ],
)
def test_an_extra_is_installed_as_the_package_was(origin, command):
    assert command_for(origin, "train") == command
    assert install_command("train").startswith("pip install")


def test_quiet_leaves_results_and_errors(tmp_path, capsys):
    file = tmp_path / "answers.jsonl"
    file.write_text('{"answer": "7", "response": "\\\\boxed{7}"}\n')
    assert main(["grade", str(file)]) == 0
    loud = capsys.readouterr()
    assert main(["grade", str(file), "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert quiet.out == loud.out and loud.err and not quiet.err
    assert "CRT_QUIET" not in os.environ
    assert main(["grade", "nowhere.jsonl", "--quiet"]) == 2
    assert "nowhere.jsonl" in capsys.readouterr().err


def test_verbose_shows_where_an_error_came_from(capsys):
    assert main(["show", "nowhere.toml", "--verbose"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error and error.endswith("Is the path right?\n")
    assert main(["show", "nowhere.toml"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["crt", "tr"], {"train"}),
        (["crt", "train", "--res"], {"--resume"}),
        (["crt", "recipe", "c"], {"copy"}),
        (["crt", "bench-methods", "--table"], {"--table"}),
        (["crt", "family", "--n"], {"--name"}),
    ],
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_verbs_and_options(typed, offered, capsys):
    assert main(["--completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = " ".join(shlex.quote(word) for word in typed)
    code = (
        f"{script}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _crt; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered


def test_a_terminal_shows_that_something_is_loading():
    master, slave = pty.openpty()
    code = "import time; from crt.commands import loading\nwith loading(): time.sleep(0.5)"
    words = [sys.executable, "-c", code]
    try:
        subprocess.run(words, stdout=slave, stderr=slave, check=True, timeout=60)
        assert b"loading" in os.read(master, 4096)
    finally:
        os.close(master)
        os.close(slave)
    done = subprocess.run(words, capture_output=True, check=True, timeout=60)
    assert done.stdout == done.stderr == b""


def test_other_shells_have_a_script_too(capsys):
    main(["--completion", "zsh"])
    assert "bashcompinit" in capsys.readouterr().out
    main(["--completion", "fish"])
    fish = capsys.readouterr().out
    assert "-a train -d 'train a model to think shorter, from a recipe'" in fish
    assert "complete -c crt -n '__fish_seen_subcommand_from train' -l resume" in fish
