"""The store's answers to what pages ask, timed on a history of `dashboard_history`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchstone.records import Selection
from torchstone.store import Store, open_store

DAY_S = 86_400.0
REPEATS = 15


@dataclass(frozen=True)
class Answer:
    """One question: rows in its answer, milliseconds of the first time and in the middle.

    `cpu_ms` is processor time, which a busy machine does not stretch.
    """

    name: str
    rows: int
    first_ms: float
    median_ms: float
    cpu_ms: float


def questions(store: Store) -> dict[str, Callable[[], object]]:
    """What the pages ask of the store."""
    newest, base = store.run_heads(limit=2)
    now = newest.created_s or 0.0
    groups = store.run_groups(newest.id)
    first = groups[0]
    suite = Selection(suite=first.suite, mode=first.mode, precision=first.precision)
    week = Selection(suite=first.suite, since_s=now - 7 * DAY_S)
    years = Selection(suite=first.suite, mode=first.mode, variant=first.variant)
    key = store.cases(newest.id, Selection(suite=first.suite, variant=first.variant))[-1].key
    month = Selection(since_s=now - 30 * DAY_S)
    return {
        "heads of 200 runs": store.run_heads,
        "heads before a run": lambda: store.run_heads(before=base.id),
        "heads with a suite": lambda: store.run_heads(Selection(suite=first.suite)),
        "heads with a model": lambda: store.run_heads(Selection(model=key.model)),
        "choices": store.choices,
        "one head": lambda: store.run_head(newest.id),
        "suites of a run": lambda: store.run_groups(newest.id),
        "a week of a suite": lambda: store.group_points(week),
        "all of one group": lambda: store.group_points(years),
        "a case, 30 days": lambda: store.case_points(key, month),
        "a case, all time": lambda: store.case_points(key, Selection()),
        "cases of a suite": lambda: store.cases(newest.id, suite),
        "cases of a run": lambda: store.cases(newest.id),
        "planned cases of a run": lambda: store.planned_cases(newest.id),
        "failures of a run": lambda: store.failures(newest.id),
        "failures of a suite": lambda: store.failures(newest.id, suite),
        "machines": store.machines,
        "list of runs": store.list_runs,
        "list of results": store.list,
        "the newest of all": lambda: [store.find("last")],
    }


def measure(path: Path) -> list[Answer]:
    """Ask each question several times."""
    answers = []
    with open_store(str(path), create=False, read_only=True) as store:
        for name, ask in questions(store).items():
            times, cpu = [], []
            for _ in range(REPEATS):
                started, used = time.perf_counter(), time.process_time()
                found = ask()
                cpu.append((time.process_time() - used) * 1e3)
                times.append((time.perf_counter() - started) * 1e3)
            rows = len(found) if isinstance(found, list | tuple) else 1
            middle = statistics.median(times), statistics.median(cpu)
            answers.append(Answer(name, rows, times[0], *middle))
    return answers


def report(path: Path) -> str:
    """A table."""
    lines = [f"{'question':<24} {'rows':>6} {'first ms':>9} {'median ms':>9} {'cpu ms':>9}"]
    for one in measure(path):
        lines.append(
            f"{one.name:<24} {one.rows:>6} {one.first_ms:>9.1f} {one.median_ms:>9.1f} "
            f"{one.cpu_ms:>9.1f}"
        )
    return "\n".join(lines)
