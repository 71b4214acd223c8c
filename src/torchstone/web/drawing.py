"""Charts as SVG markup: from the records of a page to the house's one maker of charts."""

from __future__ import annotations

import math
from functools import lru_cache

from torchstone.explain.roofline import Roofline
from torchstone.show import charts
from torchstone.show.roofline_svg import roofline_svg
from torchstone.web.links import Links
from torchstone.web.page import Chart, Picture, Point

UNITS = {"seconds": "s", "count": ""}
"""Units whose name differs in the room of the charts."""
WIDTH, HEIGHT = 640, 260
STRIP_WIDTH = 960
LINES = 96
"""Charts over time that are kept by what is in them: to compare two takes a tenth of drawing one,
and of a model's two years only the newest night is new."""
STRIPS = 8
"""Pictures of samples that are kept: they have thousands of signs, and samples never change."""


def draw(chart: Chart | Picture, links: Links, alone: bool = False) -> str:
    """The markup; empty where there is nothing to draw. `alone`: a file, with its styles in it."""
    if isinstance(chart, Picture):
        return _picture(chart, alone)
    return _lines(chart, links, alone)


@lru_cache(maxsize=LINES)
def _lines(chart: Chart, links: Links, alone: bool) -> str:
    if not any(p.value is not None or p.failed for s in chart.series for p in s.points):
        return ""
    return charts.line_chart(
        [
            charts.Series(series.name, tuple(_point(p, links, alone) for p in series.points))
            for series in chart.series
        ],
        title=chart.title if alone else "",
        unit=UNITS.get(chart.unit, chart.unit),
        width=WIDTH,
        height=HEIGHT,
        marks=[charts.ChangeMark(one.time_s, one.text) for one in chart.events],
        embedded=not alone,
        note=chart.note if alone else "",
        zoom=not links.static,
    )


def _point(point: Point, links: Links, alone: bool) -> charts.Point:
    return charts.Point(
        x=point.time_s,
        y=math.nan if point.value is None else point.value,
        low=point.low,
        high=point.high,
        label=point.label,
        href="" if alone else links.url(point.to),
        mark="failed" if point.failed else "partial" if point.partial else "",
        note=point.note,
    )


def _picture(picture: Picture, alone: bool) -> str:
    data = picture.data
    title = picture.title if alone else ""
    if isinstance(data, Roofline):
        return roofline_svg(data) if alone else embedded(roofline_svg(data))
    if not isinstance(data, tuple) or not data:
        return ""
    if all(isinstance(one, charts.Strip) for one in data):
        if not any(strip.turns for strip in data):
            return ""
        return _strips(data, title, alone)
    return charts.interval_chart(data, title=title, width=STRIP_WIDTH, embedded=not alone)


@lru_cache(maxsize=STRIPS)
def _strips(strips: tuple[charts.Strip, ...], title: str, alone: bool) -> str:
    return charts.strip_chart(strips, title=title, width=STRIP_WIDTH, embedded=not alone)


def embedded(svg: str) -> str:
    """A stand-alone picture of ours without its styles, which the page's stylesheet has."""
    before, start, rest = svg.partition("<style>")
    plain = before + rest.partition("</style>")[2] if start else svg
    return plain.replace("<svg ", '<svg class="chart" ', 1)
