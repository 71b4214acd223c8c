"""Source files, as far as causes are named from them: the text of a line, the loop around it."""

from __future__ import annotations

import ast
import linecache
import os
from dataclasses import dataclass, field

MOST_BYTES = 4_000_000
"""Of a file that is parsed."""
LONGEST = 100
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Loop:
    """The lines of a loop, its head included."""

    file: str
    first: int
    last: int


@dataclass
class Sources:
    """Files that were parsed, kept for the next question."""

    _loops: dict[str, list[Loop] | None] = field(default_factory=dict)

    def text(self, file: str, line: int) -> str:
        """The line without its indent."""
        found = linecache.getline(file, line).strip()
        return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"

    def loops(self, file: str, line: int) -> list[Loop]:
        """Those around a line, the innermost first."""
        around = [one for one in self._of(file) or () if one.first <= line <= one.last]
        return sorted(around, key=lambda one: one.last - one.first)

    def _of(self, file: str) -> list[Loop] | None:
        if file not in self._loops:
            self._loops[file] = _parsed(file)
        return self._loops[file]


def _parsed(file: str) -> list[Loop] | None:
    """None where there is no source, or none that this Python reads."""
    try:
        if os.path.getsize(file) > MOST_BYTES:
            return None
        with open(file, "rb") as opened:
            tree = ast.parse(opened.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    found = []
    for node in ast.walk(tree):
        if isinstance(node, _LOOPS):
            found.append(Loop(file, node.lineno, node.body[-1].end_lineno or node.lineno))
        elif isinstance(node, _COMPREHENSIONS) or _maps(node):
            assert isinstance(node, ast.expr)
            found.append(Loop(file, node.lineno, node.end_lineno or node.lineno))
    return found


def _maps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "map"
