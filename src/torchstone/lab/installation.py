"""Which installation made a record: only what was made here is run again unasked.

A record names code. A secret of this installation, which no record and no database holds, signs
what each record would run; nobody else can make a record that passes for one of ours, and ours
cannot be changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from torchstone.records import ArmSpec, Result, UsageError, to_data
from torchstone.store.location import data_directory

FILE_NAME = "installation.key"
_KEY_BYTES = 32


def signature(result_id: str, arms: Iterable[ArmSpec]) -> str:
    """Of what the record would run; empty where this installation can keep no secret."""
    key = _read_key() or _make_key()
    return "" if key is None else _sign(key, result_id, arms)


def is_ours(result: Result) -> bool:
    """Whether this installation made the record, and for this very code."""
    key = _read_key()
    if key is None or not result.signature:
        return False
    expected = _sign(key, result.id, (arm.arm for arm in result.arms))
    return hmac.compare_digest(expected, result.signature)


def _sign(key: bytes, result_id: str, arms: Iterable[ArmSpec]) -> str:
    text = json.dumps([result_id, [_told(arm) for arm in arms]], sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _told(arm: ArmSpec) -> dict[str, object]:
    """What was said of the arm. A field that a later version adds changes nothing of it."""
    plain = ArmSpec("")
    said = {one.name: getattr(arm, one.name) for one in fields(ArmSpec)}
    return {name: to_data(value) for name, value in said.items() if value != getattr(plain, name)}


def _read_key() -> bytes | None:
    try:
        key = bytes.fromhex((data_directory() / FILE_NAME).read_text("ascii"))
    except (OSError, UsageError, ValueError):
        return None
    return key if len(key) == _KEY_BYTES else None


def _make_key() -> bytes | None:
    """Written aside and linked into place: whoever comes first wins, and nobody reads half."""
    try:
        path = data_directory() / FILE_NAME
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = path.with_name(f"{FILE_NAME}.{secrets.token_hex(8)}")
        try:
            _write(aside)
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except (OSError, UsageError):  # a home that cannot be written, or none
        return None
    return _read_key()


def _write(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(_KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
