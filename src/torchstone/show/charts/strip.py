"""Every sample of a result, by process and turn: what the figures were made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torchstone.records import Measurement
from torchstone.records.format import format_seconds
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

PANEL = 118
MOST_DOTS = 5000
"""Of one arm; beyond, each turn keeps its fastest, its slowest and every k-th sample by rank."""
MOST_TURNS = 2000
TAIL = 0.98
"""The axis ends at this quantile of the samples: one hiccup must not squash the rest. What is
slower stands on the upper edge, as a triangle."""
LEAST_FACTOR = 1.05
ROOM = 1.01
_TITLE, _NAME, _PROCESSES, _GAP = 28.0, 20.0, 22.0, 10.0
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


def strip_chart(strips: Sequence[Strip], *, title: str, embedded: bool = True) -> str:
    """The chart as SVG: one panel an arm, whose axes all span the same factor."""
    panels = [_Panel(strip, place) for place, strip in enumerate(strips)]
    lines = note_lines([panel.note for panel in panels], WIDE)
    top = _TITLE if title else 6.0
    each = _NAME + PANEL + _PROCESSES
    height = math.ceil(top + each * max(1, len(panels)) + NOTE * len(lines) + 6)
    counts = ", ".join(f"{one.name}: {len(one.samples)} samples" for one in panels)
    svg = Svg(WIDE, height, title, counts or "No samples.", embedded, "strip")
    draw_title(svg, 20)
    factor = max((panel.factor for panel in panels), default=LEAST_FACTOR)
    for place, panel in enumerate(panels):
        panel.draw(svg, factor, top + place * each)
    draw_notes(svg, lines)
    return svg.render()


class _Panel:
    """One arm, without what cannot be drawn: turns beyond the limit, times that are none."""

    def __init__(self, strip: Strip, place: int) -> None:
        self.name = strip.name
        self.turns = [_usable(turn) for turn in strip.turns[:MOST_TURNS]]
        self.samples = sorted(sample for turn in self.turns for sample in turn.samples)
        self._levels = {"floor": strip.floor, "typical": strip.typical}
        self._colour = look(place if strip.role is None else strip.role).colour
        self._every = max(1, math.ceil(len(self.samples) / MOST_DOTS))

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
    def factor(self) -> float:
        """What the axis has to span."""
        if not self.samples:
            return LEAST_FACTOR
        tail = self.samples[int(TAIL * (len(self.samples) - 1))]
        return max(LEAST_FACTOR, tail / self.samples[0])

    def draw(self, svg: Svg, factor: float, top: float) -> None:
        """The whole panel, with its heading at the top."""
        low = (self.samples[0] if self.samples else 1.0) / ROOM
        axis = Axis(low, low * factor * ROOM * ROOM, log=True)
        marks = axis_marks(axis, SECONDS, 4)
        left, right = left_room(marks), WIDE - (_LEVELS if any(self._levels.values()) else 12)
        plot = Plot(left, right, top + _NAME + 4, top + _NAME + PANEL, axis, axis)
        self._draw_heading(svg, axis, top)
        plot.draw_grid(svg, marks)
        svg.line((left, plot.bottom), (right, plot.bottom), "soft", 0.8)
        self._draw_levels(svg, plot)
        starts, width = self._places(plot)
        self._draw_samples(svg, plot, starts, width)
        self._draw_turns(svg, plot, starts, width)

    def _places(self, plot: Plot) -> tuple[list[float], float]:
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
        svg.path(f"M16 {number(top + 11)}h0", stroke=self._colour, thick=7)
        svg.text((26, top + 15), name, "ink", 12, bold=True)
        x = 26 + text_width(name, 12.6) + 14
        slower = sum(sample > axis.high for sample in self.samples)
        said = f"{len(self.samples):,} samples"
        said += f" · {slower} slower than shown (▲)" if slower else ""
        svg.text((x, top + 15), said, "soft", SMALL)
        dirty = sum(len(turn.dirty) for turn in self.turns)
        if dirty:
            x += text_width(said, SMALL) + 16
            svg.path(cross(x, top + 11, 2.6), stroke="soft", thick=1.4)
            svg.text((x + 8, top + 15), f"{dirty} while the core ran slow", "soft", SMALL)

    def _draw_levels(self, svg: Svg, plot: Plot) -> None:
        """What was made of the samples: the floor, and the typical time."""
        found = [
            (name, value)
            for name, value in self._levels.items()
            if value is not None and plot.up.low <= value <= plot.up.high
        ]
        label = math.inf
        for name, value in found:
            y = plot.y(value)
            label = min(y, label - 13.0)  # the typical time is above the floor; so are its words
            svg.line((plot.left, y), (plot.right, y), self._colour, 1.2, dashed=name == "typical")
            words = f"{name} {format_seconds(value, 3)}"
            svg.text((plot.right + 6, label + 4), words, self._colour, SMALL)

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
                    dirty.append(cross(x, y, 1.9))
                else:
                    clean.append(f"M{number(x)} {number(y)}h0")
        if clean:
            svg.path("".join(clean), stroke=self._colour, thick=2.6, opacity=0.55)
        if dirty:
            svg.path("".join(dirty), stroke="soft", thick=1.0, opacity=0.6)
        if above:
            svg.path("".join(above), fill=self._colour)

    def _draw_turns(self, svg: Svg, plot: Plot, starts: list[float], width: float) -> None:
        """The processes by name below, and each turn's figures where it is pointed at."""
        processes: dict[int, list[float]] = {}
        for start, turn in zip(starts, self.turns, strict=True):
            processes.setdefault(turn.process, []).append(start)
            svg.area((start, plot.top), (width, plot.bottom - plot.top), _turn_words(turn))
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


def _turn_words(turn: SampleTurn) -> str:
    words = f"process {turn.process + 1}, turn {turn.index + 1}: {len(turn.samples)} samples"
    if turn.samples:
        ends = (min(turn.samples), max(turn.samples))
        words += f", {' to '.join(format_seconds(end, 3) for end in ends)}"
    return words + (f", {len(turn.dirty)} while the core ran slow" if turn.dirty else "")
