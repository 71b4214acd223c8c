"""What goes into a chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MARKS = ("", "failed", "doubt", "partial", "better", "worse")
"""How a point is drawn: `failed` stands on the floor of the chart, `doubt` is hollow, `partial` is
hollow and no part of the line, `better` and `worse` have a ring."""
HOLLOW = ("doubt", "partial")
LARGEST = 1e30
"""Beyond it, and below its inverse where a logarithm is taken, a number is no figure of ours."""


class Point(NamedTuple):
    """One value. `x` is UTC seconds; `y` is NaN where a run gave no value.

    `low` and `high` are the ends of its interval. `label` stands on the axis (a short hash), `note`
    is told beside the value, `href` is where a click leads.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    label: str = ""
    href: str = ""
    mark: str = ""
    note: str = ""


def has_value(point: Point) -> bool:
    """Whether there is something to put into the frame."""
    return point.mark != "failed" and -LARGEST <= point.y <= LARGEST


def has_interval(point: Point) -> bool:
    """Whether both ends of the interval are known."""
    low, high = point.low, point.high
    known = low is not None and high is not None
    return known and -LARGEST <= (low or 0.0) <= (high or 0.0) <= LARGEST


@dataclass(frozen=True)
class Series:
    """Points that a line joins, oldest first.

    `role` chooses colour, shape and dash, so that one name looks the same in all charts of a page;
    without it, the place in the chart does.
    """

    name: str
    points: tuple[Point, ...]
    role: int | None = None


@dataclass(frozen=True)
class ChangeMark:
    """A place in time worth a mark, such as a change point. `kind` is ``, `better` or `worse`."""

    x: float
    label: str
    href: str = ""
    kind: str = ""


@dataclass(frozen=True)
class SampleTurn:
    """The samples of one turn in the order they were taken, in seconds per call.

    `dirty` are the places of those that were taken while the core ran slow.
    """

    process: int
    index: int
    samples: tuple[float, ...]
    dirty: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Strip:
    """All samples of one arm, and what was made of them, in seconds per call."""

    name: str
    turns: tuple[SampleTurn, ...]
    floor: float | None = None
    typical: float | None = None
    role: int | None = None


@dataclass(frozen=True)
class IntervalRow:
    """One line of a forest plot: a ratio with its interval.

    `verdict` is `better`, `worse`, `same`, `not-worse`, `not-better`, `doubt` or `failed`; a row
    without a value says only its note.
    """

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = "doubt"
    href: str = ""
    note: str = ""
