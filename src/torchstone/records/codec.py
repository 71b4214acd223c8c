"""Records to JSON-ready data and back, strictly: a missing, unknown or ill-typed field is an error.

The standard library alone does this because the worker has nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

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
        if record and type(record[0]) is int:  # samples: no need to look at each one
            return list(record)
        return [to_data(value) for value in record]
    if isinstance(record, float) and not math.isfinite(record):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(record, "NaN")
    return record


def from_data(cls: type[T], data: Any, where: str = "") -> T:
    """The record of type `cls` that `to_data` would turn into `data`."""
    return typing.cast(T, _decode(cls, data, where or cls.__name__))


@cache
def _fields(cls: type[Any]) -> dict[str, tuple[Any, bool]]:
    hints = typing.get_type_hints(cls)
    return {
        f.name: (
            hints[f.name],
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(cls)
    }


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_optional(kind, data, where)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise RecordError(f"{where}: expected an object, got {type(data).__name__}")
        value_kind = typing.get_args(kind)[1]
        return {str(k): _decode(value_kind, v, f"{where}.{k}") for k, v in data.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_record(typing.cast("type[Any]", kind), data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(data)
        except ValueError:
            raise RecordError(f"{where}: {data!r} is not a {kind.__name__}") from None
    return _decode_scalar(kind, data, where)


def _decode_optional(kind: Any, data: Any, where: str) -> Any:
    if data is None:
        return None
    (inner,) = (a for a in typing.get_args(kind) if a is not type(None))
    return _decode(inner, data, where)


def _decode_tuple(args: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise RecordError(f"{where}: expected a list, got {type(data).__name__}")
    if len(args) == 2 and args[1] is Ellipsis:
        if args[0] is int:
            if not all(type(value) is int for value in data):
                raise RecordError(f"{where}: expected a list of integers")
            return tuple(data)
        return tuple(_decode(args[0], value, f"{where}[{i}]") for i, value in enumerate(data))
    if len(data) != len(args):
        raise RecordError(f"{where}: expected {len(args)} items, got {len(data)}")
    return tuple(
        _decode(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(args, data, strict=True))
    )


def _decode_record(cls: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise RecordError(f"{where}: expected an object, got {type(data).__name__}")
    fields = _fields(cls)  # type: ignore[arg-type]
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise RecordError(f"{where}: unknown field {unknown[0]!r}")
    missing = [name for name, (_, required) in fields.items() if required and name not in data]
    if missing:
        raise RecordError(f"{where}: field {missing[0]!r} is missing")
    return cls(**{name: _decode(fields[name][0], v, f"{where}.{name}") for name, v in data.items()})


def _decode_scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    if kind is float:
        if isinstance(data, str) and data in _NON_FINITE:
            return _NON_FINITE[data]
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            return float(data)
    elif type(data) is kind:
        return data
    raise RecordError(f"{where}: expected {getattr(kind, '__name__', kind)}, got {data!r:.80}")
