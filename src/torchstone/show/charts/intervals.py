"""Ratios by name: with their intervals (a forest plot), or two of them as a point.

Every sample of a result, by process and turn: what the figures were made from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from torchstone.records import Measurement
from torchstone.records.format import count, format_seconds
from torchstone.show.charts.frame import (
    EDGE,
    LARGEST,
    NOTE,
    RATIO,
    SECONDS,
    SMALL,
    WIDE,
    IntervalRow,
    SampleTurn,
    Strip,
    axis_marks,
    draw_notes,
    draw_title,
    format_estimate,
    left_room,
    look,
    note_lines,
)
from torchstone.show.rows import Figures
from torchstone.show.svg import Axis, Maker, Plot, Svg, circle, cross, down, number, text_width, up
from torchstone.show.table import sanitise, shorten

ROW = 20.0
LEAST_FACTOR = 1.04
"""The axis spans at least 4 %: else rows that are all the same would look far apart."""
STRETCH = 0.5
"""Intervals may stretch the axis by this power of the range of the values, on either side; what is
longer, and would squash the rest, runs out of the frame."""
_TITLE, _KEYS, _AXIS = 30.0, 24.0, 26.0
_NAME = 12.0


class _Sign(NamedTuple):
    """How a verdict is said and drawn."""

    words: str
    colour: str
    shape: Maker
    size: float
    hollow: bool = False


SIGNS = {
    "better": _Sign("better", "good", up, 4.2),
    "worse": _Sign("worse", "bad", down, 4.2),
    "same": _Sign("the same", "slate", circle, 3.8),
    "not-worse": _Sign("not worse", "slate", up, 3.8, hollow=True),
    "not-better": _Sign("not better", "slate", down, 3.8, hollow=True),
    "unsure": _Sign("cannot tell", "slate", circle, 3.6, hollow=True),
    "none": _Sign("a figure and its interval", "blue", circle, 3.8),
}


def interval_chart(rows: Sequence[IntervalRow], *, title: str, embedded: bool = True) -> str:
    """The chart as SVG, rows in the given order; those without a usable figure are left out."""
    for row in rows:
        if row.verdict not in SIGNS:
            raise ValueError(f"there is no verdict {row.verdict!r}")
    drawn = [(row, known) for row in rows if (known := _known(row))]
    top = (_TITLE if title else 6.0) + _KEYS
    bottom = top + ROW * max(1, len(drawn))
    counts = {name: sum(row.verdict == name for row, _ in drawn) for name in SIGNS}
    said = {name: SIGNS[name].words for name, count in counts.items() if count}
    drawn_words = ", ".join(f"{counts[name]} {words}" for name, words in said.items())
    description = f"{len(drawn)} rows: {drawn_words}."
    svg = Svg(WIDE, math.ceil(bottom + _AXIS), title, description, embedded, "intervals")
    draw_title(svg, 20)
    _draw_keys(svg, said, top - _KEYS + 8)
    plot = _plot(drawn, top, bottom)
    _draw_axis(svg, plot)
    for place, (row, known) in enumerate(drawn):
        _draw_row(svg, plot, row, known, top + ROW * place)
    if not drawn:
        svg.text((WIDE / 2, top + 14), "no rows", "soft", 12, "middle")
    return svg.render()


Known = tuple[float, float, float]


def _known(row: IntervalRow) -> Known | None:
    """Value and ends where there is something to draw; the value itself for an end not known."""
    if not 1 / LARGEST < row.value < LARGEST:
        return None
    low, high = (
        end if end is not None and 1 / LARGEST < end < LARGEST else row.value
        for end in (row.low, row.high)
    )
    return row.value, low, high


def _plot(rows: Sequence[tuple[IntervalRow, Known]], top: float, bottom: float) -> Plot:
    """Where ratios lie: names on the left of it, figures on the right."""
    known = [found for _, found in rows]
    values = [value for value, _, _ in known] + [1.0]
    low, high = min(values), max(values)
    middle = median([math.sqrt(end / start) for _, start, end in known] or [1.0])
    reach = max((high / low) ** STRETCH, middle**2, LEAST_FACTOR)
    low = max(min([low, *(start for _, start, _ in known)]), low / reach)
    high = min(max([high, *(end for _, _, end in known)]), high * reach)
    if high / low < LEAST_FACTOR:
        centre, half = math.sqrt(low * high), math.sqrt(LEAST_FACTOR)
        low, high = centre / half, centre * half
    names = max((text_width(_name(row), _NAME) for row, _ in rows), default=0.0)
    figures = max((text_width(_figures(row), SMALL) for row, _ in rows), default=0.0)
    left, right = min(names + 24, WIDE * 0.4), WIDE - min(figures + 20, WIDE * 0.34)
    axis = Axis(low, high, log=True)
    return Plot(left, right, top, bottom, axis, axis, EDGE)


def _name(row: IntervalRow) -> str:
    return shorten(sanitise(row.name), 44)


def _figures(row: IntervalRow) -> str:
    low, high = row.low, row.high
    if low is None or high is None or not -LARGEST <= low <= high <= LARGEST:
        return format_estimate(row.value, None)
    return format_estimate(row.value, (low, high))


def _draw_keys(svg: Svg, said: dict[str, str], y: float) -> None:
    """What the signs mean; only those that occur."""
    x = 14.0
    for verdict, words in said.items():
        _draw_sign(svg, verdict, x + 4, y - 4)
        svg.text((x + 14, y), words, "soft", SMALL)
        x += 14 + text_width(words, SMALL) + 18


def _draw_sign(svg: Svg, verdict: str, x: float, y: float) -> None:
    sign = SIGNS[verdict]
    shape = sign.shape(x, y, sign.size)
    if sign.hollow:
        svg.path(shape, fill="paper", stroke=sign.colour, thick=1.5)
    else:
        svg.path(shape, fill=sign.colour)


def _draw_axis(svg: Svg, plot: Plot) -> None:
    for value, text in axis_marks(plot.across, RATIO, max(3, int((plot.right - plot.left) // 44))):
        x = plot.x(value)
        svg.line((x, plot.top), (x, plot.bottom), "grid")
        svg.text((x, plot.bottom + 16), text, "soft", SMALL, "middle")
    svg.line((plot.left, plot.bottom), (plot.right, plot.bottom), "soft", 0.8)
    one = plot.x(1.0)
    svg.line((one, plot.top), (one, plot.bottom), "soft", 1.2, dashed=True)


def _draw_row(svg: Svg, plot: Plot, row: IntervalRow, known: Known, top: float) -> None:
    y = top + ROW / 2
    value, low, high = known
    with svg.group("chart-row"):
        fit = int((plot.left - 24) / text_width("x", _NAME))
        svg.text((12, y + 4), shorten(_name(row), max(8, fit)), "ink", _NAME)
        start, end = plot.x(low), plot.x(high)
        shape = f"M{number(start)} {number(y)}H{number(end)}"
        # An arrow where the interval runs out of the frame.
        if low < plot.across.low * 0.999999:
            shape += f"m{number(start - end + 4)} -3l-4 3l4 3"
        if high > plot.across.high * 1.000001:
            shape += f"M{number(end - 4)} {number(y - 3)}l4 3l-4 3"
        svg.path(shape, stroke=SIGNS[row.verdict].colour, thick=1.6, opacity=0.75)
        _draw_sign(svg, row.verdict, plot.x(value), y)
        svg.text((WIDE - 12, y + 4), _figures(row), "soft", SMALL, "end")
        told = " · ".join((row.name, _figures(row), SIGNS[row.verdict].words))
        svg.area((plot.left, top), (WIDE - plot.left, ROW), told)


# Two ratios of each thing as a point: what no other beats in both is joined by a line.

HIGH = 320.0
ROOM = 1.05
"""By which the axes reach beyond the points on either side."""
_TITLE, _LEFT, _BOTTOM = 30.0, 64.0, 42.0


Box = tuple[float, float, float, float]
_LINES = (-6.0, 14.0, -18.0, 26.0)
"""Where a name may stand, from its point down: the first that is free."""


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
    taken: list[Box] = []
    for one in sorted(drawn, key=lambda one: not one.front):  # their names find room first
        _draw_point(svg, plot, one, taken)
    return svg.render()


def _draw_point(svg: Svg, plot: Plot, one: ScatterPoint, taken: list[Box]) -> None:
    """The point, and its name where no other name is; the tooltip has it in any case."""
    x, y = plot.x(one.across), plot.y(one.up)
    name = shorten(sanitise(one.name), 32)
    svg.path(circle(x, y, 4.0), fill="good" if one.front else "slate")
    end = x > (plot.left + plot.right) / 2
    wide = text_width(name, SMALL)
    for line in _LINES:
        left, base = (x - 8 - wide if end else x + 8), y + line
        box = (left, base - SMALL, left + wide, base)
        if not any(_overlap(box, other) for other in taken):
            taken.append(box)
            svg.text((x - 8 if end else x + 8, base), name, "ink", SMALL, "end" if end else "start")
            break
    told = f"{sanitise(one.name)} · {one.across:.3g} · {one.up:.3g}"
    svg.area((x - 6, y - 6), (12, 12), told)


def _overlap(one: Box, other: Box) -> bool:
    apart = one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
    return not apart


def _axis(values: Sequence[float]) -> Axis:
    known = [*values, 1.0]
    return Axis(min(known) / ROOM, max(known) * ROOM, log=True)


PANEL = 260
MOST_DOTS = 5000
"""Of one arm; beyond, each turn keeps its fastest, its slowest and every k-th sample by rank."""
COARSE_DOTS = 120
"""Of one arm where thousands of pages are written."""
MOST_TURNS = 2000
TAIL = 0.98
"""The axis ends at this quantile of the samples: one hiccup must not squash the rest. What is
slower stands on the upper edge, as a triangle."""
LEAST_STRIP_FACTOR = 1.05
STRIP_ROOM = 1.01
_STRIP_TITLE, _STRIP_NAME, _PROCESSES, _GAP = 28.0, 18.0, 22.0, 10.0
_LEVELS = 108.0


def sample_turns(measurement: Measurement) -> list[SampleTurn]:
    """The samples of a measured arm. A sample is dirty where a probe beside it ran slow."""
    from torchstone.stats.estimators import PROBE_TOLERANCE, process_data, replicates_with_samples

    made: list[SampleTurn] = []
    for process in replicates_with_samples(measurement):
        data = process_data(measurement, process)
        probes = [t for t in (*data.probe_before.tolist(), *data.probe_after.tolist()) if t == t]
        limit = min(probes) * (1.0 + PROBE_TOLERANCE) if probes else math.inf
        slow = ((data.probe_before > limit) | (data.probe_after > limit)).tolist()
        samples, turns = data.samples.tolist(), data.turn.tolist()
        by_turn: dict[int, list[int]] = {}
        for place, turn in enumerate(turns):
            by_turn.setdefault(turn, []).append(place)
        for index, mine in by_turn.items():
            dirty = frozenset(i for i, place in enumerate(mine) if slow[place])
            made.append(SampleTurn(process, index, tuple(samples[i] for i in mine), dirty))
    return made


def strip_of(measurement: Measurement, found: Figures | None, role: int | None = None) -> Strip:
    """An arm as the chart shows it."""
    floor = found.floor.value if found else None
    typical = found.typical.value if found else None
    turns = tuple(sample_turns(measurement))
    return Strip(measurement.arm.name, turns, floor, typical, role)


def strip_chart(
    strips: Sequence[Strip], *, title: str, embedded: bool = True, coarse: bool = False
) -> str:
    """The chart as SVG: the samples of all arms on one axis. A `coarse` one is a quarter of the
    size: fewer samples are drawn, and processes tell their figures instead of turns."""
    most = COARSE_DOTS if coarse else MOST_DOTS
    arms = [_Arm(strip, place, most) for place, strip in enumerate(strips)]
    lines = note_lines([arm.note for arm in arms], WIDE)
    top = (_STRIP_TITLE if title else 6.0) + _STRIP_NAME * len(arms) + 4
    height = math.ceil(top + PANEL + _PROCESSES + NOTE * len(lines) + 6)
    counts = ", ".join(f"{one.name}: {len(one.samples)} samples" for one in arms)
    svg = Svg(WIDE, height, title, counts or "No samples.", embedded, "strip")
    draw_title(svg, 20)
    axis = _strip_axis(arms)
    marks = axis_marks(axis, SECONDS, 6)
    left, right = left_room(marks), WIDE - (_LEVELS if any(one.levels for one in arms) else 12)
    plot = Plot(left, right, top, top + PANEL, axis, axis)
    plot.draw_grid(svg, marks)
    svg.line((left, plot.bottom), (right, plot.bottom), "soft", 0.8)
    for place, arm in enumerate(arms):
        arm.draw(svg, plot, top - 4 - _STRIP_NAME * (len(arms) - place), coarse)
    _draw_levels(svg, plot, arms)
    _draw_processes(svg, plot, max(arms, key=lambda arm: len(arm.turns), default=None))
    draw_notes(svg, lines)
    return svg.render()


def _strip_axis(arms: Sequence[_Arm]) -> Axis:
    """From the fastest sample of all to the slowest that is not a hiccup."""
    known = [arm for arm in arms if arm.samples]
    low = min((arm.samples[0] for arm in known), default=1.0) / STRIP_ROOM
    high = max((arm.tail for arm in known), default=low)
    return Axis(low, max(high, low * LEAST_STRIP_FACTOR) * STRIP_ROOM * STRIP_ROOM, log=True)


class _Arm:
    """One arm, without what cannot be drawn: turns beyond the limit, times that are none."""

    def __init__(self, strip: Strip, place: int, most: int) -> None:
        self.name = strip.name
        self.turns = [_usable(turn) for turn in strip.turns[:MOST_TURNS]]
        self.samples = sorted(sample for turn in self.turns for sample in turn.samples)
        levels = {"floor": strip.floor, "typical": strip.typical}
        self.levels = {name: value for name, value in levels.items() if value is not None}
        self.colour = look(place if strip.role is None else strip.role).colour
        self._every = max(1, math.ceil(len(self.samples) / most))

    @property
    def note(self) -> str:
        """Which samples are drawn, where it is not all."""
        if self._every == 1:
            return ""
        return (
            f"{self.name}: each turn's fastest and slowest sample and every {self._every}th "
            f"between, of {len(self.samples):,}"
        )

    @property
    def tail(self) -> float:
        """What the axis has to reach."""
        return self.samples[int(TAIL * (len(self.samples) - 1))]

    def draw(self, svg: Svg, plot: Plot, top: float, coarse: bool) -> None:
        """Its name at the top, and its samples."""
        self._draw_heading(svg, plot.up, top)
        starts, width = self.places(plot)
        self._draw_samples(svg, plot, starts, width)
        told: dict[tuple[int, int], list[tuple[float, SampleTurn]]] = {}
        for start, turn in zip(starts, self.turns, strict=True):
            if turn.samples:
                told.setdefault((turn.process, 0 if coarse else turn.index), []).append(
                    (start, turn)
                )
        for mine in told.values():
            first, last = mine[0][0], mine[-1][0] + width
            samples = [sample for _, turn in mine for sample in turn.samples]
            high, low = (
                min(max(plot.y(end(samples)), plot.top), plot.bottom) for end in (max, min)
            )
            words = f"{sanitise(self.name)}, {_told([turn for _, turn in mine])}"
            svg.area((first, high - 2), (last - first, low - high + 4), words)

    def places(self, plot: Plot) -> tuple[list[float], float]:
        """The left edge of each turn, and the width of all; there is a gap between processes."""
        processes = max(1, len({turn.process for turn in self.turns}))
        room = plot.right - plot.left - 8
        gap = min(_GAP, 0.3 * room / processes)  # less where there are many
        width = (room - gap * (processes - 1)) / max(1, len(self.turns))
        x, starts = plot.left + 4, []
        for before, turn in zip((None, *self.turns), self.turns, strict=False):
            x += gap if before is not None and before.process != turn.process else 0.0
            starts.append(x)
            x += width
        return starts, width

    def _draw_heading(self, svg: Svg, axis: Axis, top: float) -> None:
        """The arm's name, and what its signs mean."""
        name = shorten(sanitise(self.name), 40)
        svg.path(f"M16 {number(top + 11)}h0", stroke=self.colour, thick=7)
        svg.text((26, top + 15), name, "ink", 12, bold=True)
        x = 26 + text_width(name, 12.6) + 14
        slower = sum(sample > axis.high for sample in self.samples)
        said = f"{len(self.samples):,} samples"
        said += f" · {slower} slower than shown (▲)" if slower else ""
        svg.text((x, top + 15), said, "soft", SMALL)
        dirty = sum(len(turn.dirty) for turn in self.turns)
        if dirty:
            x += text_width(said, SMALL) + 16
            svg.path(cross(x, top + 11, 2.6), stroke=self.colour, thick=1.4)
            svg.text((x + 8, top + 15), f"{dirty} while the core ran slow", "soft", SMALL)

    def _draw_samples(self, svg: Svg, plot: Plot, starts: list[float], width: float) -> None:
        clean, dirty, above = [], [], []
        for start, turn in zip(starts, self.turns, strict=True):
            step = width * 0.86 / max(1, len(turn.samples))
            for place in _chosen(turn, self._every):
                sample = turn.samples[place]
                x, y = start + (place + 0.5) * step, plot.y(sample)
                if sample > plot.up.high:
                    above.append(up(x, plot.top + 3, 2.6))
                elif place in turn.dirty:
                    dirty.append(f"M{x:.1f} {y:.1f}m-2-2l4 4m0-4l-4 4")
                else:
                    clean.append(f"M{number(x)} {number(y)}h0")
        if clean:
            svg.path("".join(clean), stroke=self.colour, thick=2.6, opacity=0.55)
        if dirty:
            svg.path("".join(dirty), stroke=self.colour, thick=1.0, opacity=0.45)
        if above:
            svg.path("".join(above), fill=self.colour)


