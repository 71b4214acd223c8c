"""Changes of level in stored series: which, since which run, how large, and whose doing."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timezone
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from torchstone.records import (
    OURS,
    ChangeReport,
    FalseAlarms,
    LevelChange,
    MissingData,
    SeriesKey,
    SeriesRun,
)
from torchstone.records.metrics import HIGHER
from torchstone.stats.changepoints import (
    LEAST_VALUES,
    AlarmCalibration,
    Scan,
    calibrate,
    level_of,
    scan,
)
from torchstone.stats.series import Line, Lines
from torchstone.track.series import BASE, NEW, SPEEDUP

if TYPE_CHECKING:
    from torchstone.stats.estimators import Floats
    from torchstone.store.imported import ChangeNote

LEAST = 0.03
"""The least effect: asv tells of 5 % and more, Perfherder of 2 or 3 %."""
SAME_PLACE = 2
"""Runs that a change may move by when values are added, and still be the same change."""
SHARED, LEAST_SHARED = 0.3, 5
"""A change is the machine's where at least this share of the series of its machine, and so many,
moved the same way at the same run. One change of code seldom moves a third of all benchmarks; a
new kernel or another load moves nearly all."""
SIDES = {BASE: "eager", NEW: "compiled"}
BESIDE = 8
"""Values on either side of a change of a speed-up by which its sides are looked at: farther off
they may have changed on their own."""
ERROR_OF_MEDIAN = 1.2533
"""Of normal values, over the error of their mean."""
COUNTS_AS_MOVED = 0.5
"""Of the least effect: a side of a speed-up that moved by so much, beyond its interval, moved."""

OPEN, CONFIRMED, ACKNOWLEDGED = "open", "confirmed", "acknowledged"
MUTED, CLOSED = "muted", "closed"
REFUTED = "refuted"
"""Said of a change whose two commits were measured again and do not differ: it is closed."""
STATES = (OPEN, CONFIRMED, ACKNOWLEDGED, MUTED, CLOSED)


@dataclass(frozen=True, eq=False)
class _Place:
    """A change of a series, before it is told."""

    line: Line
    at: int
    change: LevelChange
    span: tuple[int, int]
    """The first and last value that it may as well begin with."""


def find_regressions(
    lines: Lines,
    notes: Sequence[ChangeNote] = (),
    *,
    least: float = LEAST,
    since_s: float | None = None,
    now_s: float | None = None,
    asked: str = "",
) -> ChangeReport:
    """Every change of level of at least `least`, the largest first."""
    used = [line for line in lines.lines if line.values.size >= LEAST_VALUES]
    many = [line.values for line in used]
    looked = scan(many)
    tried = calibrate(many, looked.changes_of, lambda some, factor: _alarms(some, least, factor))
    found = looked.changes(tried.factor)
    places = [
        place
        for line, several in zip(used, found, strict=True)
        for place in _told(lines, line, several, least)
    ]
    shared = _shared(places, used)
    changes = [_with_machine(place, shared) for place in _of_one_cause(places)]
    changes = [_with_state(one, notes, now_s) for one in changes]
    if since_s is not None:
        changes = [one for one in changes if one.first_bad.at >= since_s]
    changes.sort(key=lambda one: (not one.worse, -abs(_log(one.ratio)), one.key.title))
    return ChangeReport(
        tuple(changes),
        tuple(missing_data(lines, now_s)) if lines.cases else (),
        len(used),
        sum(values.size for values in many),
        len(lines.lines) - len(used),
        least,
        _rate(tried, len(used)),
        asked,
    )


def changes_of(lines: Lines, least: float = LEAST) -> dict[str, list[LevelChange]]:
    """The changes of each of a few series, by its ident; for a plot or a page."""
    used = [line for line in lines.lines if line.values.size >= LEAST_VALUES]
    found = scan([line.values for line in used]).changes()
    return {
        line.ident: [place.change for place in _told(lines, line, several, least)]
        for line, several in zip(used, found, strict=True)
    }


def _rate(tried: AlarmCalibration, series: int) -> FalseAlarms:
    expected = series * tried.rate if tried.rate is not None else 0.0
    return FalseAlarms(
        tried.rate, tried.interval, tried.flagged, tried.tested, tried.factor, expected
    )


def _alarms(looked: Scan, least: float, factor: float) -> list[bool]:
    """Whether each would be told of: the whole rule, without its words."""
    return [
        any(True for _ in _levels(values, several, least))
        for values, several in zip(looked.many, looked.changes(factor), strict=True)
    ]


def _levels(values: Floats, several: Sequence[int], least: float) -> Iterable[tuple[int, int, int]]:
    """The changes that are large enough, each between its neighbours."""
    ends = (0, *several, values.size)
    middles = [float(np.median(values[a:b])) for a, b in pairwise(ends)]
    for number, at in enumerate(several):
        old, new = middles[number], middles[number + 1]
        size = abs(_log(new / old)) if old > 0 < new else abs(new - old) / (abs(old) or 1e-300)
        if size >= math.log1p(least):
            yield ends[number], at, ends[number + 2]


def _log(ratio: float) -> float:
    return math.log(ratio) if 0.0 < ratio < math.inf else math.inf


def _told(lines: Lines, line: Line, several: Sequence[int], least: float) -> Iterable[_Place]:
    for start, at, end in _levels(line.values, several, least):
        level = level_of(line.values, start, at, end)
        grew = level.after > level.before
        worse = grew != (line.key.better == HIGHER)
        last_good, first_bad = lines.run(line, at - 1), lines.run(line, at)
        change = LevelChange(
            id=change_id(line.key, first_bad),
            key=line.key,
            last_good=last_good,
            first_bad=first_bad,
            earliest=lines.run(line, level.first),
            latest=lines.run(line, level.last),
            ratio=level.ratio,
            interval=level.interval,
            before=level.before,
            after=level.after,
            strength=level.strength,
            worse=worse,
            values_before=at - start,
            values_after=end - at,
            moved=_moved(line, start, at, end, least),
            case=line.case,
        )
        change = _closed_by_itself(lines, line, change, at, several, least)
        yield _Place(line, at, change, (min(level.first, at), max(level.last, at)))


def change_id(key: SeriesKey, first_bad: SeriesRun) -> str:
    """Eight letters that name a change as long as it begins at that run."""
    text = "\0".join((*astuple(key), first_bad.id, first_bad.commit))
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=4).hexdigest()


def _moved(line: Line, start: int, at: int, end: int, least: float) -> str:
    """Which side's time is another since then; of series that are not speed-ups, nothing."""
    if line.sides is None:
        return SIDES.get(line.key.metric, "")
    start, end = max(start, at - BESIDE), min(end, at + BESIDE)
    names = []
    for name, times in zip(SIDES.values(), line.sides, strict=True):
        if np.isfinite(times[start:end]).all() and _shifted(
            np.log(times[start:end]), at - start, least
        ):
            names.append(name)
    return "both" if len(names) == 2 else "".join(names)


