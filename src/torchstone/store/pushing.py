"""A run on its way to another database: one document out, checked and stored as one transaction.

The document is JSON: the run's record, its cases with their figures, and its results as the store
encodes them. Its SHA-256 is its name, so that sending it again is seen to be that.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from sqlalchemy import Connection, select

from torchstone.records import (
    METRICS_DEFINITION,
    RESULT_SCHEMA,
    RUN_SCHEMA,
    CaseMetrics,
    Outcome,
    RecordError,
    Result,
    Run,
    TorchstoneError,
    UsageError,
    from_data,
    to_data,
)
from torchstone.store import case_rows, facts, limits, lookup, results, runs, schema
from torchstone.store.case_rows import CaseRow
from torchstone.store.codec import BlobError, EncodedResult, decompress, join, to_json
from torchstone.store.database import Store
from torchstone.store.engine import AlreadyStored
from torchstone.store.limits import HERE, MAX_NAME, now
from torchstone.store.lookup import RESULT, RUN
from torchstone.store.tokens import TokenInfo, still_usable

FORMAT = "torchstone-push"
VERSION = 1
CONTENT_TYPE = "application/json"
MAX_BODY = 64 * 1024 * 1024
"""Bytes as they are sent: some 3,000 cases with all their samples."""
MAX_TEXT = 192 * 1024 * 1024
"""Bytes of the document when unpacked."""
MAX_RESULT = 64 * 1024 * 1024
"""Bytes of one result when unpacked; the largest that was seen has 3 MB."""
MAX_VALUES = 4_000_000
"""Values in one JSON text. Each takes some 60 bytes of memory, however short it is written; a plan
of 100,000 cases has 1.5 million."""
_SEPARATORS = (b",", b"[", b"{")
_INTEGERS = 2**63
_DIGEST = re.compile(r"[0-9a-f]{64}")


class PushRefused(UsageError):
    """A document that is not taken; nothing of it was stored. `status` is that of HTTP."""

    def __init__(self, message: str, remedy: str = "", status: int = 422) -> None:
        super().__init__(message, remedy)
        self.status = status


@dataclass(frozen=True)
class Push:
    """A document ready to be sent: compressed, and the digest of what it unpacks to."""

    run_id: str
    digest: str
    body: bytes
    cases: int
    planned: int
    results: int


@dataclass(frozen=True)
class PushReport:
    """What became of a document. `known`: cases that were here before."""

    run: str
    added: int
    known: int
    planned: int


# Out.


def encode_run(store: Store, wanted: str) -> Push:
    """The run with all its stored cases and their results, from one state of the database."""
    with store.snapshot(), store._reading() as connection:
        found = lookup.resolve(connection, wanted, RUN)
        run = runs.read(connection, found.seq, found.id)
        cases: list[dict[str, Any]] = []
        stored: dict[str, dict[str, Any]] = {}
        for row, of_result in case_rows.by_result(connection, found.seq, run):
            if row is not None:
                result = results.read(connection, row.seq, row.id)
                stored[row.id] = _packed(results.encode_result(result))
            ident = "" if row is None else row.id
            cases += [{**to_data(case), "result": ident} for case in of_result]
    if not cases:
        raise UsageError(
            f"No case of the run {run.id} has ended yet.", "Push it when there is something to see."
        )
    head = {"format": FORMAT, "version": VERSION, "run": to_data(run)}
    text = to_json({**head, "cases": cases, "results": stored}).encode("ascii")
    body = gzip.compress(text, 6, mtime=0)
    if len(body) > MAX_BODY or len(text) > MAX_TEXT:
        raise UsageError(
            f"The run {run.id} is too large to be pushed: {len(body):,} bytes, and {MAX_BODY:,} are"
            " taken.",
            "Remove its samples (`torchstone db prune`), or copy the database.",
        )
    digest = hashlib.sha256(text).hexdigest()
    return Push(run.id, digest, body, len(cases), len(run.plan), len(stored))


def _packed(encoded: EncodedResult) -> dict[str, Any]:
    document, *samples = (
        base64.b64encode(blob).decode("ascii") for blob in (encoded.document, *encoded.samples)
    )
    return {"document": document, "samples": samples}


# In: everything is checked before the database is touched.


@dataclass(frozen=True)
class Incoming:
    """A checked document: cases by result, each result decoded again when it is stored, because
    all of them at once could fill the memory."""

    digest: str
    run: Run
    groups: tuple[tuple[EncodedResult | None, tuple[CaseRow, ...]], ...]


def unpack_body(body: bytes, encoding: str, limit: int = MAX_TEXT) -> bytes:
    """The text of a body sent with that content encoding."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise PushRefused("The content encoding is not known.", "Send gzip, or none.", 415)
    inflate = zlib.decompressobj(wbits=31)
    try:
        text = inflate.decompress(body, limit + 1)
    except zlib.error:
        raise PushRefused("The body is not what gzip makes.", status=400) from None
    if len(text) > limit:
        raise PushRefused(f"The body unpacks to more than {limit:,} bytes.", status=413)
    if not inflate.eof or inflate.unused_data:
        raise PushRefused("The body ends too early, or too late.", status=400)
    return text


