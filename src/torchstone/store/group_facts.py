"""Rows of `group_fact`: the figures of a suite in one run, by the one definition in `stats`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select

from torchstone.records import (
    FIGURES_DEFINITION,
    FOREIGN_DEFINITION,
    SUITE_DEFINITION,
    CaseFigures,
    CaseKey,
    Mean,
    Outcome,
    PassRate,
    SuiteSummary,
    UsageError,
    Verdict,
)
from torchstone.store.case_facts import Place
from torchstone.store.derived import MEANS, case_group, group_fact
from torchstone.store.dimensions import groups_of

_KEY = ("suite", "scale", "mode", "precision", "variant", "device", "threads", "allocator")
_OWN = tuple(
    name
    for name in group_fact.columns.keys()  # noqa: SIM118
    if name not in ("run", "case_group", "position", "at")
)
SELECTED = (*(case_group.c[name] for name in _KEY), *(group_fact.c[name] for name in _OWN))
"""What `summary_of` wants of a row."""


def put(connection: Connection, place: Place, planned: Sequence[CaseFigures]) -> None:
    """Sum the run up anew, from every planned case in order; those that never ran among them.

    Figures of several definitions do not mix: such a run has no sums until it is rebuilt.
    """
    from torchstone.stats import summarise  # late: numpy comes with it

    try:
        summaries = summarise(planned)
    except UsageError:
        # Older sums are of those cases alone that there were then.
        _remove(connection, place, group_fact.c.figures_definition <= FIGURES_DEFINITION)
        return
    # Sums by an older definition, beside those by today's, are what an older program still reads.
    made = {FIGURES_DEFINITION, FOREIGN_DEFINITION, *(one.figures_definition for one in summaries)}
    _remove(connection, place, group_fact.c.figures_definition.in_(made))
    keys = [_key_of(summary) for summary in summaries]
    ids = groups_of(connection, keys)
    rows = [
        {**_row(one), "run": place.run, "case_group": ids[key], "position": i, "at": place.at}
        for i, (key, one) in enumerate(zip(keys, summaries, strict=True))
    ]
    if rows:
        connection.execute(group_fact.insert(), rows)


def _remove(connection: Connection, place: Place, which: ColumnElement[bool]) -> None:
    connection.execute(
        group_fact.delete().where(
            group_fact.c.run == place.run, group_fact.c.definition == SUITE_DEFINITION, which
        )
    )


def _key_of(summary: SuiteSummary) -> CaseKey:
    return CaseKey(model="", **{name: getattr(summary, name) for name in _KEY})


def _row(summary: SuiteSummary) -> dict[str, Any]:
    passes, speedup = summary.passes, summary.speedup
    low, high = speedup.interval or (None, None)
    row: dict[str, Any] = {
        "definition": summary.definition,
        "figures_definition": summary.figures_definition,
        "passed": passes.passed,
        "counted": passes.counted,
        "planned": passes.planned,
        "outcomes": _told(passes.outcomes),
        "speedup": speedup.value,
        "speedup_n": speedup.n,
        "low": low,
        "high": high,
        "level": speedup.level,
        "verdicts": _told(summary.verdicts),
        "no_verdict": summary.no_verdict,
        "false_discovery_rate": summary.false_discovery_rate,
    }
    for name in MEANS:
        mean: Mean = getattr(summary, name)
        row |= {name: mean.value, f"{name}_n": mean.n}
    return row


def _told(counts: Mapping[str, int]) -> str:
    known = {name: number for name, number in counts.items() if number}
    return json.dumps(known, separators=(",", ":"), sort_keys=True)


def query_of(*more: Any) -> Select[Any]:
    """Whatever is asked for, and after it what `summary_of` wants."""
    return _columns(*more).where(
        group_fact.c.definition <= SUITE_DEFINITION,
        group_fact.c.figures_definition <= FIGURES_DEFINITION,
    )


@cache  # as those of a case
def _columns(*more: Any) -> Select[Any]:
    return (
        select(*more, *SELECTED)
        .select_from(group_fact)
        .join(case_group, case_group.c.seq == group_fact.c.case_group)
    )


def of_run(connection: Connection, run: int, where: Iterable[Any]) -> list[SuiteSummary]:
    """The suites of a run in its order, each by the newest definitions known here."""
    order = (group_fact.c.definition, group_fact.c.figures_definition)
    query = query_of(group_fact.c.case_group, group_fact.c.position)
    rows = connection.execute(query.where(group_fact.c.run == run, *where).order_by(*order))
    newest = {row[0]: (row[1], summary_of(row[2:])) for row in rows}
    return [summary for _, summary in sorted(newest.values(), key=lambda pair: pair[0])]


@lru_cache(maxsize=8192)  # a chart of years is asked for again and again, and only its end is new
def summary_of(row: tuple[Any, ...]) -> SuiteSummary:
    """The suite of a row of `SELECTED`."""
    found = dict(zip(_KEY, row, strict=False))
    fact = dict(zip(_OWN, row[len(_KEY) :], strict=True))
    of = fact["passed"]
    low, high = fact["low"], fact["high"]
    interval = None if low is None or high is None else (low, high)
    means: dict[str, Any] = {name: Mean(fact[name], fact[f"{name}_n"], of) for name in MEANS}
    return SuiteSummary(
        **found,
        **means,
        passes=PassRate(of, fact["counted"], fact["planned"], _counts(Outcome, fact["outcomes"])),
        speedup=Mean(fact["speedup"], fact["speedup_n"], of, interval, fact["level"]),
        verdicts=_counts(Verdict, fact["verdicts"]),
        no_verdict=fact["no_verdict"],
        false_discovery_rate=fact["false_discovery_rate"],
        figures_definition=fact["figures_definition"],
        definition=fact["definition"],
    )


@lru_cache(maxsize=1024)
def _counts(kind: type[Enum], text: str) -> Mapping[str, int]:
    """Every word has its entry, 0 where there was none. Shared: nobody may change it."""
    return {**{one.value: 0 for one in kind}, **json.loads(text)}