def _shifted(logs: Floats, at: int, least: float) -> bool:
    """Whether the middle of a few values is another from a place on, beyond three errors."""
    old, new = logs[:at], logs[at:]
    rest = np.concatenate([old - np.median(old), new - np.median(new)])
    sigma = 1.4826 * float(np.median(np.abs(rest)))
    error = ERROR_OF_MEDIAN * sigma * math.sqrt(1 / old.size + 1 / new.size)
    shift = abs(float(np.median(new) - np.median(old)))
    return shift > 3.0 * error and shift >= COUNTS_AS_MOVED * math.log1p(least)


def _closed_by_itself(
    lines: Lines, line: Line, change: LevelChange, at: int, several: Sequence[int], least: float
) -> LevelChange:
    """A change for the worse that a later one took back, wholly or but for the least effect."""
    later = [place for place in several if place > at]
    if not change.worse or not later:
        return change
    ends = [*later, line.values.size]
    for begin, end in pairwise(ends):
        level = float(np.median(line.values[begin:end]))
        ratio = level / change.before if change.before else math.inf
        worse_by = 1.0 / ratio if line.key.better == HIGHER and ratio > 0 else ratio
        if worse_by < 1.0 + least:
            back = lines.run(line, begin)
            words = f"went away with {back.commit[:10] or back.id} on {day(back.at)}"
            return replace(change, state=CLOSED, reason=words)
    return change


