"""The pages: their links lead somewhere, their blocks work, and the generated ones are fresh."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from crt.cli import VERBS, parser_for, parser_of_verb, words_of
from crt.recipes import load_recipe
from crt.run import STEP_KEYS
from tools import reference

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "recipes").rglob("*.md")),
]
LONGEST = 100
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
RUNS = "<!-- run -->"  # stands before a Python block that the tests run


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=page_id)


def prose(page: Path) -> str:
    """A page without its blocks."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path, *languages: str) -> list[str]:
    """The blocks in these languages, without the indentation of a list they stand in."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [re.sub(rf"^{indent}", "", body, flags=re.M) for indent, name, body in found
            if name in languages]  # fmt: skip


def anchors(page: Path) -> set[str]:
    """As GitHub and mkdocs make them of headings."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@every_page
def test_lines_can_be_read(page: Path) -> None:
    """Tables and rows of JSON may be wider, and a link's address does not count."""
    text = re.sub(r"^```json\n.*?^```$", lambda block: "\n" * block.group().count("\n"),
                  page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)  # fmt: skip
    for number, line in enumerate(text.splitlines(), 1):
        seen = re.sub(r"\]\([^)]*\)", "]", line)
        assert len(seen) <= LONGEST or line.lstrip().startswith(("|", "![")), f"{page}:{number}"


@every_page
def test_a_list_begins_after_an_empty_line(page: Path) -> None:
    """Otherwise the site shows it as text."""
    lines = prose(page).splitlines()
    for before, line in pairwise(lines):
        if re.match(r"[-*] |\d+\. ", line) and before.strip():
            assert re.match(r"[-*] |\d+\. |\s", before), f"no empty line before: {line}"


# ---- Commands


def commands(page: Path) -> Iterator[str]:
    """The `crt …` lines of the blocks, with what goes on in the next line."""
    for body in blocks(page, "", "console", "bash", "sh"):
        for line in body.replace("\\\n", " ").splitlines():
            if line.removeprefix("$ ").startswith("crt "):
                yield line.removeprefix("$ ")


@every_page
def test_commands_in_blocks_are_understood(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        verb = words[0] if words[0] in VERBS else None
        assert parser_for(verb).parse_args(words).verb == verb, line


@every_page
def test_commands_in_sentences_have_verbs_and_options_that_exist(page: Path) -> None:
    for line in INLINE.findall(prose(page)):
        words = line.split()
        if words[:1] != ["crt"] or len(words) == 1 or words[1].startswith(("-", "VERB", "…")):
            continue
        assert words[1] in VERBS, line
        known = words_of(parser_of_verb(words[1]))
        options = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
        assert set(options) <= {*known, "--help"}, line


@pytest.mark.parametrize(
    "file", sorted((ROOT / "recipes" / "cluster").glob("*.[sy]*")), ids=page_id
)
def test_commands_in_job_scripts_are_understood(file: Path) -> None:
    text = file.read_text().replace("\\\n", " ")
    lines = re.findall(r"^[^#\n]*?(crt train [^;&\n]+)", text, re.MULTILINE)
    assert lines
    for line in lines:
        words = shlex.split(line)
        assert parser_for(words[1]).parse_args(words[1:]).verb == "train", line


def test_extras_that_are_named_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    texts = [page.read_text() for page in [*PAGES, ROOT / "Dockerfile", ROOT / "Makefile"]]
    named = re.findall(r"(?:\.|crt-train)\[([a-z,]+)\]|EXTRAS=([a-z,]+)", "\n".join(texts))
    found = {name for pair in named for name in "".join(pair).split(",")}
    assert found and found <= set(extras)


# ---- Blocks of TOML, JSON and Python


def toml_blocks() -> list[tuple[str, str]]:
    found = [(page_id(page), body) for page in PAGES for body in blocks(page, "toml")]
    return [(page, body) for page, body in found if "project" not in tomllib.loads(body)]


@pytest.mark.parametrize(("page", "body"), toml_blocks())
def test_recipes_in_pages_load(page: str, body: str, tmp_path: Path) -> None:
    """A part of a recipe, on top of the pocket model's; it is written as if beside the methods."""
    (tmp_path / "methods").mkdir()
    (tmp_path / "pocket.toml").write_text((ROOT / "recipes" / "pocket.toml").read_text())
    data = tomllib.loads(body)
    whole = "base" in data or {"name", "model", "data", "method"} <= set(data)
    head = "" if whole else "".join(
        f'{key} = "{value}"\n'
        for key, value in {"base": "pocket", "name": "part"}.items()
        if key not in data
    )  # fmt: skip
    recipe = tmp_path / "methods" / "recipe.toml"
    recipe.write_text(head + body)
    assert load_recipe(recipe).name == data.get("name", "part")


@every_page
def test_json_in_pages_is_json(page: Path) -> None:
    for body in blocks(page, "json"):
        assert [json.loads(line) for line in body.splitlines()]


@every_page
def test_python_in_pages_compiles(page: Path) -> None:
    for body in blocks(page, "python"):
        compile(body, page_id(page), "exec", flags=0x2000)  # await at the top is allowed


def running() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for part in page.read_text(encoding="utf-8").split(f"\n{RUNS}\n")[1:]:
            block = BLOCK.match(part.lstrip("\n"))
            assert block and block.group(2) == "python", f"{page}: no Python after {RUNS}"
            found.append((page_id(page), block.group(3)))
    return found


@pytest.mark.parametrize(("page", "body"), running())
def test_python_in_pages_runs(page: str, body: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(body, page, "exec"), {"__name__": "page"})


def test_some_python_runs() -> None:
    assert len(running()) >= 3


# ---- The site


def test_generated_pages_are_those_of_the_code() -> None:
    for name, text in reference.pages().items():
        file = ROOT / "docs" / "reference" / name
        assert file.read_text(encoding="utf-8") == text, f"{name}: python -m tools.reference"


def test_every_key_and_verb_is_explained() -> None:
    pages = reference.pages()
    for name in ("crt.md", "recipe.md", "steps.md"):
        empty = re.findall(r"^\| `.*\| +\|$", pages[name], re.MULTILINE)
        assert not empty, f"{name}: without a meaning: {empty}"
    assert all(f"## crt {verb}\n" in pages["crt.md"] for verb in VERBS)


def test_the_keys_of_a_row_are_those_that_are_written() -> None:
    sources = [file for file in (ROOT / "src" / "crt").rglob("*.py") if file.name != "run.py"]
    written = "\n".join(file.read_text() for file in sources)
    assert [key for key in STEP_KEYS if f'"{key}"' not in written] == []


def test_the_navigation_names_pages_that_are_there() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert site["theme"]["font"] is False  # nothing from the network when a page is read
    for group in site["nav"]:
        for title, pages in group.items():
            folder = title.lower().replace(" ", "-")
            assert title == "Home" or (ROOT / "docs" / folder).is_dir()
            for page in pages if isinstance(pages, list) else []:
                assert (ROOT / "docs" / page).is_file(), page
                assert page.startswith(f"{folder}/"), page
