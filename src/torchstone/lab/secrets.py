"""What of an arm may be kept: of variables off the allow-list, only that they were set."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from torchstone.conductor.worker import clean
from torchstone.machine.redact import redact_text, visible_variables, without_secrets
from torchstone.records import (
    ArmSpec,
    Ledger,
    Measurement,
    Result,
    UsageError,
    to_data,
)
from torchstone.records.errors import data_directory

HIDDEN = "(hidden)"
STATEMENT_NOTE = "a secret in the statement is not kept"
_QUOTING = ("detail", "contract", "agreement", "graphs", "notes")
"""Fields of a measurement that may quote user code: messages, keys of nests, graph breaks."""
_OF_OURS = ("arm", "environment", "id", "created", "version", "schema")
"""Fields of a ledger that quote nobody."""
_ARM = "--arm"
_TO_QUOTE = re.compile(r"[\s'\"\\]")
"""Signs that `shlex.split` does not leave as they are."""


def public_env(env: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The same names; values only where the allow-list lets them be seen."""
    given = dict(env)
    visible = visible_variables(given)
    return tuple((name, visible.get(name, HIDDEN)) for name in given)


def public_arm(arm: ArmSpec) -> ArmSpec:
    """The arm as it may be stored and shown."""
    statement = arm.statement
    if statement is not None:
        env = {**os.environ, **dict(arm.env)}
        # Secrets alone: a statement with another path in it could not be run again.
        stmt, setup = (without_secrets(text, env) for text in (statement.stmt, statement.setup))
        statement = replace(statement, stmt=stmt, setup=setup)
    return replace(arm, env=public_env(arm.env), statement=statement)


def public_measurement(measurement: Measurement) -> Measurement:
    """The record as it may be stored: whatever may quote user code is cleaned as well."""
    own, arm = measurement.arm, public_arm(measurement.arm)
    cleaned = _cleaned(measurement, _QUOTING, own)
    if arm.statement != own.statement:
        cleaned["notes"] = (*cleaned["notes"], STATEMENT_NOTE)
    return replace(measurement, arm=arm, **cleaned)


def public_ledger(ledger: Ledger, arm: ArmSpec) -> Ledger:
    """The ledger of that arm as it may be stored: graph breaks, guards and notes quote user code.

    Every text is cleaned except in the environment, which has been, and where nothing is quoted.
    """
    names = [one.name for one in fields(ledger) if one.name not in _OF_OURS]
    return replace(ledger, **_cleaned(ledger, names, arm), arm=public_arm(arm))


def _cleaned(record: Measurement | Ledger, names: Iterable[str], arm: ArmSpec) -> dict[str, Any]:
    """These fields with every text in them cleaned, however deep."""
    cleaned = cache(partial(clean, arm=arm))  # types and devices stand in every leaf

    def of(value: Any) -> Any:
        if isinstance(value, str):
            return cleaned(value)
        if isinstance(value, tuple):
            return tuple(map(of, value))
        if isinstance(value, Mapping):
            return {key: of(one) for key, one in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{one.name: of(getattr(value, one.name)) for one in fields(value)}
            )
        return value

    return {name: of(getattr(record, name)) for name in names}


def public_words(words: Iterable[str]) -> tuple[str, ...]:
    """A command line without the values of hidden variables."""
    words = list(words)
    return tuple(
        _public_word(before, word) for before, word in zip(["", *words], words, strict=False)
    )


def _public_word(before: str, word: str) -> str:
    if before == _ARM:
        return public_arm_text(word)
    if word.startswith(f"{_ARM}="):
        return f"{_ARM}={public_arm_text(word.partition('=')[2])}"
    return redact_text(word, os.environ)


def public_arm_text(text: str) -> str:
    """What follows `--arm`, without the values of hidden variables (`env.NAME=VALUE`)."""
    if "env." not in text:
        return redact_text(text, os.environ)
    try:
        words = shlex.split(text)
    except ValueError:  # quotes that do not close: who knows where a value ends
        return HIDDEN
    parts = []
    for part in words:
        key, _, value = part.partition("=")
        if key.startswith("env."):
            shown = dict(public_env([(key[4:], value)]))[key[4:]]
            part = f"{key}={shown}"
        parts.append(shlex.quote(part) if _TO_QUOTE.search(part) else part)
    return redact_text(" ".join(parts), os.environ)


def refuse_incomplete(measurement: Measurement) -> None:
    """Say so where a statement cannot be run again, because it is not kept whole."""
    if STATEMENT_NOTE in measurement.notes:
        raise UsageError(
            f"The statement {measurement.arm.name!r} was kept without the secret that stood in it.",
            "Time it again, and read the secret from the environment in the setup.",
        )


def restore_env(arm: ArmSpec) -> ArmSpec:
    """Fill hidden variables from the present environment, or say which one is needed."""
    filled = []
    for name, value in arm.env:
        if value == HIDDEN:
            if name not in os.environ:
                raise UsageError(
                    f"The arm {arm.name!r} was run with {name} set, and its value is not kept.",
                    f"Set {name} in the environment and try again.",
                )
            value = os.environ[name]
        filled.append((name, value))
    return replace(arm, env=tuple(filled))


# Which installation made a record: only what was made here is run again unasked.
#
# A record names code. A secret of this installation, which no record and no database holds, signs
# what each record would run; nobody else can make a record that passes for one of ours, and ours
# cannot be changed.


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