def _draw_levels(svg: Svg, plot: Plot, arms: Sequence[_Arm]) -> None:
    """What was made of the samples: floors and typical times, the slowest first; words that would
    cover each other stand apart."""
    found = [
        (value, name, arm.colour)
        for arm in arms
        for name, value in arm.levels.items()
        if plot.up.low <= value <= plot.up.high
    ]
    label = -math.inf
    for value, name, colour in sorted(found, reverse=True):
        y = plot.y(value)
        label = max(y, label + 13.0)
        svg.line((plot.left, y), (plot.right, y), colour, 1.2, dashed=name == "typical")
        words = f"{name} {format_seconds(value, 3)}"
        svg.text((plot.right + 6, label + 4), words, colour, SMALL)


def _draw_processes(svg: Svg, plot: Plot, arm: _Arm | None) -> None:
    """The processes by name below; all arms have theirs side by side."""
    starts, width = arm.places(plot) if arm else ([], 0.0)
    processes: dict[int, list[float]] = {}
    for start, turn in zip(starts, arm.turns if arm else (), strict=True):
        processes.setdefault(turn.process, []).append(start)
    shown = -math.inf
    for process, mine in processes.items():
        first, last = mine[0], mine[-1] + width
        svg.line((first, plot.bottom + 3), (last, plot.bottom + 3), "soft")
        words, middle = f"process {process + 1}", (first + last) / 2
        half = text_width(words, SMALL) / 2
        if middle - half >= shown:
            svg.text((middle, plot.bottom + 16), words, "soft", SMALL, "middle")
            shown = middle + half + 6


