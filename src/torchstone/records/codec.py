"""Records to JSON-ready data and back, strictly: a missing, unknown or ill-typed field is an error.

The standard library alone does this because the worker has nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from itertools import repeat
from typing import Any, TypeVar

T = TypeVar("T")

_TOO_LARGE = 2**128
"""Operations of the largest training step fit, and arithmetic with floats stays possible."""
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class RecordError(ValueError):
    """Data that is not a record of the wanted kind; the message names the field."""


def to_data(record: Any) -> Any:
    """Plain dicts, lists and scalars. Floats that JSON cannot hold become their names."""
    if isinstance(record, Enum):
        return record.value
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_data(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {str(key): to_data(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        if record and set(map(type, record)) == {int}:  # samples, which are many
            return list(record)
        return [to_data(value) for value in record]
    if isinstance(record, float) and not math.isfinite(record):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(record, "NaN")
    return record


def from_data(cls: type[T], data: Any, where: str = "") -> T:
    """The record of type `cls` that `to_data` would turn into `data`."""
    try:
        return typing.cast(T, _decoder(typing.cast(Any, cls))(data))
    except _Wrong as wrong:
        path = "".join(reversed(wrong.path))
        raise RecordError(f"{where or cls.__name__}{path}: {wrong}") from None


def fields_from_data(cls: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Some fields of a record, by name, as `from_data` would decode them."""
    fields, _, _ = _fields_of(typing.cast(Any, cls))
    name = ""
    try:
        made = {}
        for name, value in data.items():
            made[name] = fields[name](value)
    except KeyError:
        raise RecordError(f"{cls.__name__}: unknown field {name!r}") from None
    except _Wrong as wrong:
        wrong.path.append(f".{name}")
        raise RecordError(f"{cls.__name__}{''.join(reversed(wrong.path))}: {wrong}") from None
    return made


Decoder = Callable[[Any], Any]


class _Wrong(Exception):
    """What does not fit, and on its way up where it is, innermost first."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.path: list[str] = []


@cache
def _decoder(kind: Any) -> Decoder:
    """Made once for each type: records come by the thousand, and looking at types takes longer
    than looking at data."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _optional(kind)
    if origin is tuple:
        args = typing.get_args(kind)
        return _list(args[0]) if args[1:] == (Ellipsis,) else _fixed(args)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(typing.get_args(kind)[1])
    if dataclasses.is_dataclass(kind):
        return _record(typing.cast("type[Any]", kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if kind is int:
        return _integer
    return _float if kind is float else _scalar(kind)


def _optional(kind: Any) -> Decoder:
    (inner,) = (a for a in typing.get_args(kind) if a is not type(None))
    decoded = _decoder(inner)
    return lambda data: None if data is None else decoded(data)


def _list(kind: Any) -> Decoder:
    if kind is int:
        return _integers
    decoded = _decoder(kind)

    def decode(data: Any) -> tuple[Any, ...]:
        _expect(list, data)
        if kind is str and set(map(type, data)) == {str}:  # names and cells, which are many
            return tuple(data)
        return _items(repeat(decoded), data)

    return decode


def _items(decoders: Iterable[Decoder], data: list[Any]) -> tuple[Any, ...]:
    made: list[Any] = []
    try:
        for value, decoded in zip(data, decoders, strict=False):  # one may have no end
            made.append(decoded(value))
    except _Wrong as wrong:
        wrong.path.append(f"[{len(made)}]")
        raise
    return tuple(made)


def _integers(data: Any) -> tuple[int, ...]:
    _expect(list, data)
    if not all(type(value) is int for value in data):
        raise _Wrong("expected a list of integers")
    if data and not -_TOO_LARGE < min(data) <= max(data) < _TOO_LARGE:
        raise _Wrong("expected integers of at most 128 bits")
    return tuple(data)


def _integer(data: Any) -> int:
    if type(data) is not int:
        raise _Wrong(f"expected int, got {data!r:.80}")
    if not -_TOO_LARGE < data < _TOO_LARGE:
        raise _Wrong("expected an integer of at most 128 bits")
    return data


def _fixed(args: tuple[Any, ...]) -> Decoder:
    decoders = [_decoder(kind) for kind in args]

    def decode(data: Any) -> tuple[Any, ...]:
        _expect(list, data)
        if len(data) != len(decoders):
            raise _Wrong(f"expected {len(decoders)} items, got {len(data)}")
        return _items(decoders, data)

    return decode


def _mapping(kind: Any) -> Decoder:
    decoded = _decoder(kind)

    def decode(data: Any) -> dict[str, Any]:
        _expect(dict, data)
        made: dict[str, Any] = {}
        key = ""
        try:
            for key, value in data.items():
                made[str(key)] = decoded(value)
        except _Wrong as wrong:
            wrong.path.append(f".{key}")
            raise
        return made

    return decode


def _record(cls: type[Any]) -> Decoder:
    def decode(data: Any) -> Any:
        _expect(dict, data)
        fields, required, defaults = _fields_of(typing.cast(Any, cls))  # late: it may hold itself
        if not data.keys() <= fields.keys():
            raise _Wrong(f"unknown field {min(data.keys() - fields.keys())!r}")
        for name in required:
            if name not in data:
                raise _Wrong(f"field {name!r} is missing")
        made: dict[str, Any] = {}
        name = ""
        try:
            for name, value in data.items():
                made[name] = fields[name](value)
        except _Wrong as wrong:
            wrong.path.append(f".{name}")
            raise
        if defaults is None:
            return cls(**made)
        # A frozen dataclass sets each of its fields by a call, which takes longer than the rest.
        record = object.__new__(cls)
        object.__setattr__(record, "__dict__", defaults | made)
        return record

    return decode


@cache
def _fields_of(
    cls: type[Any],
) -> tuple[dict[str, Decoder], tuple[str, ...], dict[str, Any] | None]:
    """Decoders by name, the names that must be there, and what the others are by default; None for
    a class that must be called to be made."""
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    missing = dataclasses.MISSING
    needed = (f.name for f in fields if f.default is missing and f.default_factory is missing)
    called = hasattr(cls, "__post_init__") or hasattr(cls, "__slots__")
    called |= any(f.default_factory is not missing for f in fields)
    defaults = {f.name: f.default for f in fields if f.default is not missing}
    decoders = {f.name: _decoder(hints[f.name]) for f in fields}
    return decoders, tuple(needed), None if called else defaults


def _enum(kind: type[Enum]) -> Decoder:
    members = {member.value: member for member in kind}

    def decode(data: Any) -> Enum:
        try:
            return members[data]
        except (KeyError, TypeError):
            raise _Wrong(f"{data!r} is not a {kind.__name__}") from None

    return decode


def _float(data: Any) -> float:
    if type(data) is float:
        return data
    if isinstance(data, (int, float)) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            raise _Wrong("expected float, got an integer too large for one") from None
    if isinstance(data, str) and data in _NON_FINITE:
        return _NON_FINITE[data]
    raise _Wrong(f"expected float, got {data!r:.80}")


def _scalar(kind: Any) -> Decoder:
    if kind is Any:
        return lambda data: data

    def decode(data: Any) -> Any:
        if type(data) is kind:
            return data
        raise _Wrong(f"expected {getattr(kind, '__name__', kind)}, got {data!r:.80}")

    return decode


def _expect(kind: type, data: Any) -> None:
    if not isinstance(data, kind):
        wanted = "a list" if kind is list else "an object"
        raise _Wrong(f"expected {wanted}, got {type(data).__name__}")
