"""Frames from the names that tools give to places in code."""

from __future__ import annotations

from typing import Any

from torchstone.records import Frame, UsageError

MAX_FRAMES = 500_000
"""Distinct places. A whole test run of a large project has some 30,000 functions."""
MAX_NAME = 2_000
"""Characters; templates of C++ kernels come near it."""
MAX_LINE = 2**31 - 1
UNNAMED = "(unnamed)"

_GC = ("Python GC", "<GC>", "garbage collection")
_NATIVE = ("<built-in", "<method", "<slot wrapper", "{built-in", "{method", "{slot wrapper")
_NATIVE_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".pyx", ".rs", ".S")
_AT = " at 0x"


def clean(text: str) -> str:
    """A name that can be printed and stored: what cannot be is escaped, what is endless is cut."""
    if len(text) > MAX_NAME:
        text = text[: MAX_NAME - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def line_of(value: Any) -> int:
    """A line number from anything; 0 where it is none."""
    return value if type(value) is int and 0 <= value <= MAX_LINE else 0


def guess_kind(name: str, file: str = "") -> str:
    """The kind of a frame that is known by its name alone."""
    if name in _GC:
        return "gc"
    if name.startswith("aten::"):
        return "op"
    if name.startswith(_NATIVE) or file.endswith((".so", *_NATIVE_SOURCES)) or ".so." in file:
        return "native"
    return "python"


def without_address(name: str) -> str:
    """The name of a built-in method without the address of its object, which no run repeats."""
    at = name.find(_AT)
    if at < 0 or not name.startswith(_NATIVE):
        return name
    end = at + len(_AT)
    while end < len(name) and name[end] in "0123456789abcdefABCDEF":
        end += 1
    return name[:at] + name[end:]


def split_place(text: str) -> tuple[str, str, int]:
    """Name, file and line from `name (file:line)` or `file(line): name`; else the text alone."""
    if text.endswith(")"):
        name, found, place = text[:-1].rpartition(" (")
        if found and name:
            file, colon, line = place.rpartition(":")
            if colon and file and _is_number(line):
                return name, file, int(line)
            if " " not in place and ("." in place or "/" in place):
                return name, place, 0
        return text, "", 0
    place, found, name = text.partition("): ")
    file, bracket, line = place.rpartition("(")
    if found and name and bracket and file and _is_number(line):
        return name, file, int(line)
    return text, "", 0


def _is_number(text: str) -> bool:
    return len(text) < 10 and text.isascii() and text.isdigit()


class FrameTable:
    """Frames by what they are, each once; an index for each."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, str, int, str], int] = {}

    def add(self, name: str, file: str = "", line: int = 0, kind: str = "python") -> int:
        """The index of that frame."""
        key = (clean(name) or UNNAMED, clean(file), line, kind)
        found = self._index.setdefault(key, len(self._index))
        if found >= MAX_FRAMES:
            raise UsageError(
                f"The profile names more than {MAX_FRAMES:,} different places.",
                "Record less: fewer steps, or a shorter time.",
            )
        return found

    def add_place(self, text: str) -> int:
        """The index of the frame that a text such as `name (file:line)` speaks of."""
        name, file, line = split_place(text)
        kind = guess_kind(name, file)
        if kind == "python" and not line and "/" in file and not file.endswith(".py"):
            kind = "native"  # a symbol of a program: `main (/usr/bin/python3)`
        return self.add(name, file, line_of(line), kind)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All of them, by index."""
        return tuple(Frame(*key) for key in self._index)
