"""Finding results: by id, by the beginning of an id, or as a list."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from sqlalchemy import Connection, func, select

from torchstone.records import UsageError
from torchstone.store import schema
from torchstone.store.dates import seconds_of
from torchstone.store.summary import Summary

LAST = "last"
MAX_NAMED = 8
"""Ids named in an error; more would bury the sentence."""
NEAR_AMONG = 1_000
"""Newest ids among which a near miss is looked for; comparing texts is slow."""

_PART = 500  # a query may have only so many parameters
_REMEDY = "See what is stored with `torchstone list`."


def resolve(connection: Connection, wanted: str) -> tuple[int, str]:
    """Row and id of the result that `wanted` means; `UsageError` if none or several."""
    table = schema.result
    rows = select(table.c.seq, table.c.id)
    newest = rows.order_by(table.c.seq.desc())
    if wanted == LAST:
        found = connection.execute(newest.limit(1)).first()
        if found is None:
            raise UsageError("No result is stored yet.", "Make one with `torchstone bench`.")
        return found.seq, found.id
    if not wanted:
        raise UsageError("The id of a result is empty.", _REMEDY)
    if not wanted.isprintable():  # no stored id is like that, and not every such text is bindable
        raise UsageError(f"{wanted!r} is not the id of a result.", _REMEDY)
    found = connection.execute(rows.where(table.c.id == wanted)).first()
    if found is not None:
        return found.seq, found.id
    # Not LIKE: it ignores case in one database and not in the other.
    begins = func.substr(table.c.id, 1, len(wanted)) == wanted
    matches = connection.execute(newest.where(begins).limit(MAX_NAMED + 1)).all()
    if len(matches) == 1:
        return matches[0].seq, matches[0].id
    if matches:
        raise _ambiguous(wanted, [row.id for row in matches])
    raise _unknown(
        wanted,
        list(connection.scalars(select(table.c.id).order_by(table.c.seq.desc()).limit(NEAR_AMONG))),
    )


def listing(
    connection: Connection, limit: int, arm: str | None, since: datetime | str | None
) -> list[Summary]:
    """The newest results first; no document and no samples are read."""
    if limit < 0:
        raise UsageError(f"A list of {limit} results cannot be made.", "Give 1 or more.")
    table, arms = schema.result, schema.measurement
    columns = (table.c.seq, table.c.id, table.c.created, table.c.kind, table.c.label)
    query = select(*columns, table.c.origin, table.c.bytes).order_by(table.c.seq.desc())
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


def _ambiguous(wanted: str, ids: list[str]) -> UsageError:
    named = ", ".join(ids[:MAX_NAMED]) + (", ..." if len(ids) > MAX_NAMED else "")
    return UsageError(
        f"Several results begin with {wanted!r}: {named}.", "Give more characters of the id."
    )


def _unknown(wanted: str, ids: list[str]) -> UsageError:
    from difflib import get_close_matches  # only on the way to an error

    near = get_close_matches(wanted, ids, n=3, cutoff=0.5)
    if not near:  # a beginning with a slip in it is far from the whole id, but near to its start
        starts = {i[: len(wanted)]: i for i in reversed(ids)}
        near = [starts[s] for s in get_close_matches(wanted, list(starts), n=3, cutoff=0.5)]
    hint = f" Nearest: {', '.join(near)}." if near else ""
    return UsageError(f"There is no result {wanted[:60]!r}.{hint}", _REMEDY)
