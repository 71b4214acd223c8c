"""Tunings: what was asked, then every experiment as it ends, then how it ended; and scalings.

Experiments are added one by one, so that a tuning that is killed can be resumed from the last.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from torchstone.records import (
    Experiment,
    RecordError,
    TorchstoneError,
    Tuning,
    from_data,
    to_data,
)
from torchstone.records.scaling import Scaling
from torchstone.store import lookup, schema
from torchstone.store.codec import compress, decompress, to_json
from torchstone.store.engine import Base

LARGEST = 1 << 24
"""Bytes of a document when unpacked: a row that says more was not written by us."""
EXPERIMENT, END = "experiment", "end"
T = TypeVar("T")


@dataclass(frozen=True)
class TuningSummary:
    """One line of a list of tunings."""

    id: str
    created: str
    target: str
    mode: str
    goal: str
    state: str
    experiments: int
    adopted: tuple[str, ...]
    speedup: float | None


@dataclass(frozen=True)
class ScalingSummary:
    """One line of a list of scalings."""

    id: str
    created: str
    target: str
    scaling: str
    arms: int
    failed: int


class TuningsPart(Base):
    """Tunings: a row each, and one for every experiment. Scalings: a row each."""

    def begin_tuning(self, tuning: Tuning) -> None:
        """Keep what is asked, before the first experiment."""
        environment = tuning.environment
        with self._writing() as connection:
            lookup.refuse_known(connection, lookup.TUNING, tuning.id)
            connection.execute(
                schema.tuning.insert().values(
                    id=tuning.id,
                    created=tuning.created,
                    **lookup.key_of(tuning.arm),
                    machine_id=environment.machine_id if environment else "",
                    goal=tuning.goal,
                    document=_pack(replace(tuning, experiments=())),
                )
            )

    def add_experiment(self, tuning: str, experiment: Experiment) -> None:
        """Keep one experiment that has ended."""
        self._add_part(tuning, EXPERIMENT, experiment)

    def end_tuning(self, tuning: Tuning) -> None:
        """Keep how far it is now: what was adopted, the recipe, why it ended."""
        self._add_part(tuning.id, END, replace(tuning, experiments=()))

    def _add_part(self, tuning: str, kind: str, record: Experiment | Tuning) -> None:
        with self._writing() as connection:
            row = lookup.resolve(connection, tuning, lookup.TUNING)
            part = schema.tuning_part.insert()
            connection.execute(part.values(tuning=row.seq, kind=kind, document=_pack(record)))

    def load_tuning(self, wanted: str) -> Tuning:
        """The tuning of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            row = lookup.resolve(connection, wanted, lookup.TUNING)
            return _read(connection, row.seq, row.id)

    def list_tunings(self, limit: int = 20) -> list[TuningSummary]:
        """The newest first."""
        table = schema.tuning
        query = select(table.c.seq, table.c.id).order_by(table.c.seq.desc()).limit(limit)
        with self._reading() as connection:
            rows = connection.execute(query).all()
            return [_summary(_read(connection, row.seq, row.id)) for row in rows]

    def save_scaling(self, found: Scaling) -> None:
        """Keep what ranks did."""
        with self._writing() as connection:
            lookup.refuse_known(connection, lookup.SCALING, found.id)
            connection.execute(
                schema.scaling.insert().values(
                    id=found.id,
                    created=found.created,
                    target=found.target,
                    scaling=found.scaling,
                    machine_id=found.machine_id,
                    arms=len(found.arms),
                    failed=sum(arm.measurement.outcome.failed for arm in found.arms),
                    document=_pack(found),
                )
            )

    def load_scaling(self, wanted: str) -> Scaling:
        """The scaling of that id, of the only id that begins so, or the newest one (`last`)."""
        table = schema.scaling
        with self._reading() as connection:
            row = lookup.resolve(connection, wanted, lookup.SCALING)
            packed = connection.scalar(select(table.c.document).where(table.c.seq == row.seq))
            return _unpack(Scaling, packed or b"", row.id)

    def list_scalings(self, limit: int = 20) -> list[ScalingSummary]:
        """The newest first."""
        table = schema.scaling
        columns = [table.c[name] for name in ScalingSummary.__dataclass_fields__]
        query = select(*columns).order_by(table.c.seq.desc()).limit(limit)
        with self._reading() as connection:
            return [ScalingSummary(*row) for row in connection.execute(query)]


def _summary(found: Tuning) -> TuningSummary:
    confirmed = found.confirmation
    return TuningSummary(
        found.id,
        found.created,
        found.arm.target,
        found.arm.mode,
        found.goal,
        found.state,
        sum(one.decision.measured for one in found.experiments),
        found.adopted,
        confirmed.speedup if confirmed else None,
    )


def _pack(record: Any) -> bytes:
    return compress(to_json(to_data(record)).encode())


def _read(connection: Connection, seq: int, name: str) -> Tuning:
    table, part = schema.tuning, schema.tuning_part
    head = connection.scalar(select(table.c.document).where(table.c.seq == seq))
    query = select(part.c.kind, part.c.document).where(part.c.tuning == seq).order_by(part.c.seq)
    found, experiments = _unpack(Tuning, head or b"", name), list[Experiment]()
    for kind, document in connection.execute(query):
        if kind == EXPERIMENT:
            experiments.append(_unpack(Experiment, document, name))
        else:
            found = _unpack(Tuning, document, name)
    return replace(found, experiments=tuple(experiments))


def _unpack(kind: type[T], document: bytes, name: str) -> T:
    try:
        return from_data(kind, json.loads(decompress(document, LARGEST)))
    except (RecordError, ValueError, TypeError, RecursionError) as error:
        raise TorchstoneError(
            f"The {kind.__name__.lower()} {name} cannot be read: {error}."
        ) from None
