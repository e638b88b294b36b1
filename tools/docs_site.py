"""What mkdocs calls while it builds the site: the home page, the code, and no network.

The pages are written to be read in the repository, so they link to code and to pages outside
`docs/`. Here each of those becomes a page of the site, and README.md is its home.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

REPOSITORY = Path(__file__).parents[1]
OUTSIDE = "source"  # the folder of the site with what lies outside docs/
LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(```.*?```)", re.DOTALL)
REMOTE = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^\s>]*")


def on_config(config: Any) -> Any:
    """A page that mkdocs.yml does not name comes last in the group of its folder."""
    docs = Path(config.docs_dir)
    for group in config.nav:
        for title, pages in group.items():
            if not isinstance(pages, list):
                continue
            folder = docs / title.lower().replace(" ", "-")
            named = {page if isinstance(page, str) else next(iter(page.values())) for page in pages}
            found = (file.relative_to(docs).as_posix() for file in sorted(folder.rglob("*.md")))
            pages += [page for page in found if page not in named]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the home page, and a page for everything outside docs/ that a page links to."""
    texts = {page: page_text(page) for page in home_and(files)}
    files.append(File.generated(config, "index.md", content=texts["index.md"]))
    waiting = sorted({target for page in texts for target in targets(page)})
    seen = set(waiting)
    while waiting:
        target = waiting.pop()
        files.append(File.generated(config, site_path(target), content=page_of(target)))
        found = set(targets(site_path(target))) - seen if target.endswith(".md") else set()
        seen |= found
        waiting += sorted(found)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ lead to the pages made of them."""
    return with_links(markdown, page.file.src_uri)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """A page that would load something from the network when it is read is refused."""
    if remote := REMOTE.search(output):
        raise PluginError(f"{page.file.src_uri} loads from the network: {remote.group()}")
    return output


# ---- Where a page of the site lies in the repository, and back


def home_and(files: Any) -> list[str]:
    return ["index.md", *(f.src_uri for f in files if f.src_uri.endswith(".md"))]


def repository_path(page: str) -> str:
    """The file that a page of the site is made from."""
    if page == "index.md":
        return "README.md"
    inside = page.removeprefix(f"{OUTSIDE}/")
    return inside if inside != page else f"docs/{page}"


def site_path(target: str) -> str:
    """The page of the site for a file or folder of the repository."""
    if target == "README.md":
        return "index.md"
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if (REPOSITORY / target).is_dir():
        return f"{OUTSIDE}/{target}/{'README' if has_readme(target) else 'index'}.md"
    return f"{OUTSIDE}/{target}" + ("" if target.endswith(".md") else ".md")


def has_readme(folder: str) -> bool:
    return (REPOSITORY / folder / "README.md").is_file()


def page_text(page: str) -> str:
    return (REPOSITORY / repository_path(page)).read_text(encoding="utf-8")


def links(page: str, text: str) -> list[tuple[str, str]]:
    """(as it is written, what it names in the repository) of every link to a file."""
    folder = posixpath.dirname(repository_path(page))
    prose = FENCE.sub("", text)
    written = [match.group(2) for match in LINK.finditer(prose)]
    return [(link, posixpath.normpath(posixpath.join(folder, link))) for link in written]


def targets(page: str) -> list[str]:
    """What a page links to that is no page of docs/."""
    named = (target for _, target in links(page, page_text(page)))
    outside = (t for t in named if not t.startswith("docs/") and t != "README.md")
    with_pages = (f"{t}/README.md" if has_readme(t) else t for t in outside)
    return [target for target in with_pages if (REPOSITORY / target).exists()]


def with_links(text: str, page: str) -> str:
    """The same text with links as the site has them."""
    where = dict(links(page, text))
    folder = posixpath.dirname(page)

    def moved(match: re.Match[str]) -> str:
        target = where.get(match.group(2))
        if target is None or not (REPOSITORY / target).exists():
            return match.group()
        there = posixpath.relpath(site_path(target), folder or ".")
        return f"{match.group(1)}{there}{match.group(3)}"

    parts = FENCE.split(text)
    return "".join(p if p.startswith("```") else LINK.sub(moved, p) for p in parts)


# ---- Pages of what is no page


def page_of(target: str) -> str:
    """A page as it is, a file with its lines, a folder with its files."""
    path = REPOSITORY / target
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if not p.name.startswith(("_", ".")))
        return f"# `{target}`\n\n" + "".join(f"- `{name}`\n" for name in inside)
    text = path.read_text(encoding="utf-8")
    if target.endswith(".md"):
        return text
    language = {".py": "python", ".toml": "toml", ".sh": "bash", ".yaml": "yaml"}.get(path.suffix)
    return f"# `{target}`\n\n````{language or 'text'}\n{text}\n````\n"
