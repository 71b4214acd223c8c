"""Tracebacks of an arm without the frames that are ours: a user looks for the line of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable

PAYLOAD = "payload"
"""The folder that travels to a worker; what is below it in a traceback is this package."""
_FRAME = re.compile(r'\s*File "([^"]*)"')
_EXTENSIONS = "Extension modules: "
"""How a fatal error's list of every compiled module begins."""


def without_ours(text: str) -> str:
    """The text without our frames and the import system's, each with the lines of its source."""
    return "\n".join(_kept(text.splitlines()))


def _kept(lines: Iterable[str]) -> Iterable[str]:
    ours = False
    for line in lines:
        found = _FRAME.match(line)
        if found:
            ours = _is_ours(found[1])
        elif not line.startswith("    "):
            ours = False
        if not ours and not line.startswith(_EXTENSIONS):
            yield line


def _is_ours(file: str) -> bool:
    inside = f"/{PAYLOAD}/torchstone/" in file or file.endswith(f"/{PAYLOAD}/worker.py")
    return inside or file.startswith("<frozen ")
