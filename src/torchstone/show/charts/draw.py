"""One series drawn into its frame: intervals, lines, points, and the data that scripts read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torchstone.show.charts.data import HOLLOW, Point, has_interval, has_value
from torchstone.show.charts.dates import format_date
from torchstone.show.charts.frame import Frame
from torchstone.show.charts.looks import Look, circle, cross
from torchstone.show.charts.units import Words
from torchstone.show.svg import Svg, safe_href
from torchstone.show.text import sanitise

if TYPE_CHECKING:
    from torchstone.show.charts.thin import Column

ROOMY, TIGHT = 7.0, 3.0
"""Pixels from one moment to the next from which on points have shapes, and dots."""
BIG, SMALL = 3.4, 1.9
SIGN_EVERY = 90.0
_FLOOR_UP = 7.0
Row = list[float | str | None]


class Spot(NamedTuple):
    """A point in its place, in pixels. Without a height where it has no value; what failed stands
    on the floor."""

    point: Point
    x: float
    y: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Drawn:
    """A series and how there is room to draw it."""

    name: str
    look: Look
    spots: Sequence[Spot]
    words: Words
    spacing: float
    linked: bool

    @property
    def radius(self) -> float:
        """How large points are drawn."""
        return BIG if self.spacing >= ROOMY else SMALL


def place(frame: Frame, points: Sequence[Point], aside: float) -> list[Spot]:
    """Where each point lies; those that failed a little `aside`."""
    if not points:
        return []
    across, down, floor = frame.across(), frame.down(), frame.floor - _FLOOR_UP
    found = []
    for point in points:
        x = across(point.x)
        if has_value(point):
            ends = has_interval(point)
            low = down(point.low) if ends and point.low is not None else None
            high = down(point.high) if ends and point.high is not None else None
            found.append(Spot(point, x, down(point.y), low, high))
        elif point.mark == "failed":
            found.append(Spot(point, x + aside, floor, None, None))
        else:
            found.append(Spot(point, x, None, None, None))
    return found


def draw_spread(svg: Svg, one: Drawn) -> None:
    """The intervals: a whisker for each point where they are few, else a band."""
    whiskers: list[str] = []
    bands: list[str] = []
    for run in _runs(one.spots):
        for stretch in _stretches(run):
            if one.spacing >= ROOMY or len(run) == 1:
                whiskers += [f"M{s.x:.1f} {s.low:.1f}V{s.high:.1f}" for s in stretch]
            else:
                above = [f"{s.x:.1f} {s.high:.1f}" for s in stretch]
                below = [f"{s.x:.1f} {s.low:.1f}" for s in reversed(stretch)]
                bands.append("M" + "L".join(above + below) + "Z")
    if not whiskers and not bands:
        return
    with svg.group("chart-spread", {"name": sanitise(one.name)}):
        if bands:
            svg.path("".join(bands), fill=one.look.colour, opacity=0.16)
        if whiskers:
            svg.path("".join(whiskers), stroke=one.look.colour, thick=1.2, opacity=0.5)


def draw_points(svg: Svg, one: Drawn) -> None:
    """The line, broken wherever a value is missing, and its points."""
    runs = list(_runs(one.spots))
    with svg.group("chart-series", _series_data(one)):
        lines = ["M" + "L".join(f"{s.x:.1f} {s.y:.1f}" for s in run) for run in runs if run[1:]]
        if lines and one.spacing >= TIGHT:
            svg.path("".join(lines), stroke=one.look.colour, thick=1.7, dash=one.look.dash)
        elif lines:
            svg.path("".join(lines), stroke=one.look.colour, thick=1.2)
            _draw_signs(svg, one, runs)
        lonely = {id(run[0]) for run in runs if len(run) == 1}
        if one.linked:
            for spot in one.spots:
                _draw_linked(svg, one, spot, id(spot) in lonely)
        else:
            _draw_together(svg, one, lonely)


def draw_columns(svg: Svg, frame: Frame, one: Drawn, columns: Sequence[Column]) -> None:
    """Each column from its lowest to its highest value, and a line through the means."""
    bars, line, floor, down = [], [], [], frame.down()
    bottom = frame.floor - _FLOOR_UP
    joined = False
    rows: list[Row] = []
    for column in columns:
        x = round(column.place, 1)
        if column.low is None or column.mean is None or column.high is None:
            joined = False
        else:
            mean = down(column.mean)
            bars.append(f"M{x:.1f} {down(column.low):.1f}V{down(column.high):.1f}")
            line.append(f"{'L' if joined else 'M'}{x:.1f} {mean:.1f}")
            joined = True
            words = one.words(column.mean, column.low, column.high)
            said = f"{words}, {column.count:,} point{'s' * (column.count != 1)}"
            rows.append([x, round(mean, 1), column.x, said, "", None, ""])
        if column.failed:
            floor.append(cross(x, bottom, 2.6))
            rows.append([x, bottom, column.x, f"{column.failed} failed", "", None, ""])
    data = {"name": sanitise(one.name), "points": _dumps(rows)}
    with svg.group("chart-series chart-thinned", data):
        svg.path("".join(bars), stroke=one.look.colour, thick=1.0, opacity=0.35)
        svg.path("".join(line), stroke=one.look.colour, thick=1.4)
        if floor:
            svg.path("".join(floor), stroke="bad", thick=1.3)


def _runs(spots: Sequence[Spot]) -> Iterator[list[Spot]]:
    """Stretches of spots that have a value, one after another; the line goes past partial ones."""
    run: list[Spot] = []
    for spot in spots:
        if spot.point.mark == "partial":
            continue
        if spot.y is not None and spot.point.mark != "failed":
            run.append(spot)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _stretches(run: Sequence[Spot]) -> Iterator[list[Spot]]:
    """Parts of a run in which every spot has an interval."""
    part: list[Spot] = []
    for spot in run:
        if spot.low is not None:
            part.append(spot)
        elif part:
            yield part
            part = []
    if part:
        yield part


def _draw_signs(svg: Svg, one: Drawn, runs: Sequence[Sequence[Spot]]) -> None:
    """The series' shape now and then along a line that is too restless for dashes."""
    found, after = [], 0.0
    for run in runs:
        for spot in run:
            if spot.y is not None and spot.x >= after:
                found.append(one.look.shape(spot.x, spot.y, BIG + 0.4))
                after = spot.x + SIGN_EVERY
    svg.path("".join(found), fill=one.look.colour, stroke="paper")


