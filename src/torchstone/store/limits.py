"""What may come in from elsewhere: bounds on a document before it is decoded, and sense after."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from torchstone.records import MEASUREMENT_SCHEMA, RESULT_SCHEMA, Result, Run, UsageError

MAX_DEPTH = 16
"""Nesting. A result's own is 8 (result, arms, arm, turns, turn, noise, ...)."""
MAX_VALUES = 5_000_000
"""Numbers, strings and containers together: a day of measuring at one sample per 20 ms."""
MAX_TEXT = 32 * 1024 * 1024
"""Characters in all strings and keys together."""
MAX_ARMS = 1_000
MAX_NAME = 500
"""Characters in a name that lists and headlines repeat."""
MAX_ID = 100
MAX_CASES = 100_000
"""Cases of one run: every model of the four suites under a hundred settings."""
LAST = "last"
"""The word that means the newest; nothing may be called so."""
HERE = "here"
"""The origin of what this database's own programs measured."""

_MAX_INT = 1 << 64  # seeds are unsigned 64-bit numbers; nothing in a record is larger


@dataclass
class _Tally:
    values: int = 0
    text: int = 0


def check_bounds(data: object) -> None:
    """Refuse a document that is too deep, too large, or not made of JSON's own types."""
    tally = _Tally()
    layer: list[Any] = [data]
    depth = 0
    while layer:  # layer by layer, so that depth costs no stack
        depth += 1
        if depth > MAX_DEPTH:
            raise _refused(f"it is nested deeper than {MAX_DEPTH} levels")
        below: list[Any] = []
        for value in layer:
            if isinstance(value, dict):
                below.extend(value.values())
                for key in value:
                    _count(key, tally)
            elif isinstance(value, list):
                below.extend(value)
            else:
                _count(value, tally)
            if tally.values + len(below) > MAX_VALUES:
                raise _refused(f"it holds more than {MAX_VALUES} values")
        layer = below


def _count(value: object, tally: _Tally) -> None:
    tally.values += 1
    if isinstance(value, str):
        tally.text += len(value)
        if tally.text > MAX_TEXT:
            raise _refused(f"it holds more than {MAX_TEXT} characters of text")
    elif isinstance(value, int):
        if not -_MAX_INT < value < _MAX_INT:
            raise _refused("a number in it has more than 64 bits")
    elif value is not None and not isinstance(value, float):
        raise _refused(f"{type(value).__name__} is not a type that JSON has")


def check_schema(data: dict[str, Any]) -> None:
    """Refuse a newer document by its version, before a strange field makes a puzzling error."""
    versions = [(data.get("schema", RESULT_SCHEMA), RESULT_SCHEMA)]
    arms = data.get("arms")
    for arm in arms if isinstance(arms, list) else ():
        if isinstance(arm, dict):
            versions.append((arm.get("schema", MEASUREMENT_SCHEMA), MEASUREMENT_SCHEMA))
    for found, known in versions:
        if isinstance(found, int) and found > known:
            raise UsageError(
                f"The document was made by a newer Torchstone (schema {found}; this program "
                f"knows {known}).",
                "Upgrade: pip install --upgrade torchstone.",
            )


def check_sense(result: Result) -> None:
    """Refuse what decodes but cannot be a result, or could not be shown safely in a list."""
    names = [arm.arm.name for arm in result.arms]
    check_id(result.id)
    for text in (result.created, result.kind, result.label, result.version, *names):
        if len(text) > MAX_NAME or not text.isprintable():
            raise _refused(f"the name {text[:40]!r} is too long or not printable")
    if not 1 <= len(names) <= MAX_ARMS:
        raise _refused(f"it has {len(names)} arms, where 1 to {MAX_ARMS} can be")
    if len(set(names)) != len(names):
        raise _refused("two of its arms have the same name")
    for comparison in result.comparisons:
        for name in (comparison.base, comparison.new):
            if name not in names:
                raise _refused(f"a comparison speaks of {name[:40]!r}, which is not an arm")
    for arm in result.arms:
        if arm.loops < 1:
            raise _refused(f"arm {arm.arm.name!r} has {arm.loops} loops a sample")


def check_origin(origin: str) -> None:
    """What comes from elsewhere must say from where, so that it is not run unasked."""
    if not origin or origin == HERE or len(origin) > MAX_NAME or not origin.isprintable():
        raise UsageError(
            f"{origin[:40]!r} cannot be an origin.", "Name the file or address it came from."
        )


def check_id(result_id: str) -> None:
    """Refuse an id that could not be typed or would be mistaken for a word of the commands."""
    if not _is_id(result_id):
        raise _refused(f"{result_id[:40]!r} cannot be the id of a result")


def _is_id(text: str) -> bool:
    if not text or len(text) > MAX_ID or text == LAST:
        return False
    return text.isprintable() and not any(c.isspace() for c in text)


def check_run(run: Run) -> None:
    """Refuse a run that could not be found again, shown safely, or told apart case by case."""
    if not _is_id(run.id):
        raise UsageError(f"{run.id[:40]!r} cannot be the id of a run.", "Leave it to Torchstone.")
    if run.label == LAST:
        raise UsageError(f"A run cannot be labelled {LAST!r}.", "It means the newest run.")
    if not 1 <= len(run.plan) <= MAX_CASES:
        raise UsageError(
            f"A run of {len(run.plan)} cases cannot be stored.", f"1 to {MAX_CASES} can be."
        )
    keys = [case.key for case in run.plan]
    names = (part for key in keys for part in (key.suite, key.model, key.variant, key.device))
    for text in (run.label, run.created, run.origin, *names):
        if len(text) > MAX_NAME or not text.isprintable():
            raise UsageError(
                f"The name {text[:40]!r} is too long or not printable.",
                f"Use at most {MAX_NAME} printable characters.",
            )
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise UsageError(
            f"The case {twice[0].name} is in the plan {keys.count(twice[0])} times.",
            "Name each model once.",
        )


def _refused(reason: str) -> UsageError:
    return UsageError(
        f"The document is not a usable result: {reason}.",
        "Give a document that `torchstone export` made.",
    )
