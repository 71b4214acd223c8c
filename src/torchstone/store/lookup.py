"""Finding what is stored: by id, by the beginning of an id, or a run by its label."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, func, select

from torchstone.records import ArmSpec, UsageError
from torchstone.store import schema
from torchstone.store.engine import MAX_NAMED
from torchstone.store.limits import LAST, seconds_of
from torchstone.store.schema import run_fact
from torchstone.store.summary import RunSummary, Summary

NEAR_AMONG = 1_000
"""Newest ids among which a near miss is looked for; comparing texts is slow."""


class Row(NamedTuple):
    """Where a result or a run is, and its id."""

    seq: int
    id: str


class RunRow(NamedTuple):
    """Where a run is, its id, and what to tell whoever asked for it by an ambiguous name."""

    seq: int
    id: str
    note: str = ""


@dataclass(frozen=True)
class _Kind:
    """One kind of stored thing, with the words of its errors."""

    table: Table
    noun: str
    make: str
    see: str


_RESULT = _Kind(
    schema.result,
    "result",
    "Make one with `torchstone bench`.",
    "See what is stored with `torchstone list`.",
)
_RUN = _Kind(
    schema.run,
    "run",
    "Make one with `torchstone run`.",
    "See what is stored with `torchstone list runs`.",
)
_PROFILE = _Kind(
    schema.profile,
    "profile",
    "Take one with `torchstone profile`.",
    "See what is stored with `torchstone list profiles`.",
)
_LEDGER = _Kind(
    schema.ledger,
    "ledger",
    "Make one with `torchstone explain`.",
    "See what is stored with `torchstone list ledgers`.",
)


def resolve(connection: Connection, wanted: str) -> Row:
    """The result that `wanted` means; `UsageError` if none or several."""
    return _resolve(connection, wanted, _RESULT)


def resolve_profile(connection: Connection, wanted: str) -> Row:
    """The same of profiles."""
    return _resolve(connection, wanted, _PROFILE)


def resolve_ledger(connection: Connection, wanted: str) -> Row:
    """The same of ledgers."""
    return _resolve(connection, wanted, _LEDGER)


def _resolve(connection: Connection, wanted: str, kind: _Kind) -> Row:
    if wanted == LAST:
        return _newest(connection, kind)
    _check_text(wanted, kind)
    return _exact(connection, kind, wanted) or _by_start(connection, (kind,), wanted)[1]


def resolve_run(connection: Connection, wanted: str) -> RunRow:
    """The run that `wanted` means: its id, its label, or the only id that begins so."""
    if wanted == LAST:
        return RunRow(*_newest(connection, _RUN))
    _check_text(wanted, _RUN)
    found = _exact(connection, _RUN, wanted)
    if found:
        return RunRow(*found)
    return _labelled(connection, wanted) or RunRow(*_by_start(connection, (_RUN,), wanted)[1])


def resolve_any(connection: Connection, wanted: str) -> Row | RunRow:
    """The run or the result that `wanted` means. `last` is what was stored last.

    A result that belongs to a run stands for its run there.
    """
    if wanted == LAST:
        return _newest_of_all(connection)
    _check_text(wanted, _RESULT)
    run = _exact(connection, _RUN, wanted)
    if run:
        return RunRow(*run)
    found = _exact(connection, _RESULT, wanted) or _labelled(connection, wanted)
    if found:
        return found
    kind, row = _by_start(connection, (_RESULT, _RUN), wanted)
    return RunRow(*row) if kind is _RUN else row


def _newest(connection: Connection, kind: _Kind) -> Row:
    table = kind.table
    newest = select(table.c.seq, table.c.id).order_by(table.c.seq.desc()).limit(1)
    found = connection.execute(newest).first()
    if found is None:
        raise UsageError(f"No {kind.noun} is stored yet.", kind.make)
    return Row(*found)


def _newest_of_all(connection: Connection) -> Row | RunRow:
    """By time, because rows of two tables have no common order."""
    result, run, case = schema.result, schema.run, schema.run_case
    alone = ~select(case.c.seq).where(case.c.result == result.c.seq).exists()
    last_result = connection.execute(
        select(result.c.seq, result.c.id, result.c.created_s)
        .where(alone, schema.of_no_run())
        .order_by(result.c.seq.desc())
        .limit(1)
    ).first()
    last_run = connection.execute(
        select(run.c.seq, run.c.id, run.c.created_s).order_by(run.c.seq.desc()).limit(1)
    ).first()
    if last_run is None:
        return _newest(connection, _RESULT)
    last_case = connection.execute(
        select(run.c.seq, run.c.id, case.c.created)
        .join(case, case.c.run == run.c.seq)
        .order_by(case.c.seq.desc())
        .limit(1)
    ).first()
    times = [(last_run.created_s or 0.0, RunRow(last_run.seq, last_run.id))]
    if last_case is not None:
        times.append((seconds_of(last_case.created) or 0.0, RunRow(last_case.seq, last_case.id)))
    moment, newest = max(times)
    if last_result is not None and (last_result.created_s or 0.0) > moment:
        return Row(last_result.seq, last_result.id)
    return newest


def _check_text(wanted: str, kind: _Kind) -> None:
    if not wanted:
        raise UsageError(f"The id of a {kind.noun} is empty.", kind.see)
    if not wanted.isprintable():  # no stored id is like that, and not every such text is bindable
        raise UsageError(f"{wanted!r} is not the id of a {kind.noun}.", kind.see)


def _exact(connection: Connection, kind: _Kind, wanted: str) -> Row | None:
    table = kind.table
    query = select(table.c.seq, table.c.id).where(table.c.id == wanted)
    found = connection.execute(query).first()
    return None if found is None else Row(*found)


def _labelled(connection: Connection, wanted: str) -> RunRow | None:
    """The newest run of that label, with a word about the others."""
    table = schema.run
    query = select(table.c.seq, table.c.id).where(table.c.label == wanted)
    found = connection.execute(query.order_by(table.c.seq.desc())).all()
    if not found:
        return None
    note = ""
    if len(found) > 1:
        ids = ", ".join(row.id for row in found[1 : MAX_NAMED + 1])
        more = ", ..." if len(found) > MAX_NAMED + 1 else ""
        note = f"newest of {len(found)} runs labelled {wanted!r}; older: {ids}{more}"
    return RunRow(found[0].seq, found[0].id, note)


def _by_start(connection: Connection, kinds: Sequence[_Kind], wanted: str) -> tuple[_Kind, Row]:
    """The only one whose id begins so; an error that helps where there is none, or several."""
    matches: list[tuple[_Kind, Row]] = []
    for kind in kinds:
        table = kind.table
        # Not LIKE: it ignores case in one database and not in the other.
        begins = func.substr(table.c.id, 1, len(wanted)) == wanted
        newest = select(table.c.seq, table.c.id).where(begins).order_by(table.c.seq.desc())
        rows = connection.execute(newest.limit(MAX_NAMED + 1))
        matches += [(kind, Row(*row)) for row in rows]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous(wanted, kinds, [row.id for _, row in matches])
    raise _unknown(connection, kinds, wanted)


def _ambiguous(wanted: str, kinds: Sequence[_Kind], ids: list[str]) -> UsageError:
    nouns = " or ".join(f"{kind.noun}s" for kind in kinds)
    named = ", ".join(ids[:MAX_NAMED]) + (", ..." if len(ids) > MAX_NAMED else "")
    return UsageError(
        f"Several {nouns} begin with {wanted!r}: {named}.", "Give more characters of the id."
    )


def _unknown(connection: Connection, kinds: Sequence[_Kind], wanted: str) -> UsageError:
    from difflib import get_close_matches  # only on the way to an error

    ids: list[str] = []
    for kind in kinds:
        columns = (kind.table.c.id, kind.table.c.label) if kind is _RUN else (kind.table.c.id,)
        newest = select(*columns).order_by(kind.table.c.seq.desc()).limit(NEAR_AMONG)
        ids += [text for row in connection.execute(newest) for text in row if text]
    near = get_close_matches(wanted, ids, n=3, cutoff=0.5)
    if not near:  # a beginning with a slip in it is far from the whole id, but near to its start
        starts = {i[: len(wanted)]: i for i in reversed(ids)}
        near = [starts[s] for s in get_close_matches(wanted, list(starts), n=3, cutoff=0.5)]
    hint = f" Nearest: {', '.join(dict.fromkeys(near))}." if near else ""
    noun = " or ".join(kind.noun for kind in kinds)
    return UsageError(f"There is no {noun} {wanted[:60]!r}.{hint}", kinds[0].see)


# Lists of what is stored; no document and no samples are read for them.


_PART = 500  # a query may have only so many parameters


def list_results(
    connection: Connection, limit: int, arm: str | None, since: datetime | str | None
) -> list[Summary]:
    """The newest results first; those that are a run's cases are in their run."""
    _check_limit(limit, "results")
    table, arms = schema.result, schema.measurement
    columns = (table.c.seq, table.c.id, table.c.created, table.c.kind, table.c.label)
    query = select(*columns, table.c.origin, table.c.bytes).order_by(table.c.seq.desc())
    query = query.where(schema.of_no_run())
    if arm is not None:
        query = query.where(table.c.seq.in_(select(arms.c.result).where(arms.c.arm == arm)))
    if since is not None:
        query = query.where(table.c.created_s >= _since(since))
    rows = connection.execute(query.limit(limit)).all()
    arms_of, line_of = _details(connection, [row.seq for row in rows])
    return [
        Summary(
            id=row.id,
            created=row.created,
            kind=row.kind,
            label=row.label,
            origin=row.origin,
            arms=tuple(name for name, _ in arms_of[row.seq]),
            outcomes=tuple(outcome for _, outcome in arms_of[row.seq]),
            headline=line_of.get(row.seq, ""),
            bytes=row.bytes,
        )
        for row in rows
    ]


