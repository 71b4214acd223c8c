"""What may reach a terminal: text, and our own colours.

Names and messages come from databases, files, command lines and other people's errors. Reports make
each of them harmless where it is put in (`show.table.sanitise`); this is the one place that all
text goes through, so that what is missed there does nothing either: no cursor is moved, no window
renamed, no reading direction turned.
"""

from __future__ import annotations

import re
import secrets
import sys
from functools import cache
from typing import Any, TextIO

_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")
_SECRET = f"\x1b{secrets.token_hex(8)}["
"""Nobody can put our colours into a name who does not know this."""


class Gate:
    """A terminal's stream. `trusted` is the stream itself, for progress, which moves the cursor."""

    def __init__(self, trusted: TextIO) -> None:
        self.trusted = trusted

    def write(self, text: str) -> int:
        """Write the text; characters without a picture become escapes (`\\x1b`)."""
        if not isinstance(text, str):
            raise TypeError(f"write() takes str, not {type(text).__name__}")
        self.trusted.write(text if _PLAIN.fullmatch(text) else harmless(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """All of them, through the gate."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trusted, name)


def harmless(text: str) -> str:
    """The text with our own colours, line ends and tabs, and nothing else that has no picture."""
    from torchstone.show.table import sanitise, unmarked

    parts = _ours().split(text)
    return "".join(unmarked(part) if i % 2 else sanitise(part) for i, part in enumerate(parts))


@cache
def _ours() -> re.Pattern[str]:
    from torchstone.show.table import COLOUR_CODES

    codes = "|".join(re.escape(code) for code in COLOUR_CODES)
    return re.compile(f"({re.escape(_SECRET)}(?:0|{codes})m|\n|\t)")


def screen() -> TextIO:
    """The terminal itself, for cursor movements of ours and for texts that are harmless."""
    found: TextIO = getattr(sys.stdout, "trusted", sys.stdout)
    return found


def guard_terminal() -> None:
    """From here on, all that this program writes to a terminal goes through the gate."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, Gate):
            from torchstone.show.table import mark_colours

            mark_colours(_SECRET)
            setattr(sys, name, Gate(stream))
