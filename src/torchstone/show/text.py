"""Text from outside made safe, and text fitted to a number of terminal cells.

Names, messages and stderr come from other people's code. Nothing of theirs reaches the terminal
that could move the cursor, change colours or turn the reading direction: such characters are
shown as escapes.
"""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories without a picture: controls, bidi and zero-width marks, surrogates."""

MAX_ROWS = 12
"""A wrapped paragraph is cut after so many rows: evidence, not a log file."""


def sanitise(text: str, *, ascii_only: bool = False) -> str:
    """One line with every character that has no picture shown as its escape (`\\x1b`, `\\n`)."""
    if text.isprintable() and (text.isascii() or not ascii_only):  # no category of `_HIDDEN` is
        return text
    return "".join(_shown(char, ascii_only) for char in text)


def _shown(char: str, ascii_only: bool) -> str:
    if char.isascii():
        return char if char.isprintable() else _escape(char)
    if ascii_only or unicodedata.category(char) in _HIDDEN:
        return _escape(char)
    return char


def _escape(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    code = ord(char)
    wide = f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"
    return named or (f"\\x{code:02x}" if code <= 0xFF else wide)


def _cell(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cells(text: str) -> int:
    """How many terminal columns a sanitised text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled with blanks to `width` cells, on the left when it stands on the right."""
    fill = " " * max(0, width - cells(text))
    return fill + text if right else text + fill


def _take(text: str, width: int) -> str:
    """The longest beginning of `text` within `width` cells."""
    taken = 0
    for index, char in enumerate(text):
        taken += _cell(char)
        if taken > width:
            return text[:index]
    return text


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` in at most `width` cells; the middle goes, because names differ at their ends."""
    if cells(text) <= width:
        return text
    room = width - len(ellipsis)
    if room < 2:
        return _take(text, width)
    head = _take(text, (room + 1) // 2)
    tail = _take(text[::-1], room - cells(head))[::-1]
    return head + ellipsis + tail


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` in at most `width` cells; the end goes, because sentences begin with what matters."""
    if cells(text) <= width:
        return text
    return _take(text, max(0, width - len(ellipsis))).rstrip() + _take(ellipsis, max(0, width))


def wrap(text: str, width: int, *, rows: int = MAX_ROWS, ellipsis: str = "…") -> list[str]:
    """Rows of at most `width` cells; words longer than a row are broken; no more than `rows`."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and cells(line) + 1 + cells(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        while cells(word) > width and len(lines) <= rows:
            piece = _take(word, width) or word[0]
            lines.append(piece)
            word = word[len(piece) :]
        line = _take(word, width)
    if line or not lines:
        lines.append(line)
    if len(lines) > rows:
        last = _take(lines[rows - 1], width - len(ellipsis)) + ellipsis
        lines = [*lines[: rows - 1], last]
    return lines
