"""A sweep: one table with a bar for every arm's time, and the same as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.records import ArmSpec, Result
from torchstone.records.format import format_seconds
from torchstone.show.charts.frame import draw_title, look
from torchstone.show.rows import (
    FLOOR,
    TYPICAL,
    ArmTable,
    Figures,
    Words,
    arm_table,
    figures,
    lead_of,
)
from torchstone.show.svg import Axis, Plot, Svg, axis_around, round_ratios, text_width
from torchstone.show.table import Style, sanitise, shorten

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, FOOT = 64.0, 24.0, 44.0, 58.0
KEY_ROW = 18.0
LONGEST_NAME = 60
LEAST_DECADE = 1.25
"""The axis of times spans at least this ratio on either side: noise must not look like a slope."""


@dataclass(frozen=True)
class SweepTable(ArmTable):
    """The table of all arms; its picture is a bar a row, as long as the time."""

    times: tuple[float | None, ...] = ()

    def pictures(self, width: int, style: Style) -> tuple[str, list[str]] | None:
        """A heading, and a bar for every arm on one scale; None without times."""
        known = [time for time in self.times if time]
        if not known:
            return None
        most = max(known)
        drawn = [_bar(time / most, width, style) if time else "" for time in self.times]
        longest = format_seconds(most, 3, ascii_only=style.ascii_only)
        return f"time, to {longest}"[:width], drawn


def _bar(share: float, width: int, style: Style) -> str:
    return style.glyphs.bars[-1] * max(1, round(share * width))


def sweep_table(result: Result, style: Style) -> SweepTable:
    """The tables of all cases as one; a line between the cases would say what the names say."""
    lead = sweep_lead(result)
    parts = [arm_table(case, style, lead) for case in result.cases()]
    times = [
        (one.floor if lead == FLOOR else one.typical).value if one else None
        for part in parts
        for one in part.figures
    ]
    return SweepTable(
        names=tuple(name for part in parts for name in part.names),
        main=_joined([part.main for part in parts]),
        details=_joined([part.details for part in parts]),
        roles=tuple(role for part in parts for role in part.roles),
        figures=tuple(one for part in parts for one in part.figures),
        times=tuple(times),
    )


def sweep_lead(result: Result) -> str:
    """One figure for all cases, or their times could not be compared: the floor where it leads in
    every case and is known for every arm."""
    cases = result.cases()
    if any(lead_of(case) == TYPICAL for case in cases):
        return TYPICAL
    found = [figures(arm, case.method.alpha) for case in cases for arm in case.arms]
    return TYPICAL if any(one and one.floor.value is None for one in found) else FLOOR


def _joined(parts: Sequence[dict[str, list[Words]]]) -> dict[str, list[Words]]:
    """Columns by title."""
    titles = dict.fromkeys(title for part in parts for title in part)
    sizes = [len(next(iter(part.values()))) for part in parts]
    made: dict[str, list[Words]] = {}
    for title in titles:
        columns = (part.get(title, [("", "")] * n) for part, n in zip(parts, sizes, strict=True))
        made[title] = [words for column in columns for words in column]
    return made


# The picture: one axis of the sweep across, times upwards, a line for everything else.


@dataclass(frozen=True)
class _Spot:
    place: int
    value: float
    low: float
    high: float


def sweep_svg(result: Result) -> str:
    """Times on a logarithmic axis over the axis with most values, with their intervals."""
    across = _across(result)
    labels = list(dict.fromkeys(_value(arm.arm, across) for arm in result.arms))
    lines = _lines(result, across, labels)
    spots = [spot for line in lines.values() for spot in line]
    title = f"{sweep_lead(result).capitalize()} time per call by {across}"
    height = int(HEIGHT + KEY_ROW * len(lines))
    svg = Svg(WIDTH, height, title, _told(lines, labels), kind="sweep")
    draw_title(svg, 24)
    if not spots:
        svg.text((WIDTH / 2, HEIGHT / 2), "no times", "soft", 13, "middle")
        return svg.render()
    ends = [end for spot in spots for end in (spot.low, spot.high)]
    middle = math.sqrt(min(ends) * max(ends))
    up = axis_around([*ends, middle / LEAST_DECADE, middle * LEAST_DECADE], 1.08)
    bottom = HEIGHT - FOOT
    plot = Plot(LEFT, WIDTH - RIGHT, TOP, bottom, Axis(-0.5, len(labels) - 0.5), up)
    _draw_axes(svg, plot, labels, across)
    for number, (name, line) in enumerate(lines.items()):
        _draw_line(svg, plot, number, len(lines), line)
        _draw_key(svg, number, name, bottom + 46 + KEY_ROW * number)
    return svg.render()


def _axes(arm: ArmSpec) -> dict[str, str]:
    """What a sweep may vary, by name. Of a command its values are in its text only."""
    threads = {"threads": str(arm.threads)} if arm.threads is not None else {}
    return {**dict(arm.params), **threads, "precision": arm.precision}


def _value(arm: ArmSpec, axis: str) -> str:
    return _axes(arm).get(axis, arm.name)


def _across(result: Result) -> str:
    """The axis with most values; the first of several."""
    names = dict.fromkeys(name for arm in result.arms for name in _axes(arm.arm))
    sizes = {name: len({_value(arm.arm, name) for arm in result.arms}) for name in names}
    best = max(sizes.values(), default=0)
    return next((name for name, size in sizes.items() if size == best and size > 1), "arm")


def _lines(result: Result, across: str, labels: Sequence[str]) -> dict[str, list[_Spot]]:
    found: dict[str, list[_Spot]] = {}
    cases, lead = result.cases(), sweep_lead(result)
    for case in cases:
        for number, measured in enumerate(case.arms):
            place = labels.index(_value(measured.arm, across))
            made = _spot(figures(measured, case.method.alpha), lead, place)
            command = measured.arm.statement is not None  # whose text has the values in it
            name = _line_name(measured.arm, result, across)
            name = cases[0].arms[number].arm.name if command else name
            if made is not None:
                found.setdefault(name, []).append(made)
    return found


def _line_name(arm: ArmSpec, result: Result, across: str) -> str:
    """The variant, and the values of the other axes that differ between arms."""
    axes = _axes(arm)
    others = [
        f"{name}={value}"
        for name, value in axes.items()
        if name != across and len({_value(one.arm, name) for one in result.arms}) > 1
    ]
    targets = {one.arm.target for one in result.arms}
    target = [arm.target] if len(targets) > 1 else []
    return " ".join([*target, arm.variant, *others]) if across != "arm" else "arms"


def _spot(found: Figures | None, lead: str, place: int) -> _Spot | None:
    if found is None:
        return None
    figure = found.floor if lead == FLOOR else found.typical
    if figure.value is None or figure.value <= 0:
        return None
    low, high = figure.interval or (figure.value, figure.value)
    return _Spot(place, figure.value, low, high)


def _told(lines: dict[str, list[_Spot]], labels: Sequence[str]) -> str:
    said = []
    for name, line in lines.items():
        values = (f"{labels[one.place]}: {format_seconds(one.value, 3)}" for one in line)
        said.append(f"{sanitise(name)}: {', '.join(values)}")
    return "; ".join(said)


def _draw_axes(svg: Svg, plot: Plot, labels: Sequence[str], across: str) -> None:
    plot.draw_grid(svg, [(v, format_seconds(v, 2)) for v in round_ratios(plot.up, 6)])
    room = (plot.right - plot.left) / max(1, len(labels))
    for place, label in enumerate(labels):
        shown = shorten(sanitise(label), max(4, int(room / text_width("0", 11))))
        svg.text((plot.x(place), plot.bottom + 16), shown, "soft", 11, "middle")
    svg.line((plot.left, plot.bottom), (plot.right, plot.bottom), "soft", 0.8)
    middle = (plot.left + plot.right) / 2
    svg.text((middle, plot.bottom + 32), sanitise(across), "ink", 12, "middle")


def _draw_line(svg: Svg, plot: Plot, number: int, lines: int, line: Sequence[_Spot]) -> None:
    style, aside = look(number), 6.0 * (number - (lines - 1) / 2)
    places = [(plot.x(one.place) + aside, plot.y(one.value)) for one in line]
    if len(places) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        svg.path(path, stroke=style.colour, thick=1.7, dash=style.dash)
    for one, (x, y) in zip(line, places, strict=True):
        svg.line((x, plot.y(one.low)), (x, plot.y(one.high)), style.colour, 1.2)
        svg.path(style.shape(x, y, 3.6), fill=style.colour, title=format_seconds(one.value, 3))


def _draw_key(svg: Svg, number: int, name: str, y: float) -> None:
    style = look(number)
    svg.path(style.shape(LEFT, y - 4, 3.6), fill=style.colour)
    svg.text((LEFT + 12, y), shorten(sanitise(name), LONGEST_NAME), "ink", 12)
