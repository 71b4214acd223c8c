"""A small maker of SVG: no scripts, nothing fetched, readable in light and in dark.

Text is escaped and stripped of characters without a picture. Colours are roles, defined once for
both schemes. A stand-alone picture carries its colours; one that is embedded in a page takes them
from the page's style sheet (`assets/charts/charts.css`), because pages allow no inline style.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from html import escape
from typing import Literal

from torchstone.show.table import sanitise

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
COLOURS = {
    "paper": ("#ffffff", "#14171c"),
    "ink": ("#1b1f24", "#e6e9ee"),
    "soft": ("#5f6873", "#9aa4b1"),
    "grid": ("#e4e7eb", "#2b313a"),
    "main": ("#c2410c", "#fb923c"),
    "blue": ("#1d4ed8", "#7aa7ff"),
    "green": ("#15803d", "#4ade80"),
    "purple": ("#7e22ce", "#d8a4ff"),
    "teal": ("#0f766e", "#5eead4"),
    "pink": ("#d6409f", "#f472b6"),
    "gold": ("#a87600", "#e3c04b"),
    "slate": ("#5b6675", "#a3adba"),
    "good": ("#0a7d5a", "#4fd1a5"),
    "bad": ("#c2301c", "#ff8a75"),
}
"""Each role in light and in dark."""
# No scheme but http(s), no other host without one, nothing that browsers drop before they read it.
_ABSOLUTE = re.compile(r"https?://", re.IGNORECASE)
_HREF = re.compile(
    r"(?:https?://|(?!//)[^:/?#\s\\\x00-\x20]*(?:[/?#]|$))[^\s\\\x00-\x20]*", re.IGNORECASE
)


@dataclass
class Svg:
    """Shapes in the order they are drawn. Coordinates are pixels from the upper left."""

    width: int
    height: int
    title: str
    description: str = ""
    embedded: bool = False
    """A part of a page: without styles and paper of its own, its title a label."""
    kind: str = ""
    """Class of the whole, and what scripts know it by; a word of ours."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Attributes `data-…` of the whole."""
    _parts: list[str] = field(default_factory=list)

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str = "ink",
        thick: float = 1.0,
        dashed: bool = False,
    ) -> None:
        """A straight line."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<line x1="{number(start[0])}" y1="{number(start[1])}" '
            f'x2="{number(end[0])}" y2="{number(end[1])}" '
            f'class="s-{_role(colour)}" stroke-width="{number(thick)}"{dash}/>'
        )

    def text(
        self,
        place: tuple[float, float],
        text: str,
        colour: str = "ink",
        size: float = 12,
        anchor: Literal["start", "middle", "end"] = "start",
        bold: bool = False,
        turn: float = 0.0,
    ) -> None:
        """A line of text; `turn` is in degrees, clockwise, about its place."""
        x, y = number(place[0]), number(place[1])
        turned = f' transform="rotate({number(turn)} {x} {y})"' if turn else ""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x}" y="{y}" class="f-{_role(colour)}" font-size="{number(size)}" '
            f'text-anchor="{anchor}"{weight}{turned}>{clean(text)}</text>'
        )

    def path(
        self,
        path: str,
        *,
        fill: str = "",
        stroke: str = "",
        thick: float = 1.0,
        opacity: float = 1.0,
        dash: str = "",
        title: str = "",
    ) -> None:
        """A path of our own making, filled, drawn or both; `title` is told by pointing at it."""
        kinds = [f"f-{_role(fill)}"] if fill else []
        kinds += [f"s-{_role(stroke)}"] if stroke else []
        more = "" if fill else ' fill="none"'
        if stroke:
            more += (
                f' stroke-width="{number(thick)}" stroke-linejoin="round" stroke-linecap="round"'
            )
        more += f' stroke-dasharray="{dash}"' if dash else ""
        more += f' opacity="{number(opacity)}"' if opacity != 1 else ""
        end = f"><title>{clean(title)}</title></path>" if title else "/>"
        self._parts.append(f'<path class="{" ".join(kinds)}" d="{path}"{more}{end}')

    def area(self, place: tuple[float, float], size: tuple[float, float], title: str) -> None:
        """An unseen rectangle that tells something when it is pointed at."""
        self._parts.append(
            f'<rect x="{number(place[0])}" y="{number(place[1])}" width="{number(size[0])}" '
            f'height="{number(size[1])}" fill-opacity="0"><title>{clean(title)}</title></rect>'
        )

    @contextmanager
    def group(self, kind: str = "", data: Mapping[str, str] | None = None) -> Iterator[None]:
        """What is drawn within belongs together. `kind` is a word of ours, the data anybody's."""
        named = f' class="{kind}"' if kind else ""
        self._parts.append(f"<g{named}{_data(data or {})}>")
        yield
        self._parts.append("</g>")

    @contextmanager
    def link(self, href: str) -> Iterator[None]:
        """What is drawn within leads somewhere; nowhere without a usable address."""
        safe = safe_href(href, absolute=not self.embedded)
        self._parts.append(f'<a href="{escape(safe, quote=True)}">' if safe else "<g>")
        yield
        self._parts.append("</a>" if safe else "</g>")

    def render(self) -> str:
        """The whole file, or the whole element."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}"'
        )
        said = f"<desc>{clean(self.description)}</desc>" if self.description else ""
        if self.embedded:
            named = f"chart chart-{self.kind}" if self.kind else "chart"
            told = clean(self.title or self.description)
            head += f' class="{named}" role="group" aria-label="{told}"{_data(self.data)}>'
            return "\n".join(part for part in (head, said, *self._parts, "</svg>") if part) + "\n"
        head += f' role="img" font-family="{FONT}">'
        said = f"<title>{clean(self.title)}</title>{said}"
        paper = f'<rect width="{self.width}" height="{self.height}" class="f-paper"/>'
        return "\n".join([head, said, _styles(), paper, *self._parts, "</svg>"]) + "\n"


def safe_href(href: str, *, absolute: bool = False) -> str:
    """An address that only leads somewhere; empty where it could do more. With `absolute`, only
    one that means the same in any place."""
    if not _HREF.fullmatch(href):
        return ""
    return "" if absolute and not _ABSOLUTE.match(href) else href


def clean(text: str) -> str:
    """Text from outside as SVG text."""
    return escape(sanitise(text), quote=True)


def text_width(text: str, size: float) -> float:
    """About how wide a text is drawn: 0.56 of its size a character, as of common sans fonts."""
    return 0.56 * size * len(text)


def _styles() -> str:
    light, dark = (
        "".join(
            f".f-{name}{{fill:{both[scheme]}}}.s-{name}{{stroke:{both[scheme]}}}"
            for name, both in COLOURS.items()
        )
        for scheme in (0, 1)
    )
    return f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"


def _data(data: Mapping[str, str]) -> str:
    """Between single quotes, because what stands there is mostly JSON."""
    quoted = {name: escape(text, quote=False).replace("'", "&#39;") for name, text in data.items()}
    return "".join(f" data-{name}='{text}'" for name, text in quoted.items())


def _role(colour: str) -> str:
    if colour not in COLOURS:
        raise ValueError(f"there is no colour {colour!r}")
    return colour


def number(value: float) -> str:
    """A coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