def decode_push(text: bytes, digest: str, pusher: str) -> Incoming:
    """The document, fit to be stored; `PushRefused` with one sentence otherwise."""
    if not _DIGEST.fullmatch(digest) or hashlib.sha256(text).hexdigest() != digest:
        raise PushRefused("The body is not the one that its address names.", "Send it again.", 400)
    try:
        return _decoded(parse(text), digest, pusher)
    except PushRefused:
        raise
    except TorchstoneError as error:
        raise PushRefused(error.message, error.remedy) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"The document is not a run: {type(error).__name__}: {error}"
        raise PushRefused(limits.storable(message)[:MAX_NAME] + ".") from None


def parse(text: bytes) -> Any:
    """JSON as its standard has it, of so many values."""
    if sum(map(text.count, _SEPARATORS)) > MAX_VALUES:
        raise PushRefused(f"The document has more than {MAX_VALUES:,} values.", status=413)
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_not_json)
    except RecursionError:
        raise PushRefused("The document is nested too deeply.", status=400) from None
    except ValueError:
        raise PushRefused("The document is not JSON.", status=400) from None


def _not_json(name: str) -> NoReturn:
    raise PushRefused(f"{name} is not JSON.", "Write it as text.", 400)


def _decoded(data: Any, digest: str, pusher: str) -> Incoming:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PushRefused("The document is not a run.", "Send it with `torchstone push`.")
    if data.get("version") != VERSION:
        raise PushRefused("The document is of another version.", _UPGRADE)
    if set(data) != {"format", "version", "run", "cases", "results"}:
        raise PushRefused("The document has other parts than a run has.")
    _check_version("run", data["run"], RUN_SCHEMA)
    run = from_data(Run, data["run"])
    run = replace(run, origin=_origin(run.origin, pusher))
    limits.check_run(run)
    _check_texts("run", (run.machine_id, run.machine, run.torch, run.tier, run.version))
    if run.git is not None:
        _check_texts("run", (run.git.commit, run.git.branch))
    for case in run.plan:
        key = case.key
        _check_texts("case", (key.scale, key.mode, key.precision, key.allocator, case.target))
    rows = _rows(data["cases"])
    case_rows.check(run, [row for row, _ in rows])
    groups = tuple(_grouped(rows, data["results"], pusher))
    return Incoming(digest, run, groups)


_UPGRADE = "Use the same version of Torchstone on both sides: pip install --upgrade torchstone."


def _check_version(what: str, data: Any, known: int) -> None:
    if not isinstance(data, dict) or type(data.get("schema")) is not int:
        raise PushRefused(f"The {what} does not say its version.")
    if not 1 <= data["schema"] <= known:
        raise PushRefused(f"The {what} is of a version that this server does not know.", _UPGRADE)


