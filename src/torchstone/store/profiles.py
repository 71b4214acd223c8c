"""Profiles: a row that says what there is, and a compressed file that holds it."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, select

from torchstone.records import (
    Profile,
    RecordError,
    TorchstoneError,
    UsageError,
    from_data,
    to_data,
)
from torchstone.store import artefacts, lookup, schema

LARGEST = 1 << 30
"""Bytes of a profile when unpacked: a file that says more was not written by us."""


@dataclass(frozen=True)
class ProfileSummary:
    """One line of a list of profiles."""

    id: str
    created: str
    how: str
    tool: str
    label: str
    machine_id: str
    result: str
    """The id of the result that it belongs to; empty for one by itself."""
    bytes: int


def pack(profile: Profile) -> bytes:
    """The same bytes for the same profile, so that it is kept once."""
    text = json.dumps(to_data(profile), separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def _unpacked(packed: bytes) -> bytes:
    """The bytes inside, within the limit; `ValueError` where there are none."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            text = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from None
    if len(text) > LARGEST:
        raise ValueError("it is larger than any profile")
    return text


def insert(connection: Connection, profile: Profile, digest: str, size: int, result: str) -> None:
    """Add the row of a profile whose file is there."""
    known = select(schema.profile.c.seq).where(schema.profile.c.id == profile.id)
    if connection.scalar(known) is not None:
        raise UsageError(f"A profile {profile.id} is already stored; profiles never change.")
    row = {
        "id": profile.id,
        "created": profile.created,
        "how": profile.how,
        "tool": profile.tool,
        "label": profile.label,
        "machine_id": profile.machine_id,
        "result": result,
        "bytes": size,
        "digest": digest,
    }
    connection.execute(schema.profile.insert().values(**row))


def summaries(
    connection: Connection, limit: int, result: str | None = None
) -> list[ProfileSummary]:
    """The newest first; those of one result where it is given."""
    if not schema.has_judging(connection):
        return []
    table = schema.profile
    columns = [table.c[name] for name in ProfileSummary.__dataclass_fields__]
    query = select(*columns).order_by(table.c.seq.desc()).limit(limit)
    if result is not None:
        query = query.where(table.c.result == result)
    return [ProfileSummary(*row) for row in connection.execute(query)]


def load(connection: Connection, folder: Path, wanted: str) -> Profile:
    """The profile of that id, or of the only one that begins so; `last` is the newest."""
    row = lookup.resolve_profile(connection, wanted)
    table = schema.profile
    digest = connection.scalar(select(table.c.digest).where(table.c.seq == row.seq))
    packed = artefacts.get(folder, str(digest))
    try:
        return from_data(Profile, json.loads(_unpacked(packed)))
    except (RecordError, ValueError, TypeError, RecursionError) as error:
        raise TorchstoneError(f"The profile {wanted} cannot be read: {error}.") from None
