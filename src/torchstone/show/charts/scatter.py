"""Two ratios of each thing as a point: what no other beats in both is joined by a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.show.charts.data import LARGEST, RATIO, axis_marks
from torchstone.show.charts.frame import EDGE, SMALL, WIDE, draw_title
from torchstone.show.svg import Axis, Plot, Svg, circle, number
from torchstone.show.table import sanitise, shorten

HIGH = 320.0
ROOM = 1.05
"""By which the axes reach beyond the points on either side."""
_TITLE, _LEFT, _BOTTOM = 30.0, 64.0, 42.0


@dataclass(frozen=True)
class ScatterPoint:
    """Less is better in both."""

    name: str
    across: float
    up: float
    front: bool = False
    """Whether no other point beats it in both."""


def scatter_chart(
    points: Sequence[ScatterPoint], *, titles: tuple[str, str], title: str, embedded: bool = True
) -> str:
    """The chart as SVG; points without a usable figure are left out. (1, 1) is the baseline."""
    drawn = [one for one in points if all(1 / LARGEST < v < LARGEST for v in (one.across, one.up))]
    top = _TITLE if title else 10.0
    said = ", ".join(one.name for one in drawn if one.front)
    about = f"{len(drawn)} points; no other beats: {said or 'none'}."
    svg = Svg(WIDE, int(HIGH), title, about, embedded, "intervals")
    draw_title(svg, 20)
    plot = Plot(
        _LEFT,
        WIDE - 20.0,
        top,
        HIGH - _BOTTOM,
        _axis([one.across for one in drawn]),
        _axis([one.up for one in drawn]),
        EDGE,
    )
    plot.draw_grid(svg, axis_marks(plot.up, RATIO, 6))
    for value, text in axis_marks(plot.across, RATIO, 12):
        svg.text((plot.x(value), plot.bottom + 16), text, "soft", SMALL, "middle")
    svg.text((plot.right, plot.bottom + 34), titles[0], "soft", SMALL, "end")
    svg.text((8, top + 4), titles[1], "soft", SMALL)
    front = sorted((one for one in drawn if one.front), key=lambda one: one.across)
    if len(front) > 1:
        places = [f"{number(plot.x(one.across))} {number(plot.y(one.up))}" for one in front]
        svg.path("M" + "L".join(places), stroke="good", thick=1.4, opacity=0.6)
    for one in drawn:
        _draw_point(svg, plot, one)
    return svg.render()


def _draw_point(svg: Svg, plot: Plot, one: ScatterPoint) -> None:
    x, y = plot.x(one.across), plot.y(one.up)
    name = shorten(sanitise(one.name), 32)
    svg.path(circle(x, y, 4.0), fill="good" if one.front else "slate")
    end = x > (plot.left + plot.right) / 2
    svg.text((x - 8 if end else x + 8, y - 6), name, "ink", SMALL, "end" if end else "start")
    told = f"{sanitise(one.name)} · {one.across:.3g} · {one.up:.3g}"
    svg.area((x - 6, y - 6), (12, 12), told)


def _axis(values: Sequence[float]) -> Axis:
    known = [*values, 1.0]
    return Axis(min(known) / ROOM, max(known) * ROOM, log=True)