def _origin(origin: str, pusher: str) -> str:
    """Never `here`: what others measured is not run unasked."""
    text = f"pushed by {pusher}"
    if origin == HERE or origin.endswith(text):
        return origin if origin != HERE else text
    found = f"{origin}, {text}"
    return found if len(found) <= MAX_NAME else text


def _check_texts(what: str, texts: Sequence[str]) -> None:
    for text in texts:
        if len(text) > MAX_NAME or not text.isprintable():
            raise PushRefused(
                f"A name of the {what} is too long or not printable: {text[:40]!r}.",
                f"Use at most {MAX_NAME} printable characters.",
            )


def _rows(data: Any) -> list[tuple[CaseRow, str]]:
    """The cases, and the ids of their results."""
    if not isinstance(data, list) or not data:
        raise PushRefused("The document has no cases.")
    found = []
    for case in data:
        fields = dict(case)
        ident = fields.pop("result")
        row = from_data(CaseRow, fields)
        if not isinstance(ident, str) or bool(ident) != bool(row.arm):
            raise PushRefused(f"Case {row.position} has an arm without a result, or the reverse.")
        if row.outcome not in tuple(Outcome) or row.outcome == Outcome.NOT_RUN or not row.figures:
            raise PushRefused(f"Case {row.position} has no outcome or no figures.")
        _check_texts("case", (row.arm, row.created))
        for one in row.figures:
            _check_figures(row, one, ident)
        if len({one.definition for one in row.figures}) != len(row.figures):
            raise PushRefused(f"Case {row.position} has figures of one definition twice.")
        found.append((row, ident))
    return found


def _check_figures(row: CaseRow, one: CaseMetrics, ident: str) -> None:
    if one.definition > METRICS_DEFINITION or abs(one.definition) >= _INTEGERS:
        raise PushRefused("Its figures are of a definition that is not known here.", _UPGRADE)
    if one.outcome != row.outcome or one.result_id not in ("", ident):
        raise PushRefused(f"The figures of case {row.position} are those of another.")
    numbers = (value for value in vars(one).values() if isinstance(value, int))
    if any(abs(number) >= _INTEGERS for number in (row.position, one.key.threads, *numbers)):
        raise PushRefused(f"A number of case {row.position} is too large.")


def _grouped(
    rows: Sequence[tuple[CaseRow, str]], data: Any, pusher: str
) -> Iterator[tuple[EncodedResult | None, tuple[CaseRow, ...]]]:
    if not isinstance(data, dict) or set(data) != {ident for _, ident in rows if ident}:
        raise PushRefused("The results are not those that the cases name.")
    by_result: dict[str, list[CaseRow]] = {}
    for row, ident in rows:
        if ident:
            by_result.setdefault(ident, []).append(row)
        else:
            yield None, (row,)
    for ident, of_result in by_result.items():
        result = _result(data[ident], ident, pusher)
        names = {arm.arm.name for arm in result.arms}
        if not {row.arm for row in of_result} <= names:
            raise PushRefused(f"The result {ident} has no such arm.")
        yield results.encode_result(result), tuple(of_result)


def _result(data: Any, ident: str, pusher: str) -> Result:
    """Read with limits, and marked with where it came from; what is stored is written again."""
    if not isinstance(data, dict) or set(data) != {"document", "samples"}:
        raise PushRefused("A result has other parts than a document and its samples.")
    limits.check_id(ident)
    try:
        document, *samples = (
            base64.b64decode(text, validate=True) for text in (data["document"], *data["samples"])
        )
        left = MAX_RESULT
        for blob in (document, *samples):
            unpacked = decompress(blob, left)
            left -= len(unpacked)
            if blob is document:
                content = parse(unpacked)
                _check_version("result", content.get("result"), RESULT_SCHEMA)
        result = join(document, samples)
    except (BlobError, RecordError, binascii.Error) as error:
        raise PushRefused(f"The result {ident} cannot be read: {str(error)[:200]}.") from None
    if result.id != ident:
        raise PushRefused(f"The result {ident} says that it is another.")
    arms = (arm.arm.name for arm in result.arms)
    _check_texts("result", (result.created, result.kind, result.label, result.origin, *arms))
    return replace(result, origin=_origin(result.origin, pusher))


