"""Bytes that an op reads and writes, by its operands and results.

Every distinct operand counts once, and every new result. A view moves nothing. An op in place reads
and writes, unless it only overwrites. A broadcast operand counts by the memory behind it, a table
that is looked up by the rows that are taken. These are the bytes that the op asks for; caches may
serve them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_ALLOCATIONS = frozenset(
    "aten." + name
    for name in (
        *("empty", "empty_like", "empty_strided", "empty_permuted"),
        *("new_empty", "new_empty_strided"),
    )
)
_OVERWRITES = frozenset(
    f"aten.{name}_"
    for name in (
        *("copy", "fill", "zero", "uniform", "normal"),
        *("bernoulli", "random", "exponential", "log_normal"),
    )
)
_FILLS = frozenset(
    "aten." + name
    for name in (
        *("zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"),
        *("new_zeros", "new_ones", "new_full"),
    )
)
"""Their operand lends its shape and is not read."""
_BY_ROWS = frozenset(
    "aten." + name
    for name in (
        *("embedding", "index_select"),
        *("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"),
    )
)
_LOOK_UPS = _BY_ROWS | {"aten.index", "aten._unsafe_index", "aten.gather", "aten.take"}
_PUTS = frozenset(
    f"aten.{name}_"
    for name in (
        *("index_put", "_index_put_impl", "index_add", "index_copy", "index_fill"),
        *("index_reduce", "scatter", "scatter_add", "scatter_reduce", "put"),
    )
)


@dataclass(frozen=True)
class Touch:
    """One tensor that an op reads or writes: how much of which memory."""

    storage: int
    """The address of its memory; 0 where it has none of its own."""
    held: int
    """Bytes behind that address."""
    region: tuple[Any, ...]
    bytes: int
    written: bool = False


class Watch:
    """What ops touch, and what a step cannot avoid: memory from before it, and what it leaves."""

    def __init__(self) -> None:
        self.born: set[int] = set()
        self.seen: dict[tuple[int, bool], dict[tuple[Any, ...], int]] = {}
        self.held: dict[int, int] = {}

    def add(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
        """Take note of one call; returns the bytes that it touched."""
        known = {storage_of(tensor)[0] for tensor in tensors((args, kwargs))}
        self.born |= {storage_of(tensor)[0] for tensor in tensors(result)} - known - {0}
        touched = touches(func, args, kwargs, result)
        for touch in touched:
            if touch.storage and touch.storage not in self.born:
                regions = self.seen.setdefault((touch.storage, touch.written), {})
                regions[touch.region] = max(touch.bytes, regions.get(touch.region, 0))
                self.held[touch.storage] = touch.held
        return sum(touch.bytes for touch in touched)

    def least(self, left_behind: Any) -> int:
        """Old memory read, old memory written, and the new tensors that the step leaves behind.

        Parts of a memory that overlap count no more than the whole.
        """
        old = sum(
            min(self.held[storage], sum(regions.values()))
            for (storage, _), regions in self.seen.items()
        )
        new: dict[int, int] = {}
        for tensor in tensors(left_behind):
            storage, held = storage_of(tensor)
            if storage in self.born:
                new[storage] = min(held, new.get(storage, 0) + real_bytes(tensor))
        return old + sum(new.values())


def touches(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[Touch, ...]:
    """What one call reads and writes."""
    name = str(getattr(func, "_overloadpacket", func))
    operands = list(tensors((args, kwargs)))
    known = {storage_of(tensor)[0] for tensor in operands}
    new = [tensor for tensor in tensors(result) if storage_of(tensor)[0] not in known - {0}]
    written = [] if _only_reshapes(func) else list(_written(func, args, kwargs))
    if name in _ALLOCATIONS or not (new or written):
        return ()
    unread = {id(tensor) for tensor in _unread(name, args, kwargs, written)}
    found = [_touch(tensor) for tensor in operands if id(tensor) not in unread]
    if name in _LOOK_UPS and found:
        found[0] = _limited(found[0], _taken(name, args, new))
    found += [_touch(tensor, written=True) for tensor in (*written, *new)]
    if name in _PUTS and operands:
        room = sum(real_bytes(tensor) for tensor in operands[1:])
        place = storage_of(operands[0])[0]
        found = [_limited(one, room) if one.storage == place else one for one in found]
    distinct = {(one.storage, one.region, one.written): one for one in found}
    return tuple(distinct.values())


def real_bytes(tensor: Any) -> int:
    """Of the memory behind a tensor: what is broadcast counts once, what is not stored not."""
    size = int(tensor.element_size())
    if tensor.is_nested or not _is_strided(tensor):
        stored = tensor._nnz() if tensor.is_sparse else tensor.numel()
        return int(stored) * size
    count = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= int(length) if stride or not length else 1
    _, held = storage_of(tensor)
    return min(count * size, held) if held else count * size


def storage_of(tensor: Any) -> tuple[int, int]:
    """Address and size of a tensor's memory; zeros where it has none that can be asked for."""
    if not _is_strided(tensor):
        return 0, 0
    try:
        storage = tensor.untyped_storage()
        return int(storage.data_ptr()), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):  # a wrapper around other tensors
        return 0, 0


def tensors(value: Any) -> Iterator[Any]:
    """Every tensor inside a nest of arguments, results or outputs."""
    from torch import Tensor

    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors(item)


def _touch(tensor: Any, written: bool = False) -> Touch:
    storage, held = storage_of(tensor)
    where: tuple[Any, ...] = (id(tensor),)
    if storage and not tensor.is_nested:
        where = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
    return Touch(storage, held, where, real_bytes(tensor), written)


def _limited(touch: Touch, room: int) -> Touch:
    return replace(touch, bytes=min(touch.bytes, room))


def _taken(name: str, args: tuple[Any, ...], new: list[Any]) -> int:
    """Bytes of a table that a look-up reads: its distinct rows, or as much as its result holds."""
    if name not in _BY_ROWS:
        return sum(real_bytes(tensor) for tensor in new)
    table, *rest = args
    dim, index = (rest[0], rest[1]) if name == "aten.index_select" else (0, rest[0])
    rows = int(table.shape[dim]) if table.dim() else 1
    return real_bytes(table) * int(index.unique().numel()) // max(1, rows)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """Operands that the op's schema says it writes to."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from tensors(value)


def _unread(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]
) -> Iterator[Any]:
    """Operands that are overwritten without being looked at, or only lend their shape."""
    if name in _OVERWRITES:
        yield from written
    if name in _FILLS:
        yield from tensors(args)
    for key, value in kwargs.items():
        if key == "out" or key.startswith("out"):
            yield from tensors(value)


def _only_reshapes(func: Any) -> bool:
    return any(getattr(tag, "name", "") == "inplace_view" for tag in getattr(func, "tags", ()))


def _is_strided(tensor: Any) -> bool:
    return str(tensor.layout) == "torch.strided"
