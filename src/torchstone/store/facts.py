"""The facts of a run kept in step with it: written in the transaction that adds to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from enum import Enum
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select

from torchstone.records import (
    FOREIGN_DEFINITION,
    METRICS_DEFINITION,
    SUITE_DEFINITION,
    CaseKey,
    CaseMetrics,
    GitState,
    Mean,
    Outcome,
    PassRate,
    Run,
    RunHead,
    SuiteSummary,
    UsageError,
    Verdict,
)
from torchstone.store import case_facts, schema
from torchstone.store.case_facts import Place, machine_branch_of, rows_of
from torchstone.store.limits import storable
from torchstone.store.schema import (
    GROUP_KEY,
    MEANS,
    case_fact,
    case_group,
    group_fact,
    run_fact,
)


def begin(connection: Connection, seq: int, run: Run) -> None:
    """Facts of a run of which no case has ended yet; nothing if they are there."""
    if connection.scalar(select(run_fact.c.run).where(run_fact.c.run == seq)) is not None:
        return
    put_run(connection, seq, run)
    sum_up(connection, seq, run, {})


def refresh(connection: Connection, seq: int, run: Run) -> None:
    """Sum the run up again from its stored cases."""
    sum_up(connection, seq, run, case_facts.readable(connection, seq))


def sum_up(connection: Connection, seq: int, run: Run, cases: Mapping[int, CaseMetrics]) -> None:
    """Count the outcomes of these cases, all that there are, and sum up the suites."""
    place = case_facts.place_of(connection, seq)
    count(connection, seq, cases.values())
    keys = [planned.key for planned in run.plan]
    put_groups(connection, place, completed(keys, cases))


def completed(
    keys: Sequence[CaseKey],
    cases: Mapping[int, CaseMetrics],
    wanted: Callable[[CaseKey], bool] = lambda key: True,
) -> tuple[CaseMetrics, ...]:
    """One entry for every planned case that is wanted; those that never ran as `not_run`."""
    return tuple(
        cases.get(position) or CaseMetrics(key, Outcome.NOT_RUN, "not started")
        for position, key in enumerate(keys)
        if wanted(key)
    )


def make_anew(connection: Connection, seq: int, run: Run | None) -> None:
    """All facts of a run but its cases' figures; None: its plan cannot be read any more."""
    put_run(connection, seq, run)
    place: Place = case_facts.place_of(connection, seq)
    connection.execute(
        case_fact.update()
        .where(case_fact.c.run == seq)
        .where((case_fact.c.machine_branch != place.machine_branch) | (case_fact.c.at != place.at))
        .values(machine_branch=place.machine_branch, at=place.at)
    )
    if run is not None:
        refresh(connection, seq, run)
        return
    count(connection, seq, case_facts.readable(connection, seq).values())


# Rows of `run_fact`: what a list, an axis or a droplist shows of a run.


HEAD = tuple(
    run_fact.c[name]
    for name in (
        *("id", "created", "created_s", "label", "revision", "branch", "dirty", "machine_id"),
        *("machine", "torch", "origin", "tier", "suites", "planned", "outcomes"),
    )
)
"""What a head is made from, in the order of `RunHead`."""
_TOLD = tuple(field.name for field in fields(RunHead))[: len(HEAD) - 3]


def put_run(connection: Connection, seq: int, run: Run | None) -> None:
    """Add the facts of a run whose row is there; None: its plan cannot be read any more."""
    table = schema.run
    columns = (table.c.id, table.c.created, table.c.created_s, table.c.label, table.c.origin)
    row = connection.execute(
        select(*columns, table.c.suites, table.c.planned).where(table.c.seq == seq)
    ).one()
    git = (run.git if run else None) or GitState("")
    texts = {"revision": storable(git.commit), "branch": storable(git.branch)}
    for name in ("machine_id", "machine", "torch", "tier"):
        texts[name] = storable(getattr(run, name)) if run else ""
    connection.execute(run_fact.delete().where(run_fact.c.run == seq))
    connection.execute(
        run_fact.insert().values(
            **row._mapping,
            **texts,
            run=seq,
            at=row.created_s or 0.0,
            machine_branch=machine_branch_of(connection, texts["machine_id"], texts["branch"]),
            dirty=git.dirty,
            outcomes="{}",
        )
    )


def count(connection: Connection, seq: int, cases: Iterable[CaseMetrics]) -> None:
    """Write down how the run's cases ended so far."""
    counts = Counter(case.outcome.value for case in cases)
    text = json.dumps(counts, separators=(",", ":"), sort_keys=True)
    connection.execute(run_fact.update().where(run_fact.c.run == seq).values(outcomes=text))


