"""A result as rows: written, read back and checked, and summed up in a line for `list`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from torchstone.records import (
    Evaluation,
    Level,
    Measurement,
    Outcome,
    Pruning,
    RecordError,
    Replicate,
    Result,
    TorchstoneError,
    Verdict,
    from_data,
    to_data,
)
from torchstone.records.format import count, format_seconds
from torchstone.store import limits, schema
from torchstone.store.codec import (
    BlobError,
    EncodedResult,
    join,
    split,
    to_json,
    without_samples,
)
from torchstone.store.engine import CorruptResultError
from torchstone.store.limits import in_parts, seconds_of, storable
from torchstone.store.schema import run_fact


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
    size = _bytes(encoded)
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
    row = {"result": seq, "definition": result.method.definition}
    connection.execute(table.delete().filter_by(**row))
    connection.execute(table.insert().values(**row, document=headline(result)))


def read(connection: Connection, seq: int, result_id: str) -> Result:
    """The result of that row; `CorruptResultError` if it is not what was saved."""
    try:
        encoded, digest = read_encoded(connection, seq)
        pruned = pruning_of(connection, seq, digest)
        if digest_of(encoded) != (pruned[1] if pruned else digest):
            raise BlobError("its bytes are not those that were saved")
        result = join(encoded.document, encoded.samples)
        if result.id != result_id:
            raise BlobError(f"it says that its id is {result.id[:40]!r}")
        if pruned:
            result = replace(result, pruned=pruned[0])
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


# What later rules said of a result; the newest word is the one that is shown.


def insert_evaluation(connection: Connection, seq: int, evaluation: Evaluation) -> None:
    """Add one for the result in that row."""
    document = to_json(to_data(evaluation))
    from_data(Evaluation, json.loads(document))  # what could not be read back is not written
    connection.execute(
        schema.evaluation.insert().values(
            result=seq,
            created=evaluation.created,
            version=evaluation.version,
            document=document,
        )
    )


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


def pruning_of(connection: Connection, seq: int, digest: str) -> tuple[Pruning, str] | None:
    """What became of the samples, and the digest of what is left; None: every sample is there.

    `digest` is that of the whole result.
    """
    table = schema.pruned
    row = connection.execute(select(table).where(table.c.result == seq)).first()
    if row is None:
        return None
    try:
        command = tuple(str(word) for word in json.loads(row.command))
    except (TypeError, ValueError) as error:
        raise BlobError(f"what is told of its pruning: {error}") from None
    return Pruning(row.created, command, row.version, row.samples, digest), row.digest


def aged(connection: Connection, before_s: float, keep_every: int) -> tuple[list[int], int]:
    """Runs made before that time whose samples are to go, and how many of the same age stay.

    Of each machine and branch every so manieth stays, from the first: which ones does not depend on
    when one asks, because later runs come after them.
    """
    query = select(run_fact.c.run, run_fact.c.machine_branch, run_fact.c.at, run_fact.c.created_s)
    rows = connection.execute(
        query.order_by(run_fact.c.machine_branch, run_fact.c.at, run_fact.c.run)
    )
    gone: list[int] = []
    kept = 0
    for _, of_branch in groupby(rows, key=lambda row: row.machine_branch):
        for place, (run, _, at, created_s) in enumerate(of_branch):
            if created_s is None or at >= before_s:
                continue
            if keep_every and place % keep_every == 0:
                kept += 1
            else:
                gone.append(run)
    return gone, kept


def due(connection: Connection, run: int) -> list[tuple[int, str]]:
    """The results of a run that have their samples: row and id. One that another run names too
    is left alone."""
    cases, table = schema.run_case, schema.result
    other = cases.alias()
    done = select(schema.pruned.c.result).where(schema.pruned.c.result == table.c.seq)
    shared = select(other.c.seq).where(other.c.result == table.c.seq, other.c.run != run)
    query = (
        select(table.c.seq, table.c.id)
        .distinct()
        .join(cases, cases.c.result == table.c.seq)
        .where(cases.c.run == run, ~done.exists(), ~shared.exists())
        .order_by(table.c.seq)
    )
    return [(seq, result_id) for seq, result_id in connection.execute(query)]


def sample_bytes(connection: Connection, results: Sequence[int]) -> int:
    """What the samples of these results take."""
    arms = schema.measurement
    size = select(func.sum(func.length(arms.c.samples)))
    parts = (size.where(arms.c.result.in_(part)) for part in in_parts(results))
    return sum(connection.scalar(query) or 0 for query in parts)


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


def prune(connection: Connection, seq: int, note: Pruning) -> tuple[int, int]:
    """Remove the samples of a result; how many, and the bytes saved. Nothing where another program
    was quicker, or there is nothing to gain."""
    whole, digest = read_encoded(connection, seq)
    if pruning_of(connection, seq, digest) is not None:
        return 0, 0
    if digest_of(whole) != digest:
        raise BlobError("its bytes are not those that were saved")
    found = left_of(whole)
    if found is None:
        return 0, 0
    left, removed = found
    saved = _bytes(whole) - _bytes(left)
    connection.execute(
        schema.pruned.insert().values(
            result=seq,
            created=note.created,
            command=json.dumps(list(note.command)),
            version=note.version,
            samples=removed,
            bytes=saved,
            document_bytes=len(left.document),
            digest=digest_of(left),
        )
    )
    table, arms = schema.result, schema.measurement
    connection.execute(table.update().where(table.c.seq == seq).values(document=left.document))
    for position, (new, old) in enumerate(zip(left.samples, whole.samples, strict=True)):
        if new != old:  # an arm that died before its first sample has none to lose
            of_arm = (arms.c.result == seq) & (arms.c.position == position)
            connection.execute(arms.update().where(of_arm).values(samples=new))
    return removed, saved


def bare(result: Result) -> Result:
    """A result as it is once pruned, without a word about that: to compare two by."""

    def without(one: Replicate) -> Replicate:
        return replace(one, warm_up=replace(one.warm_up, wall_ns=()))

    arms = tuple(
        replace(arm, turns=(), replicates=tuple(map(without, arm.replicates)))
        for arm in result.arms
    )
    return replace(result, arms=arms, pruned=None)


def _bytes(encoded: EncodedResult) -> int:
    return len(encoded.document) + sum(map(len, encoded.samples))


# A stored result or run in one line: what `list` shows without decoding anything.

MAX_PARTS = 3
"""Arms spoken of in a headline; it has to fit on a line."""

_TIMES = ("floor", "typical")
"""What a number of seconds is called, as in every report."""


def headline(result: Result) -> str:
    """What the headline is made of, as JSON: of each arm its name, a word and a number.

    Its words are put together when it is shown (`sentence`), so that they can change.
    """
    failed_arms = {arm.arm.name for arm in result.arms if arm.outcome is not Outcome.OK}
    # What failed is told by its outcome: "cannot tell" beside it would say it twice. An arm that
    # did not end well may still have been compared (`Outcome.comparable`), and then has a ratio.
    parts: list[tuple[str, str, float | None]] = []
    for one in result.comparisons:
        if one.time_ratio is not None or not failed_arms & {one.base, one.new}:
            times = {Verdict.FASTER: one.speedup, Verdict.SLOWER: one.time_ratio}
            parts.append((storable(one.new), one.verdict.value, times.get(one.verdict)))
    for arm in result.arms:
        name = storable(arm.arm.name)
        if arm.outcome is not Outcome.OK:
            parts.append((name, arm.outcome.words, None))
        elif not result.comparisons:
            parts.append((name, *_time(arm, result.method.estimator)))
    failed = sum(check.level is Level.FAIL for check in result.checks)
    return json.dumps({"parts": parts, "failed_checks": failed}, separators=(",", ":"))


def _time(arm: Measurement, estimator: str) -> tuple[str, float | None]:
    """The figure that leads in a report, by its name there; the typical time where no floor is
    known."""
    if not any(turn.wall_ns for turn in arm.turns):
        return "no samples", None
    from torchstone.stats import central_time, estimator_of, is_floor  # numpy comes with it

    name = "floor" if is_floor(estimator or estimator_of(arm)) else "typical"
    seconds = central_time(arm, name)
    if seconds is None:
        name, seconds = "typical", central_time(arm, "typical")
    return name, seconds


def sentence(document: str) -> str:
    """The result's verdicts in a few words, failures included; empty where it is damaged."""
    try:
        stored = json.loads(document)
        parts = [_part(*part) for part in stored["parts"]]
        failed = int(stored["failed_checks"])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return ""
    text = "; ".join(parts[:MAX_PARTS])
    if len(parts) > MAX_PARTS:
        text += f"; and {len(parts) - MAX_PARTS} more"
    return f"{text} ({count(failed, 'check')} failed)" if failed else text


def _part(name: str, word: str, number: float | None) -> str:
    if number is None:
        return f"{name}: {word}"
    if word in _TIMES:
        return f"{name}: {word} {format_seconds(number, 3)}"
    return f"{name}: {number:.2f}x {word}"
