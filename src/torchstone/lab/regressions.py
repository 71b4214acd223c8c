"""`torchstone history` and `torchstone regressions`: stored figures over time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.interop.histories import find_reader
from torchstone.records import (
    OURS,
    ChangeReport,
    ImportedHistory,
    ImportReport,
    LevelChange,
    Selection,
    UsageError,
)
from torchstone.records.metrics import BY_KEY, METRICS
from torchstone.store import Store, open_store
from torchstone.store.limits import seconds_of

if TYPE_CHECKING:
    from torchstone.stats.series import Line, Lines

DEFAULT_METRICS = ("speedup", "new_ns", "base_ns")
SHORT_NAMES = {
    "compiled": "new_ns",
    "eager": "base_ns",
    "memory": "new_tensor_bytes",
    "compile": "compile_cold_ns",
}
"""What people call them."""


@dataclass(frozen=True)
class SeriesRequest:
    """Which series are looked at. Empty fields leave everything in."""

    text: str = ""
    metrics: tuple[str, ...] = ()
    suite: str = ""
    tool: str = ""
    since: str = ""

    @property
    def words(self) -> str:
        """What was asked for."""
        parts = [
            f"{name} {value}"
            for name in ("tool", "suite", "since")
            if (value := getattr(self, name))
        ]
        parts += [f"name contains {self.text!r}"] if self.text else []
        parts += [f"metric {', '.join(self.metrics)}"] if self.metrics else []
        return ", ".join(parts)


def moment_of(text: str) -> float | None:
    """UTC seconds of a date, or of an age such as `30d` or `8w`; None where there is none."""
    if not text:
        return None
    age = re.fullmatch(r"(\d+)([dwy])", text.strip())
    if age is not None:
        days = int(age[1]) * {"d": 1, "w": 7, "y": 365}[age[2]]
        return (datetime.now(timezone.utc) - timedelta(days=days)).timestamp()
    seconds = seconds_of(text)
    if seconds is None:
        raise UsageError(f"{text[:40]!r} is not a date.", "Write 2026-01-31, or an age: 30d, 8w.")
    return seconds


def metric_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """Our metrics by their keys; a `UsageError` that names them all otherwise."""
    known = [one.key for one in METRICS if one.column and one.better]
    names = []
    for name in wanted:
        key = SHORT_NAMES.get(name, name)
        if key not in known and f"{name}_ns" in known:
            key = f"{name}_ns"
        if key not in known:
            raise UsageError(
                f"There is no metric {name[:40]!r} that can be followed.",
                f"Metrics: {', '.join((*SHORT_NAMES, *known))}.",
            )
        names.append(key)
    return tuple(dict.fromkeys(names))


def load_lines(store: Store, request: SeriesRequest, default: Sequence[str]) -> Lines:
    """The series that are asked for, ours and imported."""
    from torchstone.stats.series import Lines
    from torchstone.track.series import imported_lines, own_lines

    metrics = metric_names(request.metrics) or tuple(default)
    selection = Selection(suite=request.suite)
    none = Lines((), {})
    ours = (
        none
        if request.tool not in ("", OURS)
        else own_lines(store, selection, metrics, request.text)
    )
    others = none
    if request.tool != OURS and not request.metrics:
        others = imported_lines(store, request.text, request.tool)
        if request.suite:
            kept = [one for one in others.lines if one.key.suite == request.suite]
            others = replace(others, lines=kept)
    return Lines(
        (*ours.lines, *others.lines),
        {**ours.runs, **others.runs},
        ours.cases,
        ours.lanes,
        ours.keys,
    )


def history(request: SeriesRequest, db: str | None) -> Lines:
    """The series whose name contains the text; a `UsageError` where there is none."""
    with open_store(db, create=False, read_only=True) as store:
        found = load_lines(store, request, ("speedup",))
    since = moment_of(request.since)
    if since is not None:
        found = replace(
            found, lines=[one for line in found.lines if (one := _after(found, line, since))]
        )
    if not found.lines:
        raise UsageError(
            f"No stored series fits: {request.words or 'the database has none'}.",
            "See `torchstone list runs`, or import a history: `torchstone import asv PATH`.",
        )
    return found


def _after(lines: Lines, line: Line, since: float) -> Line | None:
    first = next((i for i in range(len(line.runs)) if lines.run(line, i).at >= since), None)
    if first is None:
        return None
    sides = None if line.sides is None else (line.sides[0][first:], line.sides[1][first:])
    return replace(line, runs=line.runs[first:], values=line.values[first:], sides=sides)


def regressions(
    request: SeriesRequest, db: str | None, least: float, *, now_s: float | None = None
) -> ChangeReport:
    """Every change of level in the series that are asked for."""
    with open_store(db, create=False, read_only=True) as store, store.snapshot():
        return regressions_of(store, request, least, now_s=now_s)


def regressions_of(
    store: Store, request: SeriesRequest, least: float, *, now_s: float | None = None
) -> ChangeReport:
    """The same of an open store."""
    from torchstone.track.regressions import find_regressions

    lines = load_lines(store, request, DEFAULT_METRICS)
    if not lines.lines:
        raise UsageError(
            f"No stored series fits: {request.words or 'the database has none'}.",
            "See `torchstone list runs`, or import a history: `torchstone import asv PATH`.",
        )
    report = find_regressions(
        lines,
        store.change_notes(),
        least=least,
        since_s=moment_of(request.since),
        now_s=now_s,
        asked=request.words,
    )
    return replace(report, changes=tuple(_with_evidence(store, one) for one in report.changes))


# What else is stored about the two ends of a change.

CALIBRATION_MOVED = 0.03
"""A machine's own peaks that moved by more than this have changed; two calibrations of a quiet
machine agree within 2 % (docs/explanation/calibration.md)."""


def _with_evidence(store: Store, change: LevelChange) -> LevelChange:
    """The calibration and the ledgers of both sides, where there are any."""
    if change.key.tool != OURS or not change.worse:
        return change
    told = _calibration_moved(store, change)
    machine = "; ".join(part for part in (change.machine, told) if part)
    return replace(change, machine=machine, ledger=_ledger_moved(store, change))


def _calibration_moved(store: Store, change: LevelChange) -> str:
    known = [
        (seconds_of(one.created) or 0.0, one)
        for one in store.calibrations(change.key.machine, limit=200)
    ]
    before = [one for at, one in known if at <= change.last_good.at]
    after = [one for at, one in known if at > change.last_good.at]
    if not before or not after:
        return ""
    old, new = before[0], after[-1]
    for peak in old.compute:
        again = new.peak(peak.dtype, peak.threads)
        if again is not None and peak.value > 0:
            moved = again.value / peak.value - 1.0
            if abs(moved) > CALIBRATION_MOVED:
                return (
                    f"the machine's calibrated {peak.dtype} peak moved by {moved:+.0%} "
                    f"between {old.created[:10]} and {new.created[:10]}"
                )
    return ""


def _ledger_moved(store: Store, change: LevelChange) -> str:
    """What grew in the ledgers of the model on both sides, in one sentence."""
    from torchstone.explain.differences import difference

    sides: dict[bool, Any] = {}
    for one in store.list_ledgers(limit=500):
        if not one.target.endswith(f":{change.key.name}") and one.target != change.key.name:
            continue
        if f", {one.variant}" not in change.key.parameters:
            continue
        at = seconds_of(one.created) or 0.0
        sides.setdefault(at > change.last_good.at, one)
    if len(sides) < 2:
        return ""
    found = difference(store.load_ledger(sides[False].id), store.load_ledger(sides[True].id))
    return found.sentences[0] if found.sentences else ""


# What people say of a change.


def find_change(report: ChangeReport, wanted: str) -> LevelChange:
    """The change of that id, or of the only id that begins so."""
    found = [one for one in report.changes if wanted and one.id.startswith(wanted)]
    if len(found) != 1:
        what = "no change" if not found else f"{len(found)} changes"
        raise UsageError(
            f"There is {what} {wanted[:40]!r} among those looked at.",
            "Ids are in the first column of `torchstone regressions`; --since may leave it out.",
        )
    return found[0]


def note_change(change: LevelChange, action: str, reason: str, until: str, db: str | None) -> None:
    """Remember what was said of a change."""
    from torchstone.track.regressions import note_document

    with open_store(db, create=False) as store:
        store.add_change_note(change.id, action, reason, until, note_document(change))


def mute_end(text: str) -> str:
    """The day until which something is muted, from a date or an age from now."""
    if not text:
        raise UsageError("A mute needs an end.", "Add --until 2026-12-31, or --until 30d.")
    age = re.fullmatch(r"(\d+)([dwy])", text.strip())
    if age is not None:
        days = int(age[1]) * {"d": 1, "w": 7, "y": 365}[age[2]]
        return (datetime.now(timezone.utc) + timedelta(days=days)).strftime("%Y-%m-%d")
    if seconds_of(text) is None or not re.match(r"\d{4}-\d\d-\d\d", text):
        raise UsageError(f"{text[:40]!r} is not a date.", "Write 2026-12-31, or an age: 30d.")
    return text[:10]


# `torchstone import asv` and the like.


def import_history(
    tool: str, paths: Sequence[str], project: str, db: str | None
) -> tuple[ImportedHistory, ImportReport]:
    """Read another tool's files and store what is new in them."""
    found = find_reader(tool)([Path(path) for path in paths])
    if project:
        series = {replace(key, suite=project): value for key, value in found.series.items()}
        found = replace(found, project=project, series=series)
    with open_store(db) as store:
        return found, store.add_history(found)


def metric_title(key: str) -> str:
    """A metric's title; another tool's word as it is."""
    return BY_KEY[key].title if key in BY_KEY else key