def day(at: float) -> str:
    """A date of a run."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d") if at else "an unknown day"


# One cause, one entry.


def _of_one_cause(places: Sequence[_Place]) -> list[_Place]:
    """Of changes of one case at one run, the one that says most.

    A speed-up that changed because compiled did stands for both. Where eager moved alone, eager is
    what changed; where both moved alike, the speed-up did not, and compiled stands for them.
    """
    by_case: dict[tuple[object, str, str], list[_Place]] = defaultdict(list)
    kept = []
    for place in places:
        if place.line.case is None or place.line.key.metric not in (SPEEDUP, BASE, NEW):
            kept.append(place)
        else:
            key = place.line.key
            by_case[place.line.case, key.machine, key.environment].append(place)
    for several in by_case.values():
        kept += _joined(several)
    return kept


def _joined(several: Sequence[_Place]) -> Iterable[_Place]:
    left = sorted(several, key=lambda place: place.change.first_bad.at)
    while left:
        first = left[0]
        near = [place for place in left if _same_time(first, place)]
        left = [place for place in left if place not in near]
        by_metric = {place.line.key.metric: place for place in near}
        speedup, eager = by_metric.get(SPEEDUP), by_metric.get(BASE)
        sides = [name for metric, name in SIDES.items() if metric in by_metric]
        if speedup is not None and sides:  # their own changes are surer than a look beside this one
            moved = "both" if len(sides) == 2 else sides[0]
            speedup = replace(speedup, change=replace(speedup.change, moved=moved))
        if speedup is not None and not (speedup.change.moved == "eager" and eager is not None):
            yield speedup
        elif speedup is None and eager is not None and NEW in by_metric:
            compiled = by_metric[NEW]
            yield replace(compiled, change=replace(compiled.change, moved="both"))
        else:
            yield eager or by_metric[NEW]


def _same_time(one: _Place, other: _Place) -> bool:
    runs = [*dict.fromkeys((*one.line.runs, *other.line.runs))]
    spots = [runs.index(place.line.runs[place.at]) for place in (one, other)]
    return abs(spots[0] - spots[1]) <= SAME_PLACE


# Whose doing: what else changed at the same run.


def _lane(key: SeriesKey) -> tuple[str, ...]:
    return key.tool, key.suite, key.machine, key.environment, key.metric


def _shared(
    places: Sequence[_Place], used: Sequence[Line]
) -> Mapping[tuple[object, ...], tuple[int, int]]:
    """How many series of a lane changed at a run or next to it in a direction, and how many had a
    value there."""
    exact: dict[tuple[object, ...], set[str]] = defaultdict(set)
    near: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for place in places:
        line, at, grew = place.line, place.at, place.change.ratio > 1
        exact[(*_lane(line.key), line.runs[at], grew)].add(line.ident)
        for beside in line.runs[max(0, at - 1) : at + 2]:
            near[(*_lane(line.key), beside, grew)].add(line.ident)
    moved = {key: len(near[key]) for key in exact}
    there: dict[tuple[object, ...], int] = defaultdict(int)
    wanted = {key[:-1] for key in moved}
    lanes = {key[:-1] for key in wanted}
    for line in used:
        lane = _lane(line.key)
        if lane in lanes:
            for run in line.runs:
                if (*lane, run) in wanted:
                    there[(*lane, run)] += 1
    return {key: (number, there[key[:-1]]) for key, number in moved.items()}


def _with_machine(
    place: _Place, shared: Mapping[tuple[object, ...], tuple[int, int]]
) -> LevelChange:
    change, key = place.change, place.line.key
    first, last = place.span
    lane, grew, reasons = _lane(key), change.ratio > 1, []
    # Wherever it may have begun: noise moves the change of one series by a few runs.
    counts = [shared.get((*lane, run, grew), (0, 0)) for run in place.line.runs[first : last + 1]]
    moved, there = max(counts)
    if moved >= LEAST_SHARED and moved >= SHARED * there:
        reasons.append(f"{moved} of {there} series of this machine moved the same way at this run")
    if key.tool == OURS and change.last_good.torch != change.first_bad.torch:
        reasons.append(f"torch changed: {change.last_good.torch} → {change.first_bad.torch}")
    return replace(change, machine="; ".join(reasons))


# What people said of a change.


def _with_state(
    change: LevelChange, notes: Sequence[ChangeNote], now_s: float | None
) -> LevelChange:
    """The last word counts; a mute ends by itself, and what went away is closed anyway."""
    said = [note for note in notes if is_of(note, change)]
    if not said:
        return change
    last = said[-1]
    change = replace(change, id=said[0].change)
    if change.state == CLOSED:
        return change
    if last.action == MUTED and last.until and _ended(last.until, now_s):
        words = f"was muted until {last.until}: {last.reason}"
        return replace(change, state=OPEN, reason=words)
    state = {REFUTED: CLOSED, "reopened": OPEN}.get(last.action, last.action)
    return replace(change, state=state, reason=last.reason, until=last.until)


def _ended(until: str, now_s: float | None) -> bool:
    moment = (
        datetime.now(timezone.utc) if now_s is None else datetime.fromtimestamp(now_s, timezone.utc)
    )
    return moment.strftime("%Y-%m-%d") > until


def is_of(note: ChangeNote, change: LevelChange) -> bool:
    """Whether a note speaks of this change: the same series and direction, at the same place.

    With more values a change may be found a run or two away, so a note holds the moments between
    which it is the same.
    """
    about = note.document
    return (
        about.get("series") == list(astuple(change.key))
        and about.get("worse") == change.worse
        and about.get("from", math.inf) <= change.first_bad.at <= about.get("to", -math.inf)
    )


def note_document(change: LevelChange) -> dict[str, object]:
    """What a note says of which change it means."""
    ends = (change.last_good.at, change.earliest.at, change.first_bad.at, change.latest.at)
    return {
        "series": list(astuple(change.key)),
        "worse": change.worse,
        "from": min(ends),
        "to": max(ends),
    }


# Data that should be there and is not.

LEAST_RUNS = 5
"""Runs of a machine and branch from which on they have a rhythm."""
LATE = 3.0
"""Times the usual gap between runs."""
LEAST_LATE_S = 36 * 3600.0
"""A nightly that is half a day late is not missing."""
FORGOTTEN = 20.0
"""Times the usual gap: a machine or branch that is silent for so long has been retired."""
LOOKED_BACK = 30
"""Gaps between the newest runs that are told of."""
RECENT = 5


def missing_data(lines: Lines, now_s: float | None = None) -> Iterable[MissingData]:
    """Nights without a run, and suites and models that the newest run lacks."""
    now = datetime.now(timezone.utc).timestamp() if now_s is None else now_s
    runs = lines.runs[OURS]
    by_lane: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in lines.cases:
        by_lane[row.lane][row.run].add(row.series)
    for lane, of_runs in by_lane.items():
        order = sorted(of_runs, key=lambda run: (runs[run].at, run))
        if len(order) >= LEAST_RUNS:
            yield from _late(lines.lanes[lane], [runs[run] for run in order], now)
            yield from _absent(lines, order, of_runs)


def _late(lane: tuple[str, str], order: Sequence[SeriesRun], now: float) -> Iterable[MissingData]:
    times = np.array([run.at for run in order])
    usual = float(np.median(np.diff(times[-2 * LOOKED_BACK :])))
    limit = max(LATE * usual, LEAST_LATE_S)
    name = f"{order[-1].machine or lane[0]}, branch {lane[1] or '?'}"
    silent = now - times[-1]
    if limit < silent < max(FORGOTTEN * usual, 2 * limit):
        detail = f"no run for {_days(silent)}; usually there is one every {_days(usual)}"
        yield MissingData("run", name, order[-1], detail)
    newest = order[-LOOKED_BACK - 1 :]
    for before, after in pairwise(newest):
        if after.at - before.at > limit:
            gap = _days(after.at - before.at)
            detail = f"no run between {day(before.at)} and {day(after.at)}: {gap}"
            yield MissingData("run", name, before, detail)


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:.1f} days" if seconds >= 86_400 else f"{seconds / 3600:.1f} hours"


def _absent(
    lines: Lines, order: Sequence[int], of_runs: Mapping[int, set[int]]
) -> Iterable[MissingData]:
    """What most of the runs before had, and the newest has not."""
    runs, newest, before = lines.runs[OURS], order[-1], order[-RECENT - 1 : -1]
    counts: dict[int, int] = defaultdict(int)
    for run in before:
        for series in of_runs[run]:
            counts[series] += 1
    usual = {series for series, number in counts.items() if 2 * number > len(before)}
    gone = usual - of_runs[newest]
    suites: dict[str, list[int]] = defaultdict(list)
    for series in gone:
        suites[lines.keys[series].suite].append(series)
    for suite, several in sorted(suites.items()):
        expected = [series for series in usual if lines.keys[series].suite == suite]
        last = max((run for run in before if of_runs[run] & set(several)), key=order.index)
        if len(several) == len(expected):
            detail = f"all of its {len(expected)} cases are missing from the newest run"
            yield MissingData("suite", suite, runs[last], detail)
            continue
        for name in sorted({lines.keys[series].name for series in several}):
            yield MissingData("model", name, runs[last], "missing from the newest run")
