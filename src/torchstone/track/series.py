"""Series of the store, ours and imported, as arrays in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from torchstone.records import OURS, CaseKey, CaseRow, Selection, SeriesKey
from torchstone.records.metrics import BY_KEY
from torchstone.stats.series import IMPORTED, Line, Lines

if TYPE_CHECKING:
    from torchstone.stats.estimators import Floats
    from torchstone.store import Store
    from torchstone.store.history import CaseSeries
    from torchstone.store.imported import PackedSeries

SPEEDUP, BASE, NEW = "speedup", "base_ns", "new_ns"
UNITS = {"s": "seconds", "bytes": "bytes", "×": "ratio", "": "count"}
"""From the unit of a metric to that of a series."""


def own_lines(store: Store, selection: Selection, metrics: Sequence[str], text: str = "") -> Lines:
    """The stored cases over time, one series a metric, machine and branch."""
    wanted = list(dict.fromkeys((*metrics, SPEEDUP, BASE, NEW)))
    found = store.case_series(selection, wanted)
    lines: list[Line] = []
    for (series, lane), rows in groupby(found.rows, key=lambda row: (row.series, row.lane)):
        key = found.keys[series]
        if text and text.lower() not in key.name.lower():
            continue
        lines += _of_case(series, lane, key, list(rows), found, metrics, wanted)
    return Lines(lines, {OURS: found.runs}, found.rows, found.lanes, found.keys)


def _of_case(
    series: int,
    lane: int,
    key: CaseKey,
    rows: Sequence[CaseRow],
    found: CaseSeries,
    metrics: Sequence[str],
    wanted: Sequence[str],
) -> Iterable[Line]:
    machine, branch = found.lanes[lane]
    last = {row.run: row for row in rows if row.passes == 1}
    for name in metrics:
        place = wanted.index(name)
        known = [row for row in last.values() if _usable(row.values[place])]
        if not known:
            continue
        metric = BY_KEY[name]
        values = np.array([row.values[place] for row in known], dtype=float) / metric.scale
        sides = None
        if name == SPEEDUP:
            both = (wanted.index(BASE), wanted.index(NEW))
            times = np.array([[row.values[side] or np.nan for side in both] for row in known]) / 1e9
            sides = (times[:, 0], times[:, 1])
        told = key.name.removeprefix(f"{key.suite}/{key.model}").strip()
        made = SeriesKey(
            OURS,
            key.suite,
            key.model,
            told,
            name,
            UNITS.get(metric.unit, metric.unit),
            metric.better,
            machine,
            branch,
        )
        ident = f"c{series}.{lane}.{name}"
        yield Line(made, ident, [row.run for row in known], values, key, sides)


def _usable(value: float | None) -> bool:
    return value is not None and np.isfinite(value)


def imported_lines(
    store: Store, text: str = "", tool: str = "", wanted: Sequence[int] | None = None
) -> Lines:
    """What other tools measured, one series a benchmark, parameters, machine and environment."""
    if wanted is None and (text or tool):
        wanted = [seq for seq, _ in store.imported_keys(text, tool, limit=10_000_000)]
    runs = store.imported_runs()
    size = max(runs, default=0) + 1
    at = np.zeros(size)
    for number, run in runs.items():
        at[number] = run.at
    commits = [""] * size
    for number, run in runs.items():
        commits[number] = run.commit
    packed = store.imported_packed(wanted)
    lines = [one for part in packed if (one := _of_packed(part, at, commits)) is not None]
    return Lines(lines, {IMPORTED: runs})


def _of_packed(part: PackedSeries, at: Floats, commits: Sequence[str]) -> Line | None:
    """In the order of commits; of a commit that was imported twice, the newer value."""
    numbers = np.frombuffer(part.runs, dtype=np.int32)
    values = np.frombuffer(part.data, dtype=np.float64)
    kept = np.isfinite(values)
    numbers, values = numbers[kept], values[kept]
    if not values.size:
        return None
    order = np.lexsort((numbers, at[numbers]))
    numbers, values = numbers[order], values[order]
    if values.size > 1:
        same = at[numbers][1:] == at[numbers][:-1]
        if same.any():
            twice = [
                bool(same[i]) and commits[numbers[i]] == commits[numbers[i + 1]]
                for i in range(values.size - 1)
            ]
            last = ~np.array([*twice, False])
            numbers, values = numbers[last], values[last]
    return Line(part.key, f"i{part.seq}", numbers.tolist(), values)
