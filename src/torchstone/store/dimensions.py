"""What rows have in common, stored once and named by a number: series, groups, lanes, details."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, select

from torchstone.records import CaseKey
from torchstone.store.case_columns import KEY, digest_of
from torchstone.store.derived import case_detail, case_group, lane, series
from torchstone.store.results import storable
from torchstone.store.runs import key_digest

_PART = 500  # a query may have only so many parameters


def series_of(connection: Connection, keys: Sequence[CaseKey]) -> dict[CaseKey, int]:
    """The row of each key, added where it is not there."""
    digests = {key_digest(key): key for key in keys}
    found = _ensure(connection, series.c.key, list(digests), lambda name: _columns(digests[name]))
    return {key: found[name] for name, key in digests.items()}


def groups_of(connection: Connection, keys: Sequence[CaseKey]) -> dict[CaseKey, int]:
    """The row of each key without a model, added where it is not there."""
    digests = {key_digest(key): key for key in keys}

    def columns(name: str) -> dict[str, Any]:
        return {n: value for n, value in _columns(digests[name]).items() if n != "model"}

    found = _ensure(connection, case_group.c.key, list(digests), columns)
    return {key: found[name] for name, key in digests.items()}


def lane_of(connection: Connection, machine_id: str, branch: str) -> int:
    """The row of a machine and branch, added if it is not there."""
    wanted = {"machine_id": machine_id, "branch": branch}
    query = select(lane.c.seq).filter_by(**wanted)
    found = connection.scalar(query)
    if found is None:
        connection.execute(lane.insert().values(**wanted))
        found = connection.scalar(query)
    return int(found or 0)


def details_of(connection: Connection, details: Sequence[str]) -> dict[str, int]:
    """The row of each detail, added where it is not there."""
    digests = {digest_of(detail): detail for detail in dict.fromkeys(details)}
    found = _ensure(
        connection,
        case_detail.c.digest,
        list(digests),
        lambda digest: {"document": digests[digest]},
    )
    return {detail: found[digest] for digest, detail in digests.items()}


def _columns(key: CaseKey) -> dict[str, Any]:
    columns: dict[str, Any] = {name: getattr(key, name) for name in KEY}
    return {name: storable(v) if isinstance(v, str) else v for name, v in columns.items()}


def _ensure(
    connection: Connection,
    by: Column[Any],
    names: Sequence[Any],
    columns: Callable[[Any], Mapping[str, Any]],
) -> dict[Any, int]:
    """The number of each row, by what it is found by; `columns` gives the rest of a new one."""
    found = _known(connection, by, names)
    new = [name for name in names if name not in found]
    if new:
        rows = [{by.name: name, **columns(name)} for name in new]
        connection.execute(by.table.insert(), rows)
        found |= _known(connection, by, new)
    return found


def _known(connection: Connection, by: Column[Any], names: Sequence[Any]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for start in range(0, len(names), _PART):
        part = names[start : start + _PART]
        rows = connection.execute(select(by, by.table.c.seq).where(by.in_(part)))
        found |= {row[0]: row[1] for row in rows}
    return found
