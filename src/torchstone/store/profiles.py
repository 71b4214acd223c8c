"""Profiles and ledgers: what was seen of an arm beside its time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, func, select

from torchstone.records import (
    ArmSpec,
    Ledger,
    Profile,
    RecordError,
    TorchstoneError,
    from_data,
    to_data,
)
from torchstone.store import lookup, schema
from torchstone.store.codec import compress, decompress, to_json
from torchstone.store.engine import Base

LOOKED_AT = 200
"""Profiles of one target among which those with the same threads and settings are looked for."""
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
    target: str = ""
    """Of the arm that it is of, as the next; empty for a program's."""
    variant: str = ""


def pack(profile: Profile) -> bytes:
    """The same bytes for the same profile, so that it is kept once."""
    return gzip.compress(to_json(to_data(profile)).encode(), compresslevel=6, mtime=0)


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


class ProfilesPart(Base):
    """Profiles: a row each, and a file beside the database; of a server, a row of `artefact`."""

    def save_profile(self, profile: Profile, result: str = "") -> int:
        """Keep a profile, by itself or beside a result; the bytes that its file takes."""
        self._refuse_reading_only()
        packed = pack(profile)
        digest = self.put_artefact(packed)
        names = ("id", "created", "how", "tool", "label", "machine_id")
        row = {name: getattr(profile, name) for name in names}
        with self._writing() as connection:
            lookup.refuse_known(connection, lookup.PROFILE, profile.id)
            stored = connection.execute(
                schema.profile.insert().values(
                    **row, result=result, bytes=len(packed), digest=digest
                )
            )
            if profile.arm is not None and stored.inserted_primary_key:
                connection.execute(
                    schema.profile_arm.insert().values(
                        profile=stored.inserted_primary_key[0],
                        **lookup.key_of(profile.arm),
                        document=to_json(to_data(profile.arm)),
                    )
                )
        return len(packed)

    def put_artefact(self, packed: bytes) -> str:
        """Keep the bytes; their digest. Before the row that names them: whoever reads it finds
        them."""
        if not self.location.url:
            return put(folder_of(self.location.path), packed)
        table, digest = schema.artefact, hashlib.sha256(packed).hexdigest()
        with self._writing() as connection:
            known = select(table.c.digest).where(table.c.digest == digest)
            if connection.scalar(known) is None:
                connection.execute(table.insert().values(digest=digest, data=packed))
        return digest

    def artefact(self, digest: str) -> bytes:
        """The bytes of that digest."""
        if not self.location.url:
            return get(folder_of(self.location.path), digest)
        table = schema.artefact
        with self._reading() as connection:
            data = connection.scalar(select(table.c.data).where(table.c.digest == digest))
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise TorchstoneError(
                f"What was stored of a profile is missing in {self.location}, or damaged.",
                "Restore it from a copy.",
            )
        return bytes(data)

    def profile_id(self, wanted: str) -> str:
        """The whole id of the profile that `load_profile` would give."""
        with self._reading() as connection:
            return lookup.resolve(connection, wanted, lookup.PROFILE).id

    def profile_result(self, ident: str) -> str:
        """The id of the result that a profile belongs to; empty for one by itself."""
        query = select(schema.profile.c.result).where(schema.profile.c.id == ident)
        with self._reading() as connection:
            return connection.scalar(query) or ""

    def load_profile(self, wanted: str) -> Profile:
        """The profile of that id, of the only id that begins so, or the newest one (`last`)."""
        table = schema.profile
        with self._reading() as connection:
            row = lookup.resolve(connection, wanted, lookup.PROFILE)
            digest = connection.scalar(select(table.c.digest).where(table.c.seq == row.seq))
        packed = self.artefact(str(digest))
        try:
            return from_data(Profile, json.loads(_unpacked(packed)))
        except (RecordError, ValueError, TypeError, RecursionError) as error:
            raise TorchstoneError(f"The profile {wanted} cannot be read: {error}.") from None

    def list_profiles(self, limit: int = 20, result: str | None = None) -> list[ProfileSummary]:
        """The newest first; those of one result where it is given."""
        query = _query().limit(limit)
        if result is not None:
            query = query.where(schema.profile.c.result == result)
        with self._reading() as connection:
            return [ProfileSummary(*row[2:]) for row in connection.execute(query)]

    def profiles_of(
        self, result: str, arms: Sequence[tuple[ArmSpec, str]], limit: int = 20
    ) -> list[ProfileSummary]:
        """Profiles of a result, and of the same work as one of these arms, each with its machine;
        the newest first."""
        table, query = schema.profile, _query()
        with self._reading() as connection:
            found = list(connection.execute(query.where(table.c.result == result).limit(limit)))
            for arm, machine_id in arms:
                same = lookup.matching(schema.profile_arm, arm)
                rows = query.where(*same, table.c.machine_id == machine_id).limit(LOOKED_AT)
                found += [row for row in connection.execute(rows).all() if _is_of(row[1], arm)]
        by_seq = {row[0]: ProfileSummary(*row[2:]) for row in found}
        return [by_seq[seq] for seq in sorted(by_seq, reverse=True)[:limit]]


