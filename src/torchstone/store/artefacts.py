"""Files beside the database, named by what they hold: profiles, which are too large for a row.

A file is written whole under another name, made durable, and only then given its own; so a name
that is there is a file that is complete, whatever was killed meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from torchstone.records import TorchstoneError

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
