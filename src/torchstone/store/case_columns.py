"""The figures of a case as columns, and back, exactly.

Numbers and short words have a column each. What has none (reasons, commands, other tools' rows),
and the rare value that a column cannot hold as it is (NaN, an integer of more than 64 bits, text
that is not Unicode), goes into one JSON object, which most cases share with those of other nights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

from sqlalchemy import Float, Text, case, func, literal

from torchstone.records import (
    CaseFigures,
    CaseKey,
    Level,
    Outcome,
    RecordError,
    Verdict,
    from_data,
    to_data,
)
from torchstone.store.derived import case_detail, case_fact, series

KEY = tuple(field.name for field in fields(CaseKey))
SPLIT = {"low": "interval", "high": "interval"}
"""Columns that hold a part of a field."""

_FIRST = list(case_fact.columns.keys()).index("outcome")
_LAST = list(case_fact.columns.keys()).index("elapsed_s")
COLUMNS = tuple(case_fact.columns.keys())[_FIRST : _LAST + 1]
"""Of `case_fact`: those that hold figures, in the table's order."""

SELECTED = (
    *(series.c[name] for name in KEY),
    case_fact.c.definition,
    *(case_fact.c[name] for name in COLUMNS),
)
"""What `figures_of` wants of a row; its detail comes after them."""

DETAIL = func.coalesce(
    case_detail.c.document, case((case_fact.c.detail.is_not(None), literal("")), else_=None)
)
"""The detail; empty, which is no JSON, where it ought to be there and is not."""

_DEFAULTS = {field.name: field.default for field in fields(CaseFigures)}
_IN_DETAIL = tuple(
    name for name in _DEFAULTS if name not in (*COLUMNS, "key", "interval", "definition")
)
"""Fields without a column: reasons, commands, names of rules."""
_OUTCOMES = {one.value: one for one in Outcome}
_VERDICTS: dict[str | None, Verdict | None] = {None: None, **{one.value: one for one in Verdict}}
_LEVELS = {one.value: one for one in Level}
_REAL = tuple(name for name in COLUMNS if isinstance(case_fact.c[name].type, Float))
_TEXT = tuple(name for name in COLUMNS if isinstance(case_fact.c[name].type, Text))
_WHOLE = tuple(name for name in COLUMNS if name not in (*_REAL, *_TEXT))
_OURS = ("outcome", "worst_check")
_PLAIN = tuple(name for name in COLUMNS if name not in (*SPLIT, *_OURS, "verdict"))
_NEEDED = tuple(name for name in _PLAIN if _DEFAULTS[name] is not None)
"""Columns that are NULL only where the detail has the value."""
_MAY_BE_IN_DETAIL = frozenset((*_IN_DETAIL, *_PLAIN, "interval"))
_EMPTY: dict[str, Any] = {
    "key": {field.name: "" for field in fields(CaseKey) if field.default is MISSING},
    "outcome": Outcome.OK.value,
}
_LISTS = ("command", "checks", "break_reasons")
_LARGEST = 2**63
_WORDS = 8192  # details kept decoded: more than a few runs have
_KEYS = 16_384  # keys kept: those of a few large plans


def row_of(figures: CaseFigures) -> tuple[dict[str, Any], str | None]:
    """The columns of a case, and its detail as JSON; None where there is nothing in it.

    `RecordError` for figures that could not be read back.
    """
    known = vars(figures)
    row: dict[str, Any] = {name: known[name] for name in _PLAIN}
    row["outcome"], row["worst_check"] = figures.outcome.value, figures.worst_check.value
    row["verdict"] = None if figures.verdict is None else figures.verdict.value
    row["low"], row["high"] = figures.interval or (None, None)
    unfit = _unfit(row)
    words = tuple([known[name] for name in _IN_DETAIL])
    detail = _detail(words)
    if unfit:
        told = {name: to_data(known[name]) for name in sorted(unfit)}
        detail = _dumped({**told, **json.loads(detail or "{}")})
    key = vars(figures.key)
    types = [type(key[name]) for name in KEY]
    types += [type(figures.definition), *[type(row[name]) for name in COLUMNS], type(detail)]
    _check_types(tuple(types))
    missing = [name for name in _NEEDED if row[name] is None and name not in unfit]
    if missing:
        raise RecordError(f"{missing[0]} is missing")
    if detail is not None:
        _words(detail)
    return row, detail