def _draw_linked(svg: Svg, one: Drawn, spot: Spot, lonely: bool) -> None:
    """A point by itself: it tells its figures, and leads somewhere."""
    point, x, y = spot.point, spot.x, spot.y
    if y is None:
        return
    told = " · ".join(part for part in _told(one, point) if part)
    if not point.mark and (one.spacing >= TIGHT or lonely):
        shape = one.look.shape(x, y, one.radius)
        svg.sign(shape, fill=one.look.colour, title=told, href=point.href)
        return
    with svg.link(point.href):
        if point.mark == "failed":
            svg.path(circle(x, y, 6.0), fill="paper", opacity=0.0, title=told)
            svg.path(cross(x, y, 3.2), stroke="bad", thick=1.8, title=told)
            return
        if point.mark in ("better", "worse"):
            colour = "good" if point.mark == "better" else "bad"
            svg.path(circle(x, y, one.radius + 3.4), stroke=colour, thick=1.6, title=told)
        shape = one.look.shape(x, y, one.radius)
        if point.mark in HOLLOW:
            svg.path(shape, fill="paper", stroke=one.look.colour, thick=1.4, title=told)
        elif point.mark:
            svg.path(shape, fill=one.look.colour, title=told)
        else:
            svg.path(circle(x, y, TIGHT), fill="paper", opacity=0.0, title=told)


def _draw_together(svg: Svg, one: Drawn, lonely: set[int]) -> None:
    """Many points in a few paths: scripts tell their figures, zooming shows them one by one."""
    paths: dict[str, list[str]] = {"": [], "doubt": [], "better": [], "worse": [], "failed": []}
    for spot in one.spots:
        mark = spot.point.mark
        if spot.y is None:
            continue
        if mark == "failed":
            paths[mark].append(cross(spot.x, spot.y, 2.6))
            continue
        if mark in ("better", "worse"):
            paths[mark].append(circle(spot.x, spot.y, SMALL + 2.6))
        if one.spacing >= TIGHT or id(spot) in lonely or mark in ("better", "worse", "partial"):
            if mark in HOLLOW:
                paths["doubt"].append(circle(spot.x, spot.y, SMALL))
            else:
                paths[""].append(f"M{spot.x:.1f} {spot.y:.1f}h0")
    colours = {"better": "good", "worse": "bad", "failed": "bad", "doubt": one.look.colour}
    for mark, found in paths.items():
        if found and not mark:  # dots: strokes without length, whose ends are round
            svg.path("".join(found), stroke=one.look.colour, thick=2 * SMALL)
        elif found:
            fill = "paper" if mark == "doubt" else ""
            svg.path("".join(found), fill=fill, stroke=colours[mark], thick=1.3)


def _told(one: Drawn, point: Point) -> tuple[str, ...]:
    return f"{one.name}: {_value(one, point)}", point.label, format_date(point.x), point.note


def _value(one: Drawn, point: Point) -> str:
    return "failed" if point.mark == "failed" else one.words(point.y, point.low, point.high)


def _series_data(one: Drawn) -> dict[str, str]:
    """Each point as pixels, moment, words, label, address and note. The addresses' common
    beginning is said once."""
    hrefs = [safe_href(spot.point.href) for spot in one.spots]
    common = _common([href for href in hrefs if href])
    rows: list[Row] = []
    for spot, href in zip(one.spots, hrefs, strict=True):
        point = spot.point
        if spot.y is not None:
            rest = href[len(common) :] if href else None
            texts = (_value(one, point), sanitise(point.label), rest, sanitise(point.note))
            rows.append([round(spot.x, 1), round(spot.y, 1), point.x, *texts])
    return {"name": sanitise(one.name), "href": common, "points": _dumps(rows)}


def _common(texts: Sequence[str]) -> str:
    """What all texts begin with: what the first and the last in order do."""
    if not texts:
        return ""
    first, last = min(texts), max(texts)
    length = next((i for i, char in enumerate(first) if last[i : i + 1] != char), len(first))
    return first[:length]


def _dumps(rows: Sequence[Row]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
