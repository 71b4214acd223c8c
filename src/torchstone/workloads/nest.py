"""Nests: tensors and scalars inside tuples, lists, dicts and dataclasses.

A long list of plain numbers is one leaf: a contract with a million entries helps nobody.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

LONG_LIST = 32
_NUMBERS = frozenset({bool, int, float})


def is_number_list(value: Any) -> bool:
    """A list or tuple of plain numbers that is too long to be looked at one by one."""
    return (
        type(value) in (list, tuple) and len(value) > LONG_LIST and {*map(type, value)} <= _NUMBERS
    )


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """The named parts of a container, or None for a leaf."""
    if isinstance(value, Mapping):
        return [(f".{key}", item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{key}", getattr(value, key)) for key in value._fields]
    if is_number_list(value):
        return None
    if isinstance(value, (tuple, list)):
        return [(f"[{i}]", item) for i, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    return None


def walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, in order; `None` parts are left out."""
    children = _children(value)
    if children is None:
        if value is not None:
            yield path, value
        return
    for suffix, item in children:
        yield from walk(item, path + suffix)


def map_nest(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same nest with every leaf passed through `function`."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_nest(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_nest(item, function) for item in value)
    if isinstance(value, dict):
        return {key: map_nest(item, function) for key, item in value.items()}
    return value if value is None else function(value)