def list_runs(connection: Connection, limit: int) -> list[RunSummary]:
    """The newest runs first."""
    _check_limit(limit, "runs")
    table = schema.run
    columns = (table.c.seq, table.c.id, table.c.created, table.c.label, table.c.origin)
    query = select(*columns, table.c.planned, table.c.suites).order_by(table.c.seq.desc())
    rows = connection.execute(query.limit(limit)).all()
    outcomes = _outcomes(connection, [row.seq for row in rows])
    return [
        RunSummary(
            id=row.id,
            created=row.created,
            label=row.label,
            origin=row.origin,
            planned=row.planned,
            done=sum(outcomes[row.seq].values()),
            outcomes=outcomes[row.seq],
            suites=tuple(json.loads(row.suites)),
        )
        for row in rows
    ]


def _outcomes(connection: Connection, shown: list[int]) -> dict[int, dict[str, int]]:
    """How many cases of each run ended in each way."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    query = select(run_fact.c.run, run_fact.c.outcomes)
    for start in range(0, len(shown), _PART):
        part = shown[start : start + _PART]
        for run, outcomes in connection.execute(query.where(run_fact.c.run.in_(part))):
            found[run] = json.loads(outcomes)
    return found


def _check_limit(limit: int, what: str) -> None:
    if limit < 0:
        raise UsageError(f"A list of {limit} {what} cannot be made.", "Give 1 or more.")


def _details(
    connection: Connection, shown: list[int]
) -> tuple[dict[int, list[tuple[str, str]]], dict[int, str]]:
    """Arms with their outcomes, and the headline, of each result shown."""
    arms, sums = schema.measurement, schema.summary
    arms_of: dict[int, list[tuple[str, str]]] = defaultdict(list)
    line_of: dict[int, str] = {}
    named = select(arms.c.result, arms.c.arm, arms.c.outcome).order_by(arms.c.position)
    told = select(sums.c.result, sums.c.headline).order_by(sums.c.definition)
    for start in range(0, len(shown), _PART):
        part = shown[start : start + _PART]
        for seq, name, outcome in connection.execute(named.where(arms.c.result.in_(part))):
            arms_of[seq].append((name, outcome))
        for seq, line in connection.execute(told.where(sums.c.result.in_(part))):
            line_of[seq] = line  # the newest definition is read last and stays
    return arms_of, line_of


def _since(since: datetime | str) -> float:
    seconds = seconds_of(since)
    if seconds is None:
        raise UsageError(
            f"{str(since)[:40]!r} is not a date.", "Write it as 2026-01-31 or 2026-01-31T12:00."
        )
    return seconds


# Which arms are the same work, however they were named and whatever they were measured for.


KEY = ("target", "variant", "mode", "precision", "device")
"""What tables of looks at an arm have a column and an index for."""


def same_work(one: ArmSpec, other: ArmSpec) -> bool:
    """Whether a look at one arm says something of the other.

    A look is at steps of one shape, also where a measurement went through several in turn.
    """
    return replace(one, name=other.name, seed=other.seed, shapes=other.shapes) == other


def key_of(arm: ArmSpec) -> dict[str, str]:
    """The values of those columns."""
    return {name: getattr(arm, name) for name in KEY}


def matching(table: Table, arm: ArmSpec) -> list[ColumnElement[bool]]:
    """Rows whose arm may be the same work: threads and settings are yet to be compared."""
    return [table.c[name] == value for name, value in key_of(arm).items()]
