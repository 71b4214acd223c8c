"""The pages, and what in them can be run.

In a ```console block a line that starts with `$ ` is a command, and the lines below it are what it
prints. A line `...` stands for lines left out. A ```python block whose first line is `# name.py`
is a file of that name. `<!-- not run -->` above a block exempts it. A page that compiles with
inductor is a slow test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = "<!-- not run -->"
SLOW = ("inductor", "torchstone run")

_BLOCK = re.compile(r"(?P<above>[^\n]*)\n```(?P<kind>console|python)\n(?P<body>.*?)\n```", re.S)
_FILE = re.compile(r"# (\w+\.py)\n")
_WORD = re.compile(r"[A-Za-z][A-Za-z_()-]{3,}")
VARIES = frozenset({"faster", "slower", "same", "cannot", "tell", "nsec", "usec", "msec"})
"""Verdicts and units: what they are depends on the machine."""
_CHECK = ("!", "-", "?")


@dataclass(frozen=True)
class Command:
    """A command line and the output shown below it."""

    line: str
    shown: tuple[str, ...]

    def words(self) -> list[str]:
        """The words that the real output must have."""
        found: list[str] = []
        in_check = False
        for line in self.shown:
            text = line.strip()
            # What the checks say, the machine's name and the last line depend on the machine.
            in_check = text.startswith(_CHECK) or (in_check and line.startswith("    "))
            if in_check or text == "..." or " · Linux" in text or " samples · " in text:
                continue
            stripped = (part.strip(".,:;·'\"`") for part in text.split())
            found += [part for part in stripped if _WORD.fullmatch(part) and part not in VARIES]
        return found


@dataclass(frozen=True)
class Page:
    """What one page asks to be run, in order; the files it has are there beforehand."""

    path: Path
    commands: tuple[Command, ...]
    files: dict[str, str]
    slow: bool


def read_page(path: Path) -> Page:
    """The commands and files of a page."""
    text = path.read_text(encoding="utf-8")
    commands: list[Command] = []
    files: dict[str, str] = {}
    for block in _BLOCK.finditer("\n" + text):
        body = block["body"] + "\n"
        if block["kind"] == "python":
            named = _FILE.match(body)
            if named:
                files[named[1]] = body
        elif block["above"].strip() != NOT_RUN:
            commands += read_commands(body)
    slow = any(word in command.line for command in commands for word in SLOW)
    return Page(path, tuple(commands), files, slow)


def read_commands(body: str) -> list[Command]:
    """The commands of one block, each with what it prints; a backslash continues a line."""
    lines = body.replace("\\\n", " ").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    ends = [*starts[1:], len(lines)]
    return [
        Command(lines[start][2:], tuple(lines[start + 1 : end]))
        for start, end in zip(starts, ends, strict=False)
    ]


def all_pages() -> list[Page]:
    """Every page of the documentation, and the README files."""
    places = [ROOT / "README.md", ROOT / "examples" / "README.md"]
    return [read_page(path) for path in [*places, *sorted((ROOT / "docs").rglob("*.md"))]]
