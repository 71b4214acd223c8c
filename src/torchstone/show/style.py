"""Colours and glyphs: what the terminal can show, decided once and handed down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchstone.show.text import sanitise

_ROLES = {
    "title": "1",
    "dim": "2",
    "good": "32",
    "bad": "31",
    "doubt": "33",
    "even": "36",
    "strip": "34",
    "warn": "33",
    "fail": "1;31",
    "note": "2",
}
"""A role's SGR code, from the eight colours that every terminal theme adapts."""


@dataclass(frozen=True)
class Glyphs:
    """The signs of a report; the ASCII set stands in where the encoding has no others."""

    bars: str
    empty: str
    floor: str
    dot: str
    plus_minus: str
    ellipsis: str
    arrow: str
    rule: str
    cross: str
    quote: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "·", "│", " · ", "±", "…", "→", "─", "✗", "│")
ASCII = Glyphs(".:-=+*#@", " ", "|", " - ", "+-", "...", "->", "-", "x", "|")


@dataclass(frozen=True)
class Style:
    """Paints roles when `color` is on and picks glyphs by `unicode`."""

    color: bool = False
    unicode: bool = True

    @property
    def glyphs(self) -> Glyphs:
        """The signs that can be shown."""
        return UNICODE if self.unicode else ASCII

    @property
    def ascii_only(self) -> bool:
        """True where nothing but ASCII may be written."""
        return not self.unicode

    def paint(self, text: str, role: str) -> str:
        """`text` in the colour of its role, or as it is."""
        code = _ROLES.get(role) if self.color else None
        return f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text

    def safe(self, text: str) -> str:
        """Text from outside, made harmless and encodable."""
        return sanitise(text, ascii_only=self.ascii_only)


def can_unicode(stream: Any) -> bool:
    """Whether everything in the Unicode set can be written to this stream."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    probe = "".join((UNICODE.bars, UNICODE.plus_minus, UNICODE.cross, UNICODE.arrow, "µ×–━╸"))
    try:
        probe.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
