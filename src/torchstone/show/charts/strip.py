"""Every sample of a result, by process and turn: what the figures were made from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchstone.records import Measurement
from torchstone.show.charts.data import (
    LARGEST,
    SECONDS,
    SampleTurn,
    Strip,
    axis_marks,
    format_value,
)
from torchstone.show.charts.frame import cross, left_room, look, up
from torchstone.show.rows import Figures
from torchstone.show.svg import LogAxis, Svg, number, spread_labels, text_width
from torchstone.show.table import sanitise, shorten, wrap

WIDTH, PANEL = 640, 118
MOST_DOTS = 5000
"""Of one arm; beyond, each turn keeps its fastest, its slowest and every k-th sample by rank."""
MOST_TURNS = 2000
TAIL = 0.98
"""The axis ends at this quantile of the samples: one hiccup must not squash the rest. What is
slower stands on the upper edge, as a triangle."""
LEAST_FACTOR = 1.05
ROOM = 1.01
_TITLE, _NAME, _PROCESSES, _GAP, _NOTE = 28.0, 20.0, 22.0, 10.0, 15.0
_SMALL = 11.0
_LEVELS = 108.0


@dataclass(frozen=True)
class _Panel:
    """One arm's place: where its turns begin, how wide a turn is, and its axis."""

    strip: Strip
    axis: LogAxis
    left: float
    right: float
    top: float
    bottom: float

    @cached_property
    def starts(self) -> list[float]:
        """The left edge of each turn; there is a gap between processes."""
        x, found = self.left + 4, []
        for before, turn in zip((None, *self.strip.turns), self.strip.turns, strict=False):
            if before is not None and before.process != turn.process:
                x += self.gap
            found.append(x)
            x += self.turn_width
        return found

    @cached_property
    def gap(self) -> float:
        """Between processes: less where there are many."""
        return min(_GAP, 0.3 * (self.right - self.left - 8) / self._processes)

    @cached_property
    def turn_width(self) -> float:
        """The same for all turns."""
        room = self.right - self.left - 8 - self.gap * (self._processes - 1)
        return room / max(1, len(self.strip.turns))

    @cached_property
    def _processes(self) -> int:
        return max(1, len({turn.process for turn in self.strip.turns}))

    def y(self, seconds: float) -> float:
        """Down; what is slower than the axis stands on the upper edge."""
        share = min(max(self.axis.share(seconds), 0.0), 1.0)
        return self.bottom - share * (self.bottom - self.top)


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
    strips: Sequence[Strip], *, title: str, width: int = WIDTH, embedded: bool = True
) -> str:
    """The chart as SVG: one panel an arm, whose axes all span the same factor."""
    kept = [_usable(strip) for strip in strips]
    notes = [note for strip in kept for note in _notes(strip)]
    lines = [row for text in notes for row in wrap(sanitise(text), int(width / 6.4))]
    top = _TITLE if title else 6.0
    each = _NAME + PANEL + _PROCESSES
    height = math.ceil(top + each * max(1, len(kept)) + _NOTE * len(lines) + 6)
    counts = ", ".join(f"{strip.name}: {_all_samples(strip)} samples" for strip in kept)
    svg = Svg(width, height, title, counts or "No samples.", embedded, "strip")
    if title:
        fit = int((width - 24) / text_width("x", 14))
        svg.text((12, 20), shorten(sanitise(title), fit), size=14, bold=True)
    factor = max((_factor(strip) for strip in kept), default=LEAST_FACTOR)
    for place, strip in enumerate(kept):
        _draw_panel(svg, strip, place, factor, top + place * each)
    for number_, text in enumerate(lines):
        svg.text((12, height - _NOTE * (len(lines) - number_) + 4), text, "soft", _SMALL)
    return svg.render()


def _usable(strip: Strip) -> Strip:
    """Without what cannot be drawn: turns beyond the limit, times that are none."""
    turns = []
    for turn in strip.turns[:MOST_TURNS]:
        good = [i for i, s in enumerate(turn.samples) if 1 / LARGEST < s < LARGEST]
        dirty = frozenset(new for new, old in enumerate(good) if old in turn.dirty)
        samples = tuple(turn.samples[i] for i in good)
        turns.append(SampleTurn(turn.process, turn.index, samples, dirty))
    return Strip(strip.name, tuple(turns), strip.floor, strip.typical, strip.role)


def _all_samples(strip: Strip) -> int:
    return sum(len(turn.samples) for turn in strip.turns)


def _sorted(strip: Strip) -> list[float]:
    return sorted(sample for turn in strip.turns for sample in turn.samples)


def _factor(strip: Strip) -> float:
    samples = _sorted(strip)
    if not samples:
        return LEAST_FACTOR
    return max(LEAST_FACTOR, samples[int(TAIL * (len(samples) - 1))] / samples[0])


def _every(strip: Strip) -> int:
    return max(1, math.ceil(_all_samples(strip) / MOST_DOTS))


def _notes(strip: Strip) -> Iterator[str]:
    every = _every(strip)
    if every > 1:
        yield (
            f"{strip.name}: each turn's fastest and slowest sample and every {every}th between, "
            f"of {_all_samples(strip):,}"
        )