def heads_of(
    rows: Iterable[Sequence[Any]], running_ids: Callable[[], frozenset[str]]
) -> list[RunHead]:
    """The runs of rows that begin with `HEAD`; which of them live is asked once, if at all."""
    running: frozenset[str] | None = None
    found = []
    for row in rows:
        head = _head(tuple(row[: len(HEAD)]))
        if head.done < head.planned:
            running = running_ids() if running is None else running
            head = replace(head, state="running" if head.id in running else "interrupted")
        found.append(head)
    return found


def _head(row: tuple[Any, ...]) -> RunHead:
    suites, planned, outcomes = row[-3:]
    told = dict(zip(_TOLD, row, strict=False))
    return RunHead(**told, suites=_names(suites), planned=planned, outcomes=json.loads(outcomes))


@lru_cache(maxsize=256)
def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


# Rows of `group_fact`: the figures of a suite in one run, by the one definition in `stats`.


_OWN = tuple(
    name
    for name in group_fact.columns.keys()  # noqa: SIM118
    if name not in ("run", "case_group", "position", "at")
)
SELECTED = (*(case_group.c[name] for name in GROUP_KEY), *(group_fact.c[name] for name in _OWN))
"""What `summary_of` wants of a row."""
_PLAIN = ("definition", "figures_definition", "no_verdict", "false_discovery_rate")


def put_groups(connection: Connection, place: Place, planned: Sequence[CaseMetrics]) -> None:
    """Sum the run up again, from every planned case in order; those that never ran among them.

    Figures of several definitions do not mix: such a run has no sums until it is rebuilt.
    """
    from torchstone.stats import summarise  # late: numpy comes with it

    try:
        summaries = summarise(planned)
    except UsageError:
        # Older sums are of those cases alone that there were then.
        _remove(connection, place, group_fact.c.figures_definition <= METRICS_DEFINITION)
        return
    # Sums by an older definition, beside those by today's, are what an older program still reads.
    made = {METRICS_DEFINITION, FOREIGN_DEFINITION, *(one.figures_definition for one in summaries)}
    _remove(connection, place, group_fact.c.figures_definition.in_(made))
    keys = [CaseKey(model="", **{n: getattr(one, n) for n in GROUP_KEY}) for one in summaries]
    ids = rows_of(connection, case_group, keys)
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


def _row(summary: SuiteSummary) -> dict[str, Any]:
    passes, speedup = summary.passes, summary.speedup
    low, high = speedup.interval or (None, None)
    row: dict[str, Any] = {name: getattr(summary, name) for name in _PLAIN}
    row |= {"passed": passes.passed, "counted": passes.counted, "planned": passes.planned}
    row |= {"outcomes": _told(passes.outcomes), "verdicts": _told(summary.verdicts)}
    row |= {"low": low, "high": high, "level": speedup.level}
    for name in ("speedup", *MEANS):
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
        group_fact.c.figures_definition <= METRICS_DEFINITION,
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


def is_sum(summaries: Sequence[SuiteSummary], planned: Sequence[CaseMetrics]) -> bool:
    """Whether stored sums are by today's definition, and of these cases and their figures."""
    definitions = {case.definition for case in planned if case.outcome is Outcome.OK}
    ended = Counter(case.outcome.value for case in planned)
    summed: Counter[str] = Counter()
    for one in summaries:
        if one.definition != SUITE_DEFINITION:
            return False
        summed.update(one.passes.outcomes)
    used = {one.figures_definition for one in summaries if one.passes.passed}
    return used == definitions and len(used) <= 1 and +summed == ended


@lru_cache(maxsize=8192)  # a chart of years is asked for again and again, and only its end is new
def summary_of(row: tuple[Any, ...]) -> SuiteSummary:
    """The suite of a row of `SELECTED`."""
    fact = dict(zip(_OWN, row[len(GROUP_KEY) :], strict=True))
    of = fact["passed"]
    low, high = fact["low"], fact["high"]
    interval = None if low is None or high is None else (low, high)
    means: dict[str, Any] = {name: Mean(fact[name], fact[f"{name}_n"], of) for name in MEANS}
    plain: dict[str, Any] = {name: fact[name] for name in _PLAIN}
    return SuiteSummary(
        **dict(zip(GROUP_KEY, row, strict=False)),
        **plain,
        **means,
        passes=PassRate(of, fact["counted"], fact["planned"], _counts(Outcome, fact["outcomes"])),
        speedup=Mean(fact["speedup"], fact["speedup_n"], of, interval, fact["level"]),
        verdicts=_counts(Verdict, fact["verdicts"]),
    )


@lru_cache(maxsize=1024)
def _counts(kind: type[Enum], text: str) -> Mapping[str, int]:
    """Every word has its entry, 0 where there was none. Shared: nobody may change it."""
    return {**{one.value: 0 for one in kind}, **json.loads(text)}
