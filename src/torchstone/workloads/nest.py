"""Nests: tensors and scalars inside tuples, lists, dicts and dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """The named parts of a container, or None for a leaf."""
    if isinstance(value, Mapping):
        return [(f".{key}", item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{key}", getattr(value, key)) for key in value._fields]
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
