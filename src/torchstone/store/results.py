"""A result as rows: how it is written, and how it is read back and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, and_, func, select
from sqlalchemy.exc import DBAPIError

from torchstone.records import (
    Evaluation,
    Pruning,
    RecordError,
    Result,
    TorchstoneError,
    UsageError,
    from_data,
    to_data,
)
from torchstone.store import limits, schema
from torchstone.store.codec import BlobError, EncodedResult, join, split, without_samples
from torchstone.store.engine import CorruptResultError
from torchstone.store.limits import seconds_of
from torchstone.store.schema import run_fact
from torchstone.store.summary import headline


def encode_result(result: Result) -> EncodedResult:
    """The result as bytes, made before the write lock is taken; what cannot be read back fails."""
    limits.check_id(result.id)
    try:
        return split(result)
    except BlobError as error:
        raise TorchstoneError(
            f"The result {result.id} cannot be stored: {error}.",
            "This is a fault of Torchstone; please report it.",
        ) from None


def find(connection: Connection, result_id: str) -> int | None:
    """The row of the result with exactly that id."""
    table = schema.result
    return connection.scalar(select(table.c.seq).where(table.c.id == result_id))


def refuse_known(connection: Connection, result_id: str) -> None:
    """Results never change, so an id is taken once."""
    if find(connection, result_id) is not None:
        raise UsageError(
            f"A result {result_id} is already stored; results never change.",
            f"See it with `torchstone show {result_id}`.",
        )


def insert(connection: Connection, result: Result, encoded: EncodedResult) -> tuple[int, int]:
    """Add the rows of a result; its row number, and the bytes that its data take."""
    columns = {
        "id": result.id,
        "created": storable(result.created),
        "kind": storable(result.kind),
        "label": storable(result.label),
        "origin": storable(result.origin),
        "digest": digest_of(encoded),
    }
    arms = [(storable(arm.arm.name), arm.outcome.value) for arm in result.arms]
    size = len(encoded.document) + sum(map(len, encoded.samples))
    size += sum(len(text.encode()) for text in columns.values())
    size += sum(len(text.encode()) for row in arms for text in row)
    done = connection.execute(
        schema.result.insert().values(
            **columns,
            bytes=size,
            created_s=seconds_of(result.created),
            document=encoded.document,
        )
    )
    (seq,) = done.inserted_primary_key or (0,)
    rows = [
        {"result": seq, "position": i, "arm": name, "outcome": outcome, "samples": samples}
        for i, ((name, outcome), samples) in enumerate(zip(arms, encoded.samples, strict=True))
    ]
    if rows:
        connection.execute(schema.measurement.insert(), rows)
    insert_summary(connection, seq, result)
    return seq, size


def insert_summary(connection: Connection, seq: int, result: Result) -> None:
    """Add what `list` shows of a result, in the place of an older one of the same definition."""
    table = schema.summary
    connection.execute(
        table.delete().where(
            and_(table.c.result == seq, table.c.definition == result.method.definition)
        )
    )
    connection.execute(
        schema.summary.insert().values(
            result=seq,
            definition=result.method.definition,
            headline=storable(headline(result)),
            verdicts=json.dumps([c.verdict.value for c in result.comparisons]),
        )
    )


def read(connection: Connection, seq: int, result_id: str) -> Result:
    """The result of that row; `CorruptResultError` if it is not what was saved."""
    try:
        encoded, digest = read_encoded(connection, seq)
        pruned = of_result(connection, seq, digest)
        if digest_of(encoded) != (pruned.left if pruned else digest):
            raise BlobError("its bytes are not those that were saved")
        result = join(encoded.document, encoded.samples)
        if result.id != result_id:
            raise BlobError(f"it says that its id is {result.id[:40]!r}")
        if pruned:
            result = replace(result, pruned=pruned.told)
        return evaluated(connection, seq, result)
    except (BlobError, TypeError) as error:  # TypeError: a number or text where bytes belong
        raise CorruptResultError(result_id, str(error)) from None
    except DBAPIError as error:
        if "malformed" in str(error.orig):
            raise CorruptResultError(result_id, str(error.orig)) from None
        raise


def read_encoded(connection: Connection, seq: int) -> tuple[EncodedResult, str]:
    """The bytes of a result as they are stored, and the digest of what was saved."""
    results, arms = schema.result, schema.measurement
    document, digest = connection.execute(
        select(results.c.document, results.c.digest).where(results.c.seq == seq)
    ).one()
    samples = connection.scalars(
        select(arms.c.samples).where(arms.c.result == seq).order_by(arms.c.position)
    )
    return EncodedResult(document, tuple(samples)), digest


def digest_of(encoded: EncodedResult) -> str:
    """Over everything stored of a result: also a missing or swapped arm shows."""
    total = hashlib.sha256(encoded.document)
    for blob in encoded.samples:
        total.update(hashlib.sha256(blob).digest())
    return total.hexdigest()


def storable(text: str) -> str:
    """File names may hold bytes that are no text; a column must be text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# What later rules said of a result; the newest word is the one that is shown.


