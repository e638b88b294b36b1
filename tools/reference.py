"""The pages of docs/reference that are made from the code: `python -m tools.reference`.

`crt.md` from the parsers, `recipe.md` from the configuration, `steps.md` from the keys of a row,
`python.md` from the public names. A test holds the pages to the code.
"""

import argparse
import ast
import importlib
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticUndefined

import crt
from crt.algorithm.objectives import Dataclass, setting_fields
from crt.algorithm.registry import METHODS
from crt.cli import EXAMPLES, EXIT_CODES, VERBS, add_arguments
from crt.config import RunConfig
from crt.run import STEP_KEYS

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- Made from the code by `python -m tools.reference`. -->\n"


def main() -> None:
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)


def pages() -> dict[str, str]:
    """File name → text."""
    made = {"crt.md": cli, "recipe.md": recipe, "steps.md": steps, "python.md": python}
    return {name: MADE + "\n".join(page()) + "\n" for name, page in made.items()}


# ---- The command line


def cli() -> Iterator[str]:
    """A section per verb, with its arguments and examples."""
    yield "# Commands\n"
    yield "`crt VERB --help` prints the same for one verb.\n"
    yield from table(
        ("command", "what it does"),
        ((f"[`crt {verb}`](#crt-{verb})", line) for verb, line in VERBS.items()),
    )
    yield f"\n```text\n{EXIT_CODES}\n```"
    yield '\n`eval "$(crt --completion bash)"` completes verbs and options; `zsh` and `fish` too.'
    for verb, line in VERBS.items():
        parser = argparse.ArgumentParser(prog=f"crt {verb}", add_help=False)
        add_arguments(parser, verb)
        yield f"\n## crt {verb}\n\n{line[0].upper()}{line[1:]}.\n"
        yield f"```console\n{prompted(EXAMPLES[verb])}\n```\n"
        yield from arguments(parser)


def prompted(lines: str) -> str:
    """Every line as it is typed."""
    return "\n".join(f"$ {line}" for line in lines.splitlines())


def arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """One table per parser; those of its actions follow."""
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    plain = [a for a in parser._actions if a not in inner and "--help" not in a.option_strings]
    rows = [(called(action), plain_text(action.help or "")) for action in plain]
    if rows:
        yield from table(("argument", "meaning"), rows)
    for action in inner:
        lines = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, below in action.choices.items():
            yield f"\n**`{parser.prog} {name}`**: {lines.get(name, '')}\n"
            yield from arguments(below)


def plain_text(text: str) -> str:
    """A help text as Markdown, in which brackets are brackets."""
    text = text.replace("%%", "%").replace("<", "&lt;")
    return re.sub(r"([\[\]*_])", r"\\\1", text)


def called(action: argparse.Action) -> str:
    """As it is written on a command line."""
    value = str(action.metavar or "|".join(map(str, action.choices or ())))
    if not action.option_strings:
        return f"`{value or action.dest}`"
    takes = "" if action.nargs == 0 else f" {value or action.dest.upper()}"
    *others, last = action.option_strings
    return "".join(f"`{option}`, " for option in others) + f"`{last}{takes}`"


# ---- The keys of a recipe


def recipe() -> Iterator[str]:
    """A section per table of a recipe, and one per method."""
    yield "# Keys of a recipe\n"
    yield "A recipe is a TOML file. `crt show recipe.toml` prints it with all defaults, and"
    yield "`--set section.key=value` changes a key. A key that does not exist is refused with the"
    yield "nearest one. A `base` key names another recipe whose keys count where this one is"
    yield "silent. `–` stands for no value.\n"
    hints = get_type_hints(RunConfig)
    sections = {name: section_of(hint) for name, hint in hints.items()}
    yield from settings(RunConfig, [n for n, kind in sections.items() if kind is None])
    for name, kind in sections.items():
        if name == "method":
            yield from methods()
        elif kind is not None:
            yield from section(name, kind)


def section(path: str, kind: Any, several: bool = False) -> Iterator[str]:
    """Its keys; the sections inside it follow."""
    hints = get_type_hints(kind)
    inner = {n: s for n, hint in hints.items() if (s := section_of(hint))}
    name = f"[[{path}]]" if several else f"[{path}]"
    yield f"\n## `{name}`\n\n{paragraphs(kind)}\n"
    yield from settings(kind, [name for name in names_of(kind) if name not in inner])
    for name, below in inner.items():
        yield from section(f"{path}.{name}", below, several=get_origin(hints[name]) is tuple)