def _draw_panel(svg: Svg, strip: Strip, place: int, factor: float, top: float) -> None:
    samples = _sorted(strip)
    low = (samples[0] if samples else 1.0) / ROOM
    axis = LogAxis(low, low * factor * ROOM * ROOM)
    marks = axis_marks(axis, SECONDS, 4)
    left = left_room(marks)
    right = svg.width - (12 if strip.floor is None and strip.typical is None else _LEVELS)
    panel = _Panel(strip, axis, left, right, top + _NAME + 4, top + _NAME + PANEL)
    colour = look(place if strip.role is None else strip.role).colour
    slower = sum(sample > axis.high for sample in samples)
    dirty = sum(len(turn.dirty) for turn in strip.turns)
    _draw_heading(svg, panel, top, colour, (len(samples), dirty, slower))
    for value, text in marks:
        svg.line((left, panel.y(value)), (panel.right, panel.y(value)), "grid")
        svg.text((left - 8, panel.y(value) + 4), text, "soft", _SMALL, "end")
    svg.line((left, panel.bottom), (panel.right, panel.bottom), "soft", 0.8)
    _draw_levels(svg, panel, colour)
    _draw_samples(svg, panel, colour)
    _draw_turns(svg, panel)


def _draw_heading(
    svg: Svg, panel: _Panel, top: float, colour: str, counts: tuple[int, int, int]
) -> None:
    """The arm's name, and what its signs mean."""
    samples, dirty, slower = counts
    name = shorten(sanitise(panel.strip.name), 40)
    svg.path(f"M16 {number(top + 11)}h0", stroke=colour, thick=7)
    svg.text((26, top + 15), name, "ink", 12, bold=True)
    x = 26 + text_width(name, 12.6) + 14
    said = [f"{samples:,} samples"]
    if slower:
        said.append(f"{slower} slower than shown (▲)")
    svg.text((x, top + 15), " · ".join(said), "soft", _SMALL)
    if dirty:
        x += text_width(" · ".join(said), _SMALL) + 16
        svg.path(cross(x, top + 11, 2.6), stroke="soft", thick=1.4)
        svg.text((x + 8, top + 15), f"{dirty} while the core ran slow", "soft", _SMALL)


def _draw_levels(svg: Svg, panel: _Panel, colour: str) -> None:
    """What was made of the samples: the floor, and the typical time."""
    found = [
        (name, value)
        for name, value in (("floor", panel.strip.floor), ("typical", panel.strip.typical))
        if value is not None and panel.axis.low <= value <= panel.axis.high
    ]
    heights = [panel.y(value) for _, value in found]
    beside = spread_labels(heights, 13.0, panel.top, panel.bottom)
    for (name, value), y, label in zip(found, heights, beside, strict=True):
        svg.line((panel.left, y), (panel.right, y), colour, 1.2, dashed=name == "typical")
        words = f"{name} {format_value(value, SECONDS)}"
        svg.text((panel.right + 6, label + 4), words, colour, _SMALL)


def _draw_samples(svg: Svg, panel: _Panel, colour: str) -> None:
    clean, dirty, above = [], [], []
    every = _every(panel.strip)
    for start, turn in zip(panel.starts, panel.strip.turns, strict=True):
        step = panel.turn_width * 0.86 / max(1, len(turn.samples))
        for place in _chosen(turn, every):
            sample = turn.samples[place]
            x, y = start + (place + 0.5) * step, panel.y(sample)
            if sample > panel.axis.high:
                above.append(up(x, panel.top + 3, 2.6))
            elif place in turn.dirty:
                dirty.append(cross(x, y, 1.9))
            else:
                clean.append(f"M{number(x)} {number(y)}h0")
    if clean:
        svg.path("".join(clean), stroke=colour, thick=2.6, opacity=0.55)
    if dirty:
        svg.path("".join(dirty), stroke="soft", thick=1.0, opacity=0.6)
    if above:
        svg.path("".join(above), fill=colour)


def _chosen(turn: SampleTurn, every: int) -> list[int]:
    """Which samples of a turn are drawn: by rank, so that the shape stays; the ends always."""
    if every == 1:
        return list(range(len(turn.samples)))
    order = sorted(range(len(turn.samples)), key=lambda place: turn.samples[place])
    return sorted({*order[::every], *order[-1:]})


def _draw_turns(svg: Svg, panel: _Panel) -> None:
    """The processes by name below, and each turn's figures where it is pointed at."""
    starts = panel.starts
    processes: dict[int, list[float]] = {}
    for start, turn in zip(starts, panel.strip.turns, strict=True):
        processes.setdefault(turn.process, []).append(start)
        svg.area(
            (start, panel.top), (panel.turn_width, panel.bottom - panel.top), _turn_words(turn)
        )
    shown = -math.inf
    for process, mine in processes.items():
        middle = (mine[0] + mine[-1] + panel.turn_width) / 2
        svg.line(
            (mine[0], panel.bottom + 3), (mine[-1] + panel.turn_width, panel.bottom + 3), "soft"
        )
        words = f"process {process + 1}"
        half = text_width(words, _SMALL) / 2
        if middle - half < shown:
            continue
        svg.text((middle, panel.bottom + 16), words, "soft", _SMALL, "middle")
        shown = middle + half + 6


def _turn_words(turn: SampleTurn) -> str:
    words = f"process {turn.process + 1}, turn {turn.index + 1}: {len(turn.samples)} samples"
    if turn.samples:
        fastest, slowest = (
            format_value(t, SECONDS) for t in (min(turn.samples), max(turn.samples))
        )
        words += f", {fastest} to {slowest}"
    return words + (f", {len(turn.dirty)} while the core ran slow" if turn.dirty else "")
