"""What two identical arms differed by on a machine: the smallest difference worth believing."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, inspect, select

from torchstone.records import Conditions
from torchstone.store import schema

NEWEST = 50
"""Observations that count. Older ones speak of a machine that may have changed."""

QUANTILE = 0.9
"""Nine of ten identical pairs lay below this; the maximum would only ever rise."""


@dataclass(frozen=True)
class FloorSummary:
    """An A/A floor and how many observations it rests on."""

    conditions: Conditions
    value: float
    observations: int


def remember(
    connection: Connection,
    machine_id: str,
    conditions: Conditions,
    value: float,
    evidence: Any,
) -> None:
    """Add one observation."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"an A/A floor is a relative difference of 0 or more, not {value!r}")
    row = {
        "machine_id": machine_id,
        **conditions._asdict(),
        "value": float(value),
        "evidence": json.dumps(evidence, separators=(",", ":"), allow_nan=False),
    }
    connection.execute(schema.aa_floor.insert().values(**row))


def floor(connection: Connection, machine_id: str, conditions: Conditions) -> float | None:
    """The quantile of the newest observations (nearest rank), None if there are none."""
    table = schema.aa_floor
    wanted = conditions._asdict()
    # Where nothing says so, all there is was measured with the system's own.
    if not _says_allocators(connection) and wanted.pop("allocator") != "default":
        return None
    same = [table.c[name] == value for name, value in wanted.items()]
    newest = (
        select(table.c.value)
        .where(table.c.machine_id == machine_id, *same)
        .order_by(table.c.seq.desc())
        .limit(NEWEST)
    )
    values = sorted(connection.scalars(newest))
    if not values:
        return None
    return float(values[math.ceil(QUANTILE * len(values)) - 1])


def _says_allocators(connection: Connection) -> bool:
    """False for a database of version 6 or less that is open for reading only."""
    columns = inspect(connection).get_columns(schema.aa_floor.name)
    return any(column["name"] == "allocator" for column in columns)


def of_machine(connection: Connection, machine_id: str) -> list[FloorSummary]:
    """Every floor of a machine, by threads, allocator and step length."""
    table = schema.aa_floor
    by = [table.c[name] for name in Conditions._fields]
    query = (
        select(*by, func.count())
        .where(table.c.machine_id == machine_id)
        .group_by(*by)
        .order_by(*by)
    )
    found = []
    for *of, number in connection.execute(query).all():
        value = floor(connection, machine_id, Conditions(*of))
        if value is not None:
            found.append(FloorSummary(Conditions(*of), value, min(number, NEWEST)))
    return found
