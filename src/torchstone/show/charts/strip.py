"""Every sample of a result, by process and turn: what the figures were made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torchstone.records import Measurement
from torchstone.records.format import count, format_seconds
from torchstone.show.charts.data import LARGEST, SECONDS, SampleTurn, Strip, axis_marks
from torchstone.show.charts.frame import (
    NOTE,
    SMALL,
    WIDE,
    draw_notes,
    draw_title,
    left_room,
    look,
    note_lines,
)
from torchstone.show.rows import Figures
from torchstone.show.svg import Axis, Plot, Svg, cross, number, text_width, up
from torchstone.show.table import sanitise, shorten

PANEL = 260
MOST_DOTS = 5000
"""Of one arm; beyond, each turn keeps its fastest, its slowest and every k-th sample by rank."""
COARSE_DOTS = 120
"""Of one arm where thousands of pages are written."""
MOST_TURNS = 2000
TAIL = 0.98
"""The axis ends at this quantile of the samples: one hiccup must not squash the rest. What is
slower stands on the upper edge, as a triangle."""
LEAST_FACTOR = 1.05
ROOM = 1.01
_TITLE, _NAME, _PROCESSES, _GAP = 28.0, 18.0, 22.0, 10.0
_LEVELS = 108.0


def sample_turns(measurement: Measurement) -> list[SampleTurn]:
    """The samples of a measured arm. A sample is dirty where a probe beside it ran slow."""
    from torchstone.stats.estimators import PROBE_TOLERANCE
    from torchstone.stats.process import process_data, replicates_with_samples

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
    top = (_TITLE if title else 6.0) + _NAME * len(arms) + 4
    height = math.ceil(top + PANEL + _PROCESSES + NOTE * len(lines) + 6)
    counts = ", ".join(f"{one.name}: {len(one.samples)} samples" for one in arms)
    svg = Svg(WIDE, height, title, counts or "No samples.", embedded, "strip")
    draw_title(svg, 20)
    axis = _axis(arms)
    marks = axis_marks(axis, SECONDS, 6)
    left, right = left_room(marks), WIDE - (_LEVELS if any(one.levels for one in arms) else 12)
    plot = Plot(left, right, top, top + PANEL, axis, axis)
    plot.draw_grid(svg, marks)
    svg.line((left, plot.bottom), (right, plot.bottom), "soft", 0.8)
    for place, arm in enumerate(arms):
        arm.draw(svg, plot, top - 4 - _NAME * (len(arms) - place), coarse)
    _draw_levels(svg, plot, arms)
    _draw_processes(svg, plot, max(arms, key=lambda arm: len(arm.turns), default=None))
    draw_notes(svg, lines)
    return svg.render()


def _axis(arms: Sequence[_Arm]) -> Axis:
    """From the fastest sample of all to the slowest that is not a hiccup."""
    known = [arm for arm in arms if arm.samples]
    low = min((arm.samples[0] for arm in known), default=1.0) / ROOM
    high = max((arm.tail for arm in known), default=low)
    return Axis(low, max(high, low * LEAST_FACTOR) * ROOM * ROOM, log=True)


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
