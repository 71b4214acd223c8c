"""The names of the series above a chart, each with its line and its shape."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.show.charts.looks import Look
from torchstone.show.svg import Svg, number, text_width
from torchstone.show.text import sanitise, shorten

SIZE = 12.0
ROW = 19.0
_LONGEST = 44
_SWATCH, _APART = 26.0, 16.0
_WIDER = 1.1
"""Names are in any font that the reader has: room for a wide one."""

Key = tuple[str, Look]
Placed = tuple[float, int, str, Key]


def lay_out(keys: Sequence[Key], left: float, right: float) -> list[Placed]:
    """Where each key begins, in which row, under which words; as many rows as they need."""
    found: list[Placed] = []
    x, row = left, 0
    for key in keys:
        words = shorten(sanitise(key[0]), _LONGEST)
        wide = _width(words)
        if x > left and x + wide > right:
            x, row = left, row + 1
        found.append((x, row, words, key))
        x += wide + _APART
    return found


def _width(words: str) -> float:
    return _SWATCH + 6 + _WIDER * text_width(words, SIZE)


def rows_of(placed: Sequence[Placed]) -> int:
    """How many rows there are."""
    return placed[-1][1] + 1 if placed else 0


def draw_keys(svg: Svg, placed: Sequence[Placed], top: float) -> None:
    """Line, shape and name of every series; scripts make switches of them."""
    with svg.group("chart-keys"):
        for x, row, words, (name, look) in placed:
            middle = top + row * ROW + ROW / 2
            with svg.group("chart-key", {"name": sanitise(name)}):
                svg.area((x - 4, middle - ROW / 2), (_width(words) + 8, ROW), name)
                across = f"M{number(x)} {number(middle)}h{number(_SWATCH)}"
                svg.path(across, stroke=look.colour, thick=1.8, dash=look.dash)
                svg.path(look.shape(x + _SWATCH / 2, middle, 3.6), fill=look.colour)
                svg.text((x + _SWATCH + 6, middle + 4), words, "ink", SIZE)
