"""Dependencies point one way, lazy imports included: the house as CONTRIBUTING draws it."""

import ast
import re
from pathlib import Path

import crt
from crt.cli import VERBS, module_of

ROOT = Path(crt.__file__).parent
REPOSITORY = Path(__file__).parents[2]
BASE = {"types", "errors", "io", "processes", "version"}  # for everybody
SETTINGS = {"config", "recipes", "run", "describe", "plan"}  # called `settings` in the docstrings
ROOMS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
LINE = re.compile(r"^May import: (.+)\.$", re.M)  # in the docstring of a room


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def allowed(room: str) -> set[str]:
    """What a room says that it may import, besides itself and BASE."""
    line = LINE.search(docstring(ROOT / room / "__init__.py"))
    assert line, f"{room} does not say what it may import"
    names = set(line[1].split(", ")) - {"nothing"}
    return names - {"settings"} | (SETTINGS if "settings" in names else set())


LOWER = {
    **{room: allowed(room) for room in ROOMS if room != "commands"},
    **{key: {"algorithm", "data", "grading", "pocket", *SETTINGS} for key in SETTINGS},
    "demo": {"algorithm", "data", "evaluation", "reporting", *SETTINGS},
}
ANYTHING = {"commands", "cli", "__init__", "__main__"}


def modules() -> dict[str, Path]:
    return {
        ".".join(("crt", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in ROOT.rglob("*.py")
    }


def imports(path: Path) -> set[str]:
    """Of our own modules, wherever in the file; not those for the type checker alone."""
    tree = ast.parse(path.read_text())
    typed = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typed:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("crt."):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("crt.")}
    return names


def room(module: str) -> str:
    return module.split(".")[1]


def test_no_room_imports_from_above():
    wrong = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if room(module) not in ANYTHING | BASE
        for name in imports(path)
        if room(name) not in {room(module), *BASE, *LOWER[room(module)]}
    ]
    assert wrong == []


def test_the_base_imports_nothing_else():
    wrong = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if room(module) in BASE
        for name in imports(path)
        if room(name) not in BASE
    ]
    assert wrong == []


def test_no_module_imports_itself_in_a_circle():
    known = modules()
    graph = {module: imports(path) & set(known) - {module} for module, path in known.items()}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " → ".join((*way[way.index(module) :], module))
        if module not in done:
            for other in sorted(graph[module]):
                visit(other, (*way, module))
            done.add(module)

    for module in sorted(graph):
        if room(module) not in ("__init__",):
            visit(module, ())


def test_every_room_says_what_lives_there():
    silent = [
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("__init__.py")
        if not docstring(path).strip()
    ]
    assert silent == []


def test_nothing_imports_the_commands():
    wrong = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if room(module) != "commands"
        for name in imports(path)
        if room(name) == "commands"
    ]
    assert wrong == []


def test_every_verb_is_a_module_and_every_module_a_verb():
    files = {path.stem for path in (ROOT / "commands").glob("*.py")} - {"__init__"}
    assert files == {module_of(verb).rpartition(".")[2] for verb in VERBS}


def test_contributing_draws_the_house_as_it_is():
    """Its table has a row for every room, with what the room may import."""
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)/` \| .+ \| (.+) \|$", page, re.M))
    assert sorted(told) == ROOMS
    for name in ROOMS:
        assert [told[name]] == LINE.findall(docstring(ROOT / name / "__init__.py")), name


def test_the_method_needs_numpy_alone():
    heavy = {"torch", "transformers", "trl", "verl", "vllm", "pydantic"}
    for path in (ROOT / "algorithm").glob("*.py"):
        tree = ast.parse(path.read_text())
        named = {
            (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        assert not heavy & {name.split(".")[0] for name in named}, path