# Into the database: all of it in one transaction.


def known_push(store: Store, digest: str) -> PushReport | None:
    """What a document that was taken before has here; None where it is not known."""
    with store._reading() as connection:
        return _known(connection, digest)


def receive(store: Store, incoming: Incoming, token: TokenInfo) -> PushReport:
    """Store what of it is not here, whole or not at all.

    Shards of a run join: cases that are not here are added, those that are must be the same.
    """
    run = incoming.run
    with store._writing() as connection:
        still_usable(connection, token.seq, incoming.digest)
        known = _known(connection, incoming.digest)
        if known is not None:
            return known
        try:
            seq = runs.begin(connection, run)
        except UsageError as error:
            raise PushRefused(error.message, "Push it to another database.", 409) from None
        facts.begin(connection, seq, run)
        there = case_rows.by_position(connection, seq, runs.read(connection, seq, run.id))
        added = total = 0
        for encoded, rows in incoming.groups:
            total += len(rows)
            added += _put(connection, seq, run, there, encoded, rows)
        if added:
            facts.refresh(connection, seq, run)
        connection.execute(
            schema.pushed.insert().values(
                digest=incoming.digest, run=seq, token=token.seq, created=now(), cases=added
            )
        )
    return PushReport(run.id, added, total - added, len(run.plan))


def _known(connection: Connection, digest: str) -> PushReport | None:
    table = schema.pushed
    query = select(table.c.run).where(table.c.digest == digest)
    seq = connection.scalar(query)
    if seq is None:
        return None
    run = schema.run
    ident, planned = connection.execute(
        select(run.c.id, run.c.planned).where(run.c.seq == seq)
    ).one()
    return PushReport(ident, 0, len(runs.positions(connection, seq)), planned)


def _put(
    connection: Connection,
    seq: int,
    run: Run,
    there: dict[int, list[CaseMetrics]],
    encoded: EncodedResult | None,
    rows: Sequence[CaseRow],
) -> int:
    """Add the cases of one result; how many. Those that are here must be these."""
    given = None
    if encoded is not None:
        given = join(encoded.document, encoded.samples), encoded
    ident = given[0].id if given else ""
    for row in rows:
        if row.position in there and not _is_same(connection, seq, row, ident, there):
            raise _conflict(run, row)
    try:
        known = lookup.exact(connection, RESULT, ident) if given else None
        if given is not None and known is not None:
            case_rows.check_same(connection, known.seq, given[0])
        return case_rows.put_missing(connection, seq, run, rows, given)
    except UsageError as error:
        raise PushRefused(error.message, "Push it to another database.", 409) from None


def _is_same(
    connection: Connection,
    seq: int,
    row: CaseRow,
    ident: str,
    there: dict[int, list[CaseMetrics]],
) -> bool:
    """The same attempt; where there is no result to compare, the same figures."""
    try:
        case_rows.refuse_present(connection, "", seq, [row], ident)
    except AlreadyStored as stored:
        here = {one.definition: to_data(one) for one in there[row.position]}
        figures = ((one.definition, to_data(one)) for one in row.figures)
        return stored.same and (bool(ident) or all(here.get(d, one) == one for d, one in figures))
    return True


def _conflict(run: Run, row: CaseRow) -> PushRefused:
    return PushRefused(
        f"The run {run.id} has case {row.position} here already, with another result.",
        "A case is stored once; push the run to another database.",
        409,
    )
