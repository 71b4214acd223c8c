"""Old samples removed: which results that concerns, and what is left to tell of it.

It is the one change that stored results know. The trigger lets it through only after a row of
`thinned` says what is left, when the rest went and by which command; that row never changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, func, select

from torchstone.records import Result, Thinning
from torchstone.store import schema
from torchstone.store.blobs import BlobError
from torchstone.store.derived import run_fact
from torchstone.store.document import Parcel, without_samples


@dataclass(frozen=True)
class Thinned:
    """What became of a result: what it tells, and the digest of what is left of it."""

    told: Thinning
    left: str


@dataclass(frozen=True)
class ThinReport:
    """What was removed, or would be. `bytes` of a trial is that of the samples alone."""

    runs: int
    results: int
    samples: int
    bytes: int
    kept_runs: int
    """Runs old enough whose samples stay, because one in so many was asked to."""
    trial: bool
    damaged: tuple[str, ...] = ()
    """Results that cannot be read and were left as they are."""


@dataclass(frozen=True)
class Aged:
    """Runs whose samples are to go, and how many of the same age stay."""

    runs: tuple[int, ...]
    kept: int


def of_result(connection: Connection, seq: int, digest: str) -> Thinned | None:
    """None: every sample is there. `digest` is that of the whole result."""
    table = schema.thinned
    row = connection.execute(select(table).where(table.c.result == seq)).first()
    if row is None:
        return None
    try:
        command = tuple(str(word) for word in json.loads(row.command))
    except (TypeError, ValueError) as error:
        raise BlobError(f"what is told of its thinning: {error}") from None
    told = Thinning(row.created, command, row.version, row.samples, digest)
    return Thinned(told, row.digest)


def aged(connection: Connection, before_s: float, keep_every: int) -> Aged:
    """Runs made before that time. Of each machine and branch every so manieth stays, from the
    first: which ones does not depend on when one asks, because later runs come after them."""
    query = select(run_fact.c.run, run_fact.c.lane, run_fact.c.at, run_fact.c.created_s)
    rows = connection.execute(query.order_by(run_fact.c.lane, run_fact.c.at, run_fact.c.run))
    gone: list[int] = []
    kept = place = 0
    last_lane = None
    for run, lane, at, created_s in rows:
        place = place + 1 if lane == last_lane else 0
        last_lane = lane
        if created_s is None or at >= before_s:
            continue
        if keep_every and place % keep_every == 0:
            kept += 1
        else:
            gone.append(run)
    return Aged(tuple(gone), kept)


def due(connection: Connection, run: int) -> list[tuple[int, str]]:
    """The results of a run that have their samples: row and id."""
    cases, table = schema.run_case, schema.result
    done = select(schema.thinned.c.result).where(schema.thinned.c.result == table.c.seq)
    shared = _needed_elsewhere(run)
    query = (
        select(table.c.seq, table.c.id)
        .distinct()
        .join(cases, cases.c.result == table.c.seq)
        .where(cases.c.run == run, ~done.exists(), ~shared)
        .order_by(table.c.seq)
    )
    return [(seq, result_id) for seq, result_id in connection.execute(query)]


def _needed_elsewhere(run: int) -> ColumnElement[bool]:
    """A result belongs to the cases of one run; one that another run names too is left alone."""
    other = schema.run_case.alias()
    named = select(other.c.seq).where(other.c.result == schema.result.c.seq, other.c.run != run)
    return named.exists()


def sample_bytes(connection: Connection, results: Sequence[int]) -> int:
    """What the samples of these results take."""
    table = schema.measurement
    total = 0
    for part in _parts(results):
        size = func.sum(func.length(table.c.samples))
        total += connection.scalar(select(size).where(table.c.result.in_(part))) or 0
    return total


def left_of(whole: Parcel) -> tuple[Parcel, int] | None:
    """What stays of a result and how many samples go; None where there is nothing to gain."""
    left, removed = without_samples(whole.document, whole.samples)
    changed = [
        (new, old) for new, old in zip(left.samples, whole.samples, strict=True) if new != old
    ]
    changed.append((left.document, whole.document))
    if not removed or any(len(new) >= len(old) for new, old in changed):
        return None
    return left, removed


def thin(
    connection: Connection, seq: int, whole: Parcel, left: Parcel, told: Thinning, digest: str
) -> int:
    """Write what is left of a result, with its digest; the bytes that this saves."""
    results, arms = schema.result, schema.measurement
    saved = _bytes(whole) - _bytes(left)
    connection.execute(
        schema.thinned.insert().values(
            result=seq,
            created=told.created,
            command=json.dumps(list(told.command)),
            version=told.version,
            samples=told.samples,
            bytes=saved,
            document_bytes=len(left.document),
            digest=digest,
        )
    )
    connection.execute(results.update().where(results.c.seq == seq).values(document=left.document))
    for position, (new, old) in enumerate(zip(left.samples, whole.samples, strict=True)):
        if new != old:  # an arm that died before its first sample has none to lose
            of_arm = (arms.c.result == seq) & (arms.c.position == position)
            connection.execute(arms.update().where(of_arm).values(samples=new))
    return saved


def bare(result: Result) -> Result:
    """A result as it is once thinned, without a word about that: to compare two by."""
    arms = tuple(
        replace(
            arm,
            turns=(),
            replicates=tuple(
                replace(one, warm_up=replace(one.warm_up, wall_ns=())) for one in arm.replicates
            ),
        )
        for arm in result.arms
    )
    return replace(result, arms=arms, thinned=None)


def _bytes(parcel: Parcel) -> int:
    return len(parcel.document) + sum(map(len, parcel.samples))


def _parts(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(rows), 500):
        yield rows[start : start + 500]