def _query() -> Select[Any]:
    """The row, the document of the arm, and what a summary has; the newest first."""
    table, arm_of = schema.profile, schema.profile_arm
    own = [table.c[name] for name in ProfileSummary.__dataclass_fields__ if name in table.c]
    of_arm = [func.coalesce(arm_of.c[name], "") for name in ("target", "variant")]
    joined = table.outerjoin(arm_of, arm_of.c.profile == table.c.seq)
    columns = (table.c.seq, arm_of.c.document, *own, *of_arm)
    return select(*columns).select_from(joined).order_by(table.c.seq.desc())


def _is_of(document: str, arm: ArmSpec) -> bool:
    try:
        return lookup.same_work(from_data(ArmSpec, json.loads(document)), arm)
    except (RecordError, ValueError, TypeError):
        return False  # of a newer program, or not one of ours


# Files beside the database, named by what they hold: profiles, which are too large for a row.
#
# A file is written whole under another name, made durable, and only then given its own; so a name
# that is there is a file that is complete, whatever was killed meanwhile.


SUFFIX = ".files"
_PREFIX = ".part-"


def folder_of(database: Path) -> Path:
    """`torchstone.db.files`, beside `torchstone.db`."""
    return database.with_name(database.name + SUFFIX)


def put(folder: Path, data: bytes) -> str:
    """Keep the bytes; returns their digest. Bytes that are there already are not written again."""
    digest = hashlib.sha256(data).hexdigest()
    target = _path(folder, digest)
    if target.exists():
        return digest
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=_PREFIX, dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
    return digest


def get(folder: Path, digest: str) -> bytes:
    """The bytes of that digest; an error where they are missing or are not what was kept."""
    target = _path(folder, digest)
    try:
        data = target.read_bytes()
    except OSError as error:
        raise TorchstoneError(
            f"The file {target} cannot be read: {error.strerror or error}.",
            "It belongs to the database beside it; copy both together.",
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise TorchstoneError(
            f"The file {target} is not what was stored.", "Restore it from a copy."
        )
    return data


def _path(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / digest[2:]


def _sync_folder(folder: Path) -> None:
    """Make the new name durable too; systems that cannot are left alone."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


# Ledgers: where the time of a step went, one compressed document each.


LEDGERS_LOOKED_AT = 10
"""Ledgers of one target among which one with the same threads and settings is looked for."""
LARGEST_LEDGER = 1 << 26
"""Bytes of a ledger when unpacked: a row that says more was not written by us."""


@dataclass(frozen=True)
class LedgerSummary:
    """One line of a list of ledgers."""

    id: str
    created: str
    target: str
    variant: str
    mode: str
    precision: str
    device: str
    machine_id: str
    wall_s: float
    findings: int
    bytes: int


class LedgersPart(Base):
    """Ledgers: a row each."""

    def save_ledger(self, ledger: Ledger) -> int:
        """Keep a ledger; the bytes that it takes."""
        table, environment = schema.ledger, ledger.environment
        with self._writing() as connection:
            lookup.refuse_known(connection, lookup.LEDGER, ledger.id)
            packed = compress(to_json(to_data(ledger)).encode())
            connection.execute(
                table.insert().values(
                    id=ledger.id,
                    created=ledger.created,
                    **lookup.key_of(ledger.arm),
                    machine_id=environment.machine_id if environment else "",
                    wall_s=ledger.wall_s,
                    findings=len(ledger.findings),
                    bytes=len(packed),
                    document=packed,
                )
            )
        return len(packed)

    def load_ledger(self, wanted: str) -> Ledger:
        """The ledger of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            row = lookup.resolve(connection, wanted, lookup.LEDGER)
            return _read_ledger(connection, row.seq, row.id)

    def ledger_of(self, arm: ArmSpec, machine_id: str) -> Ledger | None:
        """The newest ledger of the same work on the same machine; see `lookup.same_work`."""
        table = schema.ledger
        same = (*lookup.matching(table, arm), table.c.machine_id == machine_id)
        query = select(table.c.seq, table.c.id).where(*same).order_by(table.c.seq.desc())
        with self._reading() as connection:
            rows = connection.execute(query.limit(LEDGERS_LOOKED_AT)).all()
            found = (_read_ledger(connection, row.seq, row.id) for row in rows)
            return next((one for one in found if lookup.same_work(one.arm, arm)), None)

    def list_ledgers(self, limit: int = 20) -> list[LedgerSummary]:
        """The newest first."""
        table = schema.ledger
        columns = [table.c[name] for name in LedgerSummary.__dataclass_fields__]
        query = select(*columns).order_by(table.c.seq.desc()).limit(limit)
        with self._reading() as connection:
            return [LedgerSummary(*row) for row in connection.execute(query)]


def _read_ledger(connection: Connection, seq: int, name: str) -> Ledger:
    table = schema.ledger
    packed = connection.scalar(select(table.c.document).where(table.c.seq == seq))
    try:
        return from_data(Ledger, json.loads(decompress(packed or b"", LARGEST_LEDGER)))
    except (RecordError, ValueError, TypeError, RecursionError) as error:
        raise TorchstoneError(f"The ledger {name} cannot be read: {error}.") from None
