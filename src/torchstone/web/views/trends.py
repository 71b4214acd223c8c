"""Suites over time: a line a group, each point with its denominator, and no line of two kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from torchstone.records import FOREIGN_DEFINITION, GroupPoint, Mean, Outcome, RunHead
from torchstone.records import SuiteSummary as Summary
from torchstone.show.run_words import Labels, count
from torchstone.show.text import sanitise
from torchstone.web.cells import commit_of, cut, machine_title, run_title
from torchstone.web.page import Chart, Point, Series
from torchstone.web.sources import MOST_POINTS
from torchstone.web.views.parts import group_key, suite_place

MOST_SERIES = 12
"""Lines of one chart: more cannot be told apart."""
BARS = "Bars are 95 % intervals."
HOLLOW = "Hollow: the run ended before this suite did, so the figure is over fewer cases."


@dataclass(frozen=True)
class Lines:
    """What is said of a point in its line's name: the run's machine and branch, and the definition
    of its figures, where there are several.

    Times of two machines, versions of two branches and figures of two definitions are never joined
    by one line.
    """

    machines: bool
    branches: bool
    definitions: tuple[int, ...]

    @classmethod
    def of(cls, points: Iterable[tuple[RunHead, int | None]]) -> Lines:
        """In what these differ: runs, and the definition of figures; None where there are none."""
        known = {(run.machine_id, run.branch, definition) for run, definition in points}
        machines, branches = ({one[place] for one in known} for place in (0, 1))
        definitions = {one[2] for one in known if one[2] is not None}
        return cls(len(machines) > 1, len(branches) > 1, tuple(sorted(definitions)))

    def words(self, run: RunHead, definition: int | None) -> str:
        """`Xeon Platinum 8370C m-0123 main`; empty where all points are of one line."""
        machine = machine_title(run.machine_id, run.machine) or "an unknown machine"
        branch = cut(sanitise(run.branch), 24) or "no branch"
        parts = (machine if self.machines else "", branch if self.branches else "")
        return " ".join(part for part in (*parts, self._definition(definition)) if part)

    def _definition(self, definition: int | None) -> str:
        """Nothing for the newest, and for what has no figures."""
        if definition is None or definition == self.definitions[-1]:
            return ""
        foreign = definition == FOREIGN_DEFINITION
        return "of another tool" if foreign else f"by definition {definition}"


def newest_lines(lines: Mapping[str, Sequence[Point]], most: int = MOST_SERIES) -> list[str]:
    """The names of those that are drawn, in their order: where there are more, those with the
    newest points."""
    if len(lines) <= most:
        return list(lines)
    newest = sorted(lines, key=lambda name: -lines[name][-1].time_s)[:most]
    return [name for name in lines if name in set(newest)]


def left_out(many: int) -> str:
    """A sentence where there are more lines than a chart has."""
    if many <= 0:
        return ""
    lines = "1 more line is" if many == 1 else f"{many} more lines are"
    return f"{lines} left out; choose a variant, a machine or a branch."


def newest_only(points: Sequence[GroupPoint]) -> str:
    """A sentence where there may be more points than were asked for."""
    if len(points) < MOST_POINTS:
        return ""
    return f" Only the newest {MOST_POINTS:,} figures are drawn; choose one run a day or a week."


Figure = Callable[[Summary], Mean]


@dataclass(frozen=True)
class _Placed:
    """A suite in a run, with what all its charts say of it."""

    summary: Summary
    line: str
    blank: Point
    """Without a value."""


def trend_charts(
    points: Sequence[GroupPoint], carried: tuple[tuple[str, str], ...]
) -> tuple[Chart, ...]:
    """Pass rate, speed-up, compile time and memory of one suite over time, a line a group."""
    placed = _placed(points, carried)
    return (
        _trend("speedup", "Geometric mean speed-up", "ratio", placed, _speedup, BARS),
        _trend("pass_rate", "Pass rate", "share", placed, _passes),
        _trend("compile_time", "Compile time, cold", "seconds", placed, _cold),
        _trend("memory_ratio", "Memory ratio", "ratio", placed, _memory),
    )


def _placed(points: Sequence[GroupPoint], carried: tuple[tuple[str, str], ...]) -> list[_Placed]:
    labels = Labels.of(point.summary for point in points)
    rest = tuple(item for item in carried if item[0] not in ("new", "base"))
    known = {point.run.id: point.run for point in points}
    lines = Lines.of((point.run, _definition(point.summary)) for point in points)
    said = {run.id: (commit_of(run) or run.id[:8], run_title(run)) for run in known.values()}
    named = cache(lambda key: sanitise(labels.within_suite(key)))
    where = cache(lambda run_id, definition: lines.words(known[run_id], definition))
    made = []
    for point in points:
        if point.run.created_s is None:
            continue
        label, note = said[point.run.id]
        key = group_key(point.summary)
        to = suite_place(key, (*rest, ("new", point.run.id)))
        passes = point.summary.passes
        blank = Point(
            point.run.created_s,
            None,
            label=label,
            note=note,
            to=to,
            of=passes.counted,
            partial=passes.outcomes.get(Outcome.NOT_RUN.value, 0) > 0,
        )
        line = f"{named(key)} {where(point.run.id, _definition(point.summary))}".rstrip()
        made.append(_Placed(point.summary, line, blank))
    return made


def _definition(summary: Summary) -> int | None:
    """By which its figures are defined, where a case passed and there are any."""
    return summary.figures_definition if summary.passes.passed else None


def _trend(
    name: str, title: str, unit: str, placed: Sequence[_Placed], figure: Figure, note: str = ""
) -> Chart:
    lines: dict[str, list[Point]] = {}
    for one in placed:
        found = figure(one.summary)
        low, high = found.interval or (None, None)
        counts = f"over {found.n} of {count(one.blank.of or 0, 'case')}"
        point = one.blank._replace(
            value=found.value, low=low, high=high, n=found.n, note=f"{counts} · {one.blank.note}"
        )
        lines.setdefault(one.line, []).append(point)
    known = {
        label: made
        for label, made in lines.items()
        if any(point.value is not None for point in made)
    }
    drawn = tuple(Series(label, tuple(known[label])) for label in newest_lines(known))
    stubs = any(p.partial and p.value is not None for one in drawn for p in one.points)
    notes = (note, HOLLOW if stubs else "", left_out(len(known) - len(drawn)))
    return Chart(name, title, unit, drawn, " ".join(part for part in notes if part))


def _speedup(summary: Summary) -> Mean:
    return summary.speedup


def _passes(summary: Summary) -> Mean:
    passes = summary.passes
    return Mean(passes.rate, passes.passed, passes.counted)


def _cold(summary: Summary) -> Mean:
    mean = summary.compile_cold_ns
    return replace(mean, value=None if mean.value is None else mean.value / 1e9)


def _memory(summary: Summary) -> Mean:
    return summary.memory_ratio
