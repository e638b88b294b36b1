"""Dependencies point one way, lazy imports included: the house as CONTRIBUTING draws it."""

import ast
from pathlib import Path

import crt

ROOT = Path(crt.__file__).parent
BASE = {"types", "errors", "io", "processes", "version"}
SETTINGS = {"config", "recipes", "run", "describe", "plan"}
LOWER = {  # room → what it may import besides itself, BASE and what those may import
    "algorithm": set(),
    "grading": set(),
    "data": {"grading", "pocket"},
    "pocket": set(),
    "sampling": {"data", "grading", "pocket"},
    "training": {"algorithm", "data", "grading", "sampling", *SETTINGS},
    "evaluation": {"algorithm", "data", "grading", "sampling", *SETTINGS},
    "reporting": {"algorithm", "data", "evaluation", *SETTINGS},
    "levels": {"algorithm", "data", "grading", "sampling", "evaluation", *SETTINGS},
    "experiments": {"algorithm", "evaluation", "reporting", *SETTINGS},
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
        if not (ast.get_docstring(ast.parse(path.read_text())) or "").strip()
    ]
    assert silent == []


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