def insert_evaluation(connection: Connection, seq: int, evaluation: Evaluation) -> None:
    """Add one for the result in that row."""
    document = json.dumps(to_data(evaluation), separators=(",", ":"), allow_nan=False)
    from_data(Evaluation, json.loads(document))  # what could not be read back is not written
    row = {
        "result": seq,
        "created": evaluation.created,
        "version": evaluation.version,
        "document": document,
    }
    connection.execute(schema.evaluation.insert().values(**row))


def evaluated(connection: Connection, seq: int, result: Result) -> Result:
    """The result with the newest checks and verdicts there are of it."""
    table = schema.evaluation
    query = select(table.c.document).where(table.c.result == seq)
    document = connection.scalar(query.order_by(table.c.seq.desc()).limit(1))
    if document is None:
        return result
    try:
        newest = from_data(Evaluation, json.loads(document))
    except (RecordError, TypeError, ValueError, RecursionError) as error:
        raise CorruptResultError(result.id, f"its evaluation: {error}") from None
    return replace(result, checks=newest.checks, comparisons=newest.comparisons)


# Old samples removed: which results that concerns, and what is left to tell of it.
#
# It is the one change that stored results know. The trigger lets it through only after a row of
# `pruned` says what is left, when the rest went and by which command; that row never changes.


@dataclass(frozen=True)
class Pruned:
    """What became of a result: what it tells, and the digest of what is left of it."""

    told: Pruning
    left: str


@dataclass(frozen=True)
class PruneReport:
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


def of_result(connection: Connection, seq: int, digest: str) -> Pruned | None:
    """None: every sample is there. `digest` is that of the whole result."""
    table = schema.pruned
    row = connection.execute(select(table).where(table.c.result == seq)).first()
    if row is None:
        return None
    try:
        command = tuple(str(word) for word in json.loads(row.command))
    except (TypeError, ValueError) as error:
        raise BlobError(f"what is told of its pruning: {error}") from None
    told = Pruning(row.created, command, row.version, row.samples, digest)
    return Pruned(told, row.digest)


def aged(connection: Connection, before_s: float, keep_every: int) -> Aged:
    """Runs made before that time. Of each machine and branch every so manieth stays, from the
    first: which ones does not depend on when one asks, because later runs come after them."""
    query = select(run_fact.c.run, run_fact.c.machine_branch, run_fact.c.at, run_fact.c.created_s)
    rows = connection.execute(
        query.order_by(run_fact.c.machine_branch, run_fact.c.at, run_fact.c.run)
    )
    gone: list[int] = []
    kept = place = 0
    last_lane = None
    for run, machine_branch, at, created_s in rows:
        place = place + 1 if machine_branch == last_lane else 0
        last_lane = machine_branch
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
    done = select(schema.pruned.c.result).where(schema.pruned.c.result == table.c.seq)
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


def left_of(whole: EncodedResult) -> tuple[EncodedResult, int] | None:
    """What stays of a result and how many samples go; None where there is nothing to gain."""
    left, removed = without_samples(whole.document, whole.samples)
    changed = [
        (new, old) for new, old in zip(left.samples, whole.samples, strict=True) if new != old
    ]
    changed.append((left.document, whole.document))
    if not removed or any(len(new) >= len(old) for new, old in changed):
        return None
    return left, removed


def prune(
    connection: Connection,
    seq: int,
    whole: EncodedResult,
    left: EncodedResult,
    told: Pruning,
    digest: str,
) -> int:
    """Write what is left of a result, with its digest; the bytes that this saves."""
    results, arms = schema.result, schema.measurement
    saved = _bytes(whole) - _bytes(left)
    connection.execute(
        schema.pruned.insert().values(
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
    """A result as it is once pruned, without a word about that: to compare two by."""
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
    return replace(result, arms=arms, pruned=None)


def _bytes(encoded: EncodedResult) -> int:
    return len(encoded.document) + sum(map(len, encoded.samples))


def _parts(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(rows), 500):
        yield rows[start : start + 500]