def _usable(turn: SampleTurn) -> SampleTurn:
    good = [i for i, sample in enumerate(turn.samples) if 1 / LARGEST < sample < LARGEST]
    dirty = frozenset(new for new, old in enumerate(good) if old in turn.dirty)
    return replace(turn, samples=tuple(turn.samples[i] for i in good), dirty=dirty)


def _chosen(turn: SampleTurn, every: int) -> list[int]:
    """Which samples of a turn are drawn: by rank, so that the shape stays; the ends always."""
    if every == 1:
        return list(range(len(turn.samples)))
    order = sorted(range(len(turn.samples)), key=lambda place: turn.samples[place])
    return sorted({*order[::every], *order[-1:]})


def _told(turns: Sequence[SampleTurn]) -> str:
    """The figures of a turn, or of a process with all its turns."""
    samples = [sample for turn in turns for sample in turn.samples]
    dirty = sum(len(turn.dirty) for turn in turns)
    which = f", turn {turns[0].index + 1}" if len(turns) == 1 else f", {len(turns)} turns"
    ends = " to ".join(format_seconds(end, 3) for end in (min(samples), max(samples)))
    words = f"process {turns[0].process + 1}{which}: {count(len(samples), 'sample')}, {ends}"
    return words + (f", {dirty} while the core ran slow" if dirty else "")
