"""Sizes, docstrings and links, checked on the source itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.structure.places import ROOT, packages, sources

# The design asks for at most 700 lines a file and 60 a function.
MOST_LINES_IN_FILE = 700
MOST_LINES_IN_FUNCTION = 60
# More than this nobody reads; `--help` and the schemas say the rest.
MOST_WORDS_IN_DOCS = 30_000

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def long_files(paths: list[Path]) -> list[str]:
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    return [f"{relative(p)}: {n} lines" for p, n in counts.items() if n > MOST_LINES_IN_FILE]


def long_functions(source: str, where: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_IN_FUNCTION:
                found.append(f"{where}:{node.lineno} {node.name}: {lines} lines")
    return found


def broken_links(page: Path) -> list[str]:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    local = [t.split("#")[0] for t in targets if "://" not in t and not t.startswith("#")]
    return [f"{relative(page)}: {t}" for t in local if not (page.parent / t).exists()]


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_each_package_says_what_it_holds(package: Path) -> None:
    init = package / "__init__.py"
    assert init.exists(), f"{relative(package)} has no __init__.py"
    docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    lines = [line for line in docstring.splitlines() if line.strip()]
    assert len(lines) >= 2, f"{relative(init)} must say what it holds and may touch"


def test_no_file_is_too_long() -> None:
    assert long_files(sources()) == []


def test_no_function_is_too_long() -> None:
    offenders = [
        offender
        for path in sources()
        for offender in long_functions(path.read_text(encoding="utf-8"), relative(path))
    ]
    assert offenders == []


def test_a_long_function_would_be_found() -> None:
    body = "    x = 1\n" * MOST_LINES_IN_FUNCTION
    assert long_functions(f"def f():\n{body}", "here") == [
        f"here:1 f: {MOST_LINES_IN_FUNCTION + 1} lines"
    ]


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=relative
)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_every_page_is_reached_from_the_index() -> None:
    docs = ROOT / "docs"
    seen: set[Path] = set()
    waiting = [docs / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target:
                waiting.append((page.parent / target.split("#")[0]).resolve())
    assert sorted(relative(page) for page in set(docs.rglob("*.md")) - seen) == []


def test_the_documentation_is_short() -> None:
    """Counted as `cat README.md docs/*.md docs/*/*.md | wc -w` counts."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    assert words <= MOST_WORDS_IN_DOCS
