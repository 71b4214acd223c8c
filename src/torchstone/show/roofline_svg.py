"""The roofline as a stand-alone SVG."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torchstone.show.axis import LogAxis, format_si, format_tick
from torchstone.show.roofline_frame import ends, frame, roof_label, when
from torchstone.show.svg import Svg, spread_labels
from torchstone.show.text import shorten, wrap
from torchstone.show.units import format_seconds

if TYPE_CHECKING:
    from torchstone.explain import Point, Roof, Roofline

WIDTH = 960
LEFT, RIGHT, TOP, PLOT_HEIGHT = 76, 300, 78, 400
LINE = 16
LONGEST_NAME = 34
_WORDS_WIDTH = 130
_ALONG, _BESIDE = 14.0, 6.0
_LEVEL_COLOURS = {"L1": "purple", "L2": "teal", "L3": "green", "DRAM": "blue"}


class _Place:
    """From values to pixels."""

    def __init__(self, across: LogAxis, up: LogAxis) -> None:
        self.across, self.up = across, up
        self.left, self.right = float(LEFT), float(WIDTH - RIGHT)
        self.top, self.bottom = float(TOP), float(TOP + PLOT_HEIGHT)

    def x(self, intensity: float) -> float:
        return self.left + self.across.share(intensity) * (self.right - self.left)

    def y(self, rate: float) -> float:
        return self.bottom - self.up.share(rate) * (self.bottom - self.top)

    def at(self, intensity: float, rate: float) -> tuple[float, float]:
        return self.x(intensity), self.y(rate)


def roofline_svg(found: Roofline) -> str:
    """The file's text."""
    words = _words(found)
    height = TOP + PLOT_HEIGHT + 62 + LINE * len(words)
    title = f"Roofline of {found.target or found.arm}"
    svg = Svg(WIDTH, height, title, found.sentence)
    place = _Place(*frame(found))
    svg.text((LEFT, 28), shorten(title, 90), size=17, bold=True)
    svg.text((LEFT, 48), _subtitle(found), "soft", 12)
    _grid(svg, place)
    for roof in found.roofs:
        _roof(svg, found, roof, place)
    _points(svg, found, place)
    for number, line in enumerate(words):
        colour = "ink" if number < len(_sentence(found)) else "soft"
        svg.text((LEFT, TOP + PLOT_HEIGHT + 62 + LINE * number), line, colour, 12)
    return svg.render()


def _subtitle(found: Roofline) -> str:
    threads = f"{found.threads} thread{'' if found.threads == 1 else 's'}" if found.threads else ""
    said = [found.arm, found.dtype, found.device, threads, f"bound: {found.bound or 'not known'}"]
    return shorten(" · ".join(part for part in said if part), 110)


def _sentence(found: Roofline) -> list[str]:
    return wrap(found.sentence, _WORDS_WIDTH)


def _words(found: Roofline) -> list[str]:
    lines = _sentence(found)
    for note in (f"roofs measured {when(found)}", *found.notes):
        lines += wrap(note, _WORDS_WIDTH)
    return lines


def _grid(svg: Svg, place: _Place) -> None:
    for tick in place.across.ticks():
        x = place.x(tick)
        svg.line((x, place.top), (x, place.bottom), "grid")
        svg.text((x, place.bottom + 17), format_tick(tick), "soft", 11, "middle")
    for tick in place.up.ticks():
        y = place.y(tick)
        svg.line((place.left, y), (place.right, y), "grid")
        svg.text((place.left - 8, y + 4), format_tick(tick), "soft", 11, "end")
    svg.line((place.left, place.bottom), (place.right, place.bottom), "soft")
    svg.line((place.left, place.top), (place.left, place.bottom), "soft")
    middle = (place.left + place.right) / 2
    svg.text((middle, place.bottom + 36), "FLOP per byte", "soft", 12, "middle")
    centre = (place.top + place.bottom) / 2
    svg.text((20, centre), "FLOP per second", "soft", 12, "middle", turn=-90)


def _roof(svg: Svg, found: Roofline, roof: Roof, place: _Place) -> None:
    first, last = ends(found, roof, place.across, place.up)
    start, end = place.at(*first), place.at(*last)
    colour = "ink" if roof.kind == "compute" else _LEVEL_COLOURS.get(roof.name, "blue")
    svg.line(start, end, colour, 2.6 if roof.nearer else 1.4)
    label = roof_label(roof)
    if roof.kind == "compute":
        svg.text((end[0] - 4, end[1] - 7), label, colour, 11, "end", bold=roof.nearer)
        return
    turn = math.degrees(math.atan2(end[1] - start[1], end[0] - start[0]))
    length = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    right, down = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    # A little along the line, and beside it on its upper side.
    x = start[0] + _ALONG * right + _BESIDE * down
    y = start[1] + _ALONG * down - _BESIDE * right
    svg.text((x, y), label, colour, 11, turn=turn, bold=roof.nearer)


def _points(svg: Svg, found: Roofline, place: _Place) -> None:
    """The points, and their legend on the right: numbers tie the two together."""
    numbered = list(enumerate(found.points, start=1))
    for number, point in reversed(numbered):
        if point.rate is None or point.intensity is None:
            continue
        step = point.kind == "step"
        x, y = place.at(point.intensity, point.rate)
        svg.circle((x, y), 9 if step else 7.5, "main" if step else "soft", hollow=not step)
        colour = "paper" if step else "ink"
        svg.text((x, y + 3.8), str(number), colour, 11, "middle", bold=True)
    gap = 2.0 * LINE + 6
    wanted = [place.top + 12 + gap * index for index in range(len(numbered))]
    rows = spread_labels(wanted, gap, place.top + 12, place.bottom)
    for (number, point), y in zip(numbered, rows, strict=True):
        step = point.kind == "step"
        mark = str(number) if point.rate is not None else "–"
        left = place.right + 24
        svg.text((left, y), mark, "main" if step else "ink", 12, bold=True)
        svg.text((left + 20, y), shorten(point.name, LONGEST_NAME), "ink", 12, bold=step)
        svg.text((left + 20, y + LINE - 1), _figures(point), "soft", 11)


def _figures(point: Point) -> str:
    about = "~" if point.estimated else ""
    said = [("~" if point.kind == "op" else "") + format_seconds(point.seconds, 3)]
    if point.rate is not None:
        said.append(about + format_si(point.rate, "FLOP/s"))
    if point.intensity is not None:
        said.append(f"{format_si(point.intensity)} FLOP/B")
    elif point.bandwidth is not None:
        said.append(about + format_si(point.bandwidth, "B/s"))
    return " · ".join(said)