def methods() -> Iterator[str]:
    """Every value of `type`, and the settings it brings."""
    yield "\n## `[method]`\n"
    yield "`type` chooses the method; the other keys are its settings."
    for name, kind in METHODS.items():
        yield f"\n### `{name}`\n\n{paragraphs(kind)}\n\n[Its page](methods/{name}.md)\n"
        hints = get_type_hints(kind)
        inner = {n: s for n in names_of(kind) if (s := section_of(hints[n]))}
        if "inner" in names_of(kind):
            yield "`inner` is another method, with its own `type` and settings.\n"
        yield from settings(kind, [n for n in names_of(kind) if n not in (*inner, "inner")])
        for part, below in inner.items():
            yield f"\n#### `[method.{part}]` of `{name}`\n\n{paragraphs(below)}\n"
            yield from settings(below, names_of(below))


def section_of(hint: Any) -> Any:
    """The class of a section's keys; None for a plain value."""
    kinds = [k for k in (hint, *get_args(hint)) if isinstance(k, type)]
    return next((k for k in kinds if issubclass(k, BaseModel) or has_fields(k)), None)


def has_fields(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__")


def names_of(kind: Any) -> list[str]:
    """The keys that a recipe may set."""
    return list(kind.model_fields) if issubclass(kind, BaseModel) else list(setting_fields(kind))


def settings(kind: Any, names: list[str]) -> Iterator[str]:
    """A table of keys: type, default, meaning."""
    if not names:
        return
    schema = TypeAdapter(kind).json_schema()["properties"]
    notes = field_notes(kind)
    yield from table(
        ("key", "type", "default", "meaning"),
        (
            (f"`{name}`", type_of(schema[name]), default_of(kind, name), notes.get(name, ""))
            for name in names
        ),
    )


def type_of(schema: dict[str, Any]) -> str:
    """In words: what a recipe may say."""
    if "anyOf" in schema:
        return " or ".join(type_of(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    name = {
        "integer": "whole number", "number": "number", "string": "text", "boolean": "true, false",
        "array": "list", "object": "table",
    }.get(schema.get("type", ""), "any")  # fmt: skip
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (
            ("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<"), ("maximum", "≤")
        )
        if key in schema and schema[key] < 2**31
    ]  # fmt: skip
    return " ".join([name, *bounds])


def default_of(kind: Any, name: str) -> str:
    """As a recipe writes it; `–` where there is none."""
    if issubclass(kind, BaseModel):
        value = kind.model_fields[name].default
    else:
        field = kind.__dataclass_fields__[name]
        made = field.default_factory
        value = field.default if made is MISSING else made()
    if value in (PydanticUndefined, MISSING):
        return "needed"
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"`{value:.4g}`"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def field_notes(kind: type[Dataclass] | type[BaseModel]) -> dict[str, str]:
    """What stands under a field as its docstring, or behind it as a comment."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines, body = source.splitlines(), ast.parse(source).body[0].body  # type: ignore[attr-defined]
    notes: dict[str, str] = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        comment = lines[(node.end_lineno or 1) - 1][node.end_col_offset :].partition("# ")[2]
        value = getattr(after, "value", None) if isinstance(after, ast.Expr) else None
        text = value.value if isinstance(value, ast.Constant) else comment
        notes[node.target.id] = " ".join(str(text).split())
    return notes


# ---- The keys of a step, and the public names


def steps() -> Iterator[str]:
    """Every key that a row can have."""
    yield "# Keys of `steps.jsonl`\n"
    yield "A run writes one row per step. In loggers the keys begin with `crt/`. A row has only the"
    yield "keys that it can know. [The metrics](../concepts/metrics.md) are explained apart.\n"
    yield from table(("key", "meaning"), ((f"`{k}`", v) for k, v in STEP_KEYS.items()))
    yield "\nTRL's users know some of them by other names: `tokens` is `completions/mean_length`,"
    yield "`truncated` is `completions/clipped_ratio`. `zero_advantage_groups` is"
    yield "`frac_reward_zero_std` for a reward of correctness alone. `generated_tokens` is what a"
    yield "step adds to `num_tokens` without the prompts."


def python() -> Iterator[str]:
    """Every public name, by module."""
    yield "# Python\n"
    yield "These names are public: `import crt`, then `crt.NAME`. Each loads when it is first used,"
    yield "so that `import crt` is quick. None but `CRTTrainer` needs torch."
    for module, names in crt._NAMES_IN.items():
        yield f"\n## {module}\n"
        values = {n: getattr(importlib.import_module(f"crt.{module}"), n) for n in names.split()}
        yield from table(
            ("name", "what it is"),
            ((f"`{n}`", first_sentence(v) if callable(v) else v) for n, v in values.items()),
        )
        for name in names.split():
            yield f"\n::: crt.{module}.{name}"


def first_sentence(value: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())


def paragraphs(value: Any) -> str:
    """A docstring; its lines are as long as they are in the code."""
    return (inspect.getdoc(value) or "").strip()


def table(head: tuple[str, ...], rows: Any) -> Iterator[str]:
    """A table in Markdown; a bar inside a cell is escaped."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


if __name__ == "__main__":
    main()
