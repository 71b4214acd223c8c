"""The facts of a run kept in step with it: written in the transaction that adds to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection, select

from torchstone.records import CaseFigures, CaseKey, Outcome, Run
from torchstone.store import case_facts, group_facts, run_facts
from torchstone.store.case_facts import Place
from torchstone.store.derived import case_fact, run_fact


def begin(connection: Connection, seq: int, run: Run) -> None:
    """Facts of a run of which no case has ended yet; nothing if they are there."""
    if connection.scalar(select(run_fact.c.run).where(run_fact.c.run == seq)) is not None:
        return
    run_facts.put(connection, seq, run)
    sum_up(connection, seq, run, {})


def refresh(connection: Connection, seq: int, run: Run) -> None:
    """Sum the run up anew from its stored cases."""
    sum_up(connection, seq, run, case_facts.readable(connection, seq))


def sum_up(connection: Connection, seq: int, run: Run, cases: Mapping[int, CaseFigures]) -> None:
    """Count the outcomes of these cases, all that there are, and sum up the suites."""
    place = case_facts.place_of(connection, seq)
    run_facts.count(connection, seq, cases.values())
    keys = [planned.key for planned in run.plan]
    group_facts.put(connection, place, completed(keys, cases))


def completed(
    keys: Sequence[CaseKey],
    cases: Mapping[int, CaseFigures],
    wanted: Callable[[CaseKey], bool] = lambda key: True,
) -> tuple[CaseFigures, ...]:
    """One entry for every planned case that is wanted; those that never ran as `not_run`."""
    return tuple(
        cases.get(position) or CaseFigures(key, Outcome.NOT_RUN, "not started")
        for position, key in enumerate(keys)
        if wanted(key)
    )


def make_anew(connection: Connection, seq: int, run: Run | None) -> None:
    """All facts of a run but its cases' figures; None: its plan cannot be read any more."""
    run_facts.put(connection, seq, run)
    place: Place = case_facts.place_of(connection, seq)
    connection.execute(
        case_fact.update()
        .where(case_fact.c.run == seq)
        .where((case_fact.c.lane != place.lane) | (case_fact.c.at != place.at))
        .values(lane=place.lane, at=place.at)
    )
    if run is not None:
        refresh(connection, seq, run)
        return
    run_facts.count(connection, seq, case_facts.readable(connection, seq).values())