# Shapes about a place, as paths.


Maker = Callable[[float, float, float], str]


def _polygon(*corners: tuple[float, float]) -> Maker:
    """From the first corner on by steps, which are the same wherever it stands."""
    (right, down), *others = corners

    @cache
    def steps(r: float) -> str:
        made, last = "", corners[0]
        for corner in others:
            made += f"l{number((corner[0] - last[0]) * r)} {number((corner[1] - last[1]) * r)}"
            last = corner
        return f"{made}Z"

    return lambda x, y, r: f"M{number(x + right * r)} {number(y + down * r)}{steps(r)}"


@cache
def _turns(r: float) -> str:
    turn = f"a{number(r)} {number(r)} 0 1 0"
    return f"{turn} {number(2 * r)} 0{turn} {number(-2 * r)} 0Z"


def circle(x: float, y: float, r: float) -> str:
    """Two half turns."""
    return f"M{number(x - r)} {number(y)}{_turns(r)}"


def cross(x: float, y: float, r: float) -> str:
    """Two strokes."""
    side, back = number(2 * r), number(-2 * r)
    return f"M{number(x - r)} {number(y - r)}l{side} {side}m{back} 0l{side} {back}"


up = _polygon((0, -1.2), (1.15, 0.85), (-1.15, 0.85))
down = _polygon((0, 1.2), (1.15, -0.85), (-1.15, -0.85))
SHAPES: tuple[Maker, ...] = (
    circle,
    _polygon((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
    up,
    _polygon((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    down,
    _polygon((0, -1.2), (1.1, -0.3), (0.75, 1.05), (-0.75, 1.05), (-1.1, -0.3)),
    _polygon((-0.55, -1.3), (0.55, -1.3), (0.55, 1.3), (-0.55, 1.3)),
    _polygon((-1, -1.1), (1, -1.1), (0.3, 0), (1, 1.1), (-1, 1.1), (-0.3, 0)),
)
"""Disc, square, triangles, diamond, pentagon, bar, hourglass: neighbours are unlike."""


# Axes: where a value lies, and which values are worth a mark.


_FEW_DECADES = 2.5
"""Shorter axes get marks at 2 and 5 as well."""
_LEAST_MARKS = 3
"""Where 1, 2 and 5 give fewer marks than this, even steps do better."""
_ROUND = (1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`: equal distances are equal differences, or equal ratios (`log`)."""

    low: float
    high: float
    log: bool = False

    def powers(self) -> list[float]:
        """Powers of ten within the ends; with 2 and 5 where there are few."""
        decades = math.log10(self.high / self.low)
        steps = _ROUND if decades < _FEW_DECADES else (1.0,)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        marks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [mark for mark in marks if self.low <= mark <= self.high]


@dataclass(frozen=True)
class Plot:
    """Where values lie, in pixels. What lies outside an axis stands on its edge."""

    left: float
    right: float
    top: float
    bottom: float
    across: Axis
    up: Axis
    edge: float = 0.0
    """Room that is left free at both ends across."""

    @cached_property
    def x(self) -> Callable[[float], float]:
        """From a value to its place across."""
        return _place(self.across, self.left + self.edge, self.right - self.edge)

    @cached_property
    def y(self) -> Callable[[float], float]:
        """From a value to its place down."""
        return _place(self.up, self.bottom, self.top)

    def draw_grid(self, svg: Svg, marks: Iterable[tuple[float, str]], size: float = 11) -> None:
        """The lines across with their values on the left."""
        for value, text in marks:
            y = self.y(value)
            svg.line((self.left, y), (self.right, y), "grid")
            svg.text((self.left - 8, y + 4), text, "soft", size, "end")


def _place(axis: Axis, start: float, end: float) -> Callable[[float], float]:
    """A function, with all that is the same for thousands of values worked out once."""
    low, least, most = axis.low, min(start, end), max(start, end)
    log, span = math.log, math.log(axis.high / low) if axis.log else axis.high - low
    each = (end - start) / span

    def by_ratio(value: float) -> float:
        at = start + log(value / low) * each if value > 0 else start
        return least if at < least else most if at > most else at

    def evenly(value: float) -> float:
        at = start + (value - low) * each
        return least if at < least else most if at > most else at

    return by_ratio if axis.log else evenly


def round_values(low: float, high: float, most: int) -> list[float]:
    """At most `most` multiples of a round step within the ends, evenly apart."""
    wide = high - low
    if not (wide > 0 and math.isfinite(wide)) or most < 1:
        return []
    power = 10.0 ** math.floor(math.log10(wide / most))
    for step in (factor * power * scale for scale in (1.0, 10.0) for factor in _ROUND):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [number * step for number in range(first, last + 1)]
    return []


def round_ratios(axis: Axis, most: int) -> list[float]:
    """Marks of a logarithmic axis: even steps where it is short, else 1, 2 and 5 or powers."""
    marks = axis.powers()
    if len(marks) < _LEAST_MARKS:
        return round_values(axis.low, axis.high, most)
    return marks[:: max(1, math.ceil(len(marks) / most))]


def axis_around(values: Iterable[float], margin: float) -> Axis:
    """An axis that holds all values with a factor of `margin` to spare at both ends."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    if not positive:
        return Axis(1.0, 10.0, log=True)
    return Axis(min(positive) / margin, max(positive) * margin, log=True)