def _unfit(row: dict[str, Any]) -> set[str]:
    """Fields that their column would not give back; their columns are emptied."""
    found = set()
    for name in _REAL:
        value = row[name]
        if value is None or value > 0.0 or value < 0.0:
            if type(value) is int:
                row[name] = float(value)
        elif str(value) != "0.0":  # NaN would become NULL, and the sign of -0.0 be lost
            row[name] = 0.0 if value == 0 and type(value) is int else None
            if row[name] is None:
                found.add(SPLIT.get(name, name))
    for name in _TEXT:
        value = row[name]
        if value is not None and not (value.isascii() and "\0" not in value):
            found.add(name)
            row[name] = None
    for name in _WHOLE:
        value = row[name]
        if value is not None and not -_LARGEST <= value < _LARGEST:
            found.add(name)
            row[name] = None
    if "interval" in found:
        row["low"] = row["high"] = None
    return found


@lru_cache(maxsize=_WORDS)
def _detail(words: tuple[Any, ...]) -> str | None:
    """The fields without a column as JSON; the same night after night."""
    told = {n: to_data(v) for n, v in zip(_IN_DETAIL, words, strict=True) if v != _DEFAULTS[n]}
    return _dumped(told) if told else None


def _dumped(told: dict[str, Any]) -> str:
    return json.dumps(told, separators=(",", ":"), allow_nan=False)


def digest_of(detail: str) -> bytes:
    """What a detail is found by."""
    return hashlib.sha256(detail.encode("ascii")).digest()[:16]


def figures_of(row: Sequence[Any]) -> CaseFigures:
    """The case of a row of `SELECTED` and its detail. `RecordError` if it is none of ours."""
    _check_types(tuple(map(type, row)))
    detail = row[-1]
    words = _NO_WORDS if detail is None else _words(detail)
    known = dict(zip(COLUMNS, row[_AFTER_KEY:-1], strict=True))
    low, high = known.pop("low"), known.pop("high")
    try:
        outcome, verdict = _OUTCOMES[known["outcome"]], _VERDICTS[known["verdict"]]
        level = _LEVELS[known["worst_check"]]
    except KeyError as error:
        raise RecordError(f"{str(error)[:60]} is not a word of ours") from None
    known.update(_REST)
    known["key"] = _key(*row[: len(KEY)])
    known["outcome"], known["verdict"], known["worst_check"] = outcome, verdict, level
    if low is not None and high is not None:
        known["interval"] = (low, high)
    known["definition"] = row[len(KEY)]
    if words:
        known.update(words)
        missing = [name for name in _NEEDED if known[name] is None]
        if missing:
            raise RecordError(f"{missing[0]} is missing")
    # A frozen dataclass sets each of its fields by a call, which takes longer than the rest.
    figures = object.__new__(CaseFigures)
    object.__setattr__(figures, "__dict__", known)
    return figures


@lru_cache(maxsize=_KEYS)
def _key(*parts: Any) -> CaseKey:
    """The same key for the same case of every run: what is the same object is quickly equal."""
    return CaseKey(*parts)


_AFTER_KEY = len(KEY) + 1
_NO_WORDS: dict[str, Any] = {}
_REST = {name: _DEFAULTS[name] for name in (*_IN_DETAIL, "interval")}


@lru_cache(maxsize=_WORDS)
def _words(detail: str) -> dict[str, Any]:
    """The fields of a detail, decoded. Shared: nobody may change it."""
    try:
        data = json.loads(detail)
        if not isinstance(data, dict) or not _MAY_BE_IN_DETAIL.issuperset(data):
            raise RecordError("it speaks of what is in a column")
        plain = {name: _texts(data.pop(name)) for name in _LISTS if name in data}
        made = from_data(CaseFigures, {**_EMPTY, **data}) if data else None
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"its detail: {error}") from None
    return plain | {name: getattr(made, name) for name in data}


def _texts(data: Any) -> tuple[str, ...]:
    """What nearly every detail is made of, without the detour through the records' decoder."""
    if not isinstance(data, list) or not all(type(text) is str for text in data):
        raise RecordError("expected a list of texts")
    return tuple(data)


@lru_cache(maxsize=1024)
def _check_types(types: tuple[type, ...]) -> None:
    """A file from elsewhere may hold anything anywhere; rows of one shape are looked at once."""
    names = (*KEY, "definition", *COLUMNS, "detail")
    texts = ({*KEY, *_TEXT, "detail"}) - {"threads"}
    told = types[-1] is str
    always = {*KEY, "definition", *_OURS, *(() if told else _NEEDED)}
    for name, kind in zip(names, types, strict=True):
        wanted = str if name in texts else float if name in _REAL else int
        if kind is not wanted and (kind is not type(None) or name in always):
            raise RecordError(f"{name} is {kind.__name__}, not {wanted.__name__}")
