"""A run's row: its plan, stored before anything is measured."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from torchstone.records import (
    RUN_SCHEMA,
    CaseKey,
    PlannedCase,
    RecordError,
    Run,
    UsageError,
    from_data,
    to_data,
)
from torchstone.store import schema
from torchstone.store.codec import MAX_DOCUMENT, BlobError, compress, decompress, to_json
from torchstone.store.engine import CorruptRunError
from torchstone.store.limits import seconds_of, storable

T = TypeVar("T")
_KEY_DIGITS = 32  # 128 bits tell apart all cases that will ever be
_KEYS = 16_384  # digests remembered: those of a few large plans
_ENTRY, _KEY = len(fields(PlannedCase)), len(fields(CaseKey))
_PLANS = 4  # plans remembered as JSON: night after night it is the same one


def begin(connection: Connection, run: Run) -> int:
    """The row of the run, added if it is not there. The same id with another plan is refused.

    Shards and a resumed run join by this: the first one's record stays.
    """
    table = schema.run
    digest = plan_digest(tuple(run.plan))
    known = connection.execute(
        select(table.c.seq, table.c.plan_digest).where(table.c.id == run.id)
    ).first()
    if known is None:
        return _insert(connection, run, digest)
    if known.plan_digest != digest:
        raise UsageError(
            f"The run {run.id} is stored with another plan: other cases, or in another order.",
            "Ask for the same suites, models and settings, or give the run another --label.",
        )
    return int(known.seq)


def _insert(connection: Connection, run: Run, digest: str) -> int:
    document = compress(_document(run).encode("ascii"))
    columns = {
        "id": run.id,
        "created": storable(run.created),
        "label": storable(run.label),
        "origin": storable(run.origin),
        "plan_digest": digest,
        "suites": json.dumps(list(dict.fromkeys(case.key.suite for case in run.plan))),
        "digest": hashlib.sha256(document).hexdigest(),
    }
    done = connection.execute(
        schema.run.insert().values(
            **columns,
            planned=len(run.plan),
            created_s=seconds_of(run.created),
            bytes=len(document) + sum(len(text.encode()) for text in columns.values()),
            document=document,
        )
    )
    (seq,) = done.inserted_primary_key or (0,)
    return int(seq)


def _document(run: Run) -> str:
    """The run as JSON. Stored for good, so it must be readable; the plan is looked at once."""
    head = to_data(replace(run, plan=()))
    from_data(Run, head)
    return to_json({**head, "plan": None}).replace(
        '"plan":null', f'"plan":{_plan(tuple(run.plan))}', 1
    )


@lru_cache(maxsize=_PLANS)
def _plan(plan: tuple[PlannedCase, ...]) -> str:
    data = to_data(plan)
    for case in data:
        from_data(PlannedCase, case)
    return to_json(data)


@lru_cache(maxsize=_PLANS)
def plan_digest(plan: tuple[PlannedCase, ...]) -> str:
    """Of the cases and their order.

    Not of the reasons why some cannot run: those belong to a machine, and shards may be made on
    several.
    """
    return hashlib.sha256(to_json([(to_data(c.key), c.target) for c in plan]).encode()).hexdigest()


@lru_cache(maxsize=_KEYS)
def key_digest(key: CaseKey) -> str:
    """The same for the same case in every run."""
    return hashlib.sha256(to_json(to_data(key)).encode()).hexdigest()[:_KEY_DIGITS]


def read(connection: Connection, seq: int, run_id: str = "", *, plan: bool = True) -> Run:
    """The run of that row; `CorruptRunError` if it is not what was stored.

    Without its `plan` it is read in a tenth of the time.
    """
    run_id = run_id or id_of(connection, seq)
    try:
        data = _data(connection, seq, run_id)
        head = from_data(Run, {**data, "plan": []})
        run = replace(head, plan=_planned(data)) if plan else head
    except (BlobError, RecordError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRunError(run_id, str(error)) from None
    if run.id != run_id:
        raise CorruptRunError(run_id, f"it says that its id is {run.id[:40]!r}")
    return run


def _planned(data: Any) -> tuple[PlannedCase, ...]:
    """As `from_data` would decode it; entries of one shape are looked at once, since all that they
    hold is text and a number of threads."""
    looked_at, made = set(), []
    try:
        for entry in data["plan"]:
            key = entry["key"]
            types = (*map(type, entry.values()), *map(type, key.values()))
            shape = (*entry, *key, *types, key.get("threads"))
            if shape not in looked_at:
                made.append(from_data(PlannedCase, entry))
                if len(entry) == _ENTRY and len(key) == _KEY:  # else defaults are to be filled in
                    looked_at.add(shape)
                continue
            made.append(_record(PlannedCase, {**entry, "key": _record(CaseKey, key)}))
    except (AttributeError, KeyError, TypeError):
        raise RecordError("its plan is not one of ours") from None
    return tuple(made)


def _record(cls: type[T], known: dict[str, Any]) -> T:
    """A frozen dataclass sets each of its fields by a call, which takes longer than the rest."""
    made = object.__new__(cls)
    object.__setattr__(made, "__dict__", known)
    return made


def read_keys(connection: Connection, seq: int, run_id: str) -> list[CaseKey]:
    """The keys of the planned cases in order: a tenth of the work that `read` is."""
    try:
        plan = _data(connection, seq, run_id)["plan"]
        return [CaseKey(**case["key"]) for case in plan]
    except (BlobError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRunError(run_id, str(error)) from None


def _data(connection: Connection, seq: int, run_id: str) -> Any:
    table = schema.run
    document, digest = connection.execute(
        select(table.c.document, table.c.digest).where(table.c.seq == seq)
    ).one()
    if hashlib.sha256(document).hexdigest() != digest:
        raise BlobError("its bytes are not those that were saved")
    data = json.loads(decompress(document, MAX_DOCUMENT))
    if isinstance(data, dict) and data.get("schema", 0) > RUN_SCHEMA:
        raise newer(run_id, f"schema {data['schema']}", RUN_SCHEMA)
    return data


def id_of(connection: Connection, seq: int) -> str:
    """The id of the run in that row."""
    table = schema.run
    return str(connection.execute(select(table.c.id).where(table.c.seq == seq)).scalar_one())


def positions(connection: Connection, seq: int) -> set[int]:
    """The places in the plan whose cases are stored."""
    table = schema.run_case
    return set(connection.scalars(select(table.c.position).where(table.c.run == seq)))


def newer(run_id: str, what: str, known: int) -> UsageError:
    """The error for what only a newer program can read."""
    return UsageError(
        f"The run {run_id} was stored by a newer Torchstone ({what}; this program knows {known}).",
        "Upgrade: pip install --upgrade torchstone.",
    )
