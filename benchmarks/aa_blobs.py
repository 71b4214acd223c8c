"""The blobs in `results/*.jsonl`: integer arrays in few bytes, as they were recorded.

The database has a layout of its own (`torchstone.store.codec`), which may change; what was
recorded here stays readable. Each array is its smallest value and the differences from it, the
differences of all arrays by byte significance, and the whole deflated.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.store.codec import BlobError, compress, decompress

MAX_ARRAYS = 4_000_000
"""Arrays in one blob: a million turns. Empty ones take hardly a byte; bytes do not bound them."""

MAX_SAMPLES = 10_000_000
"""Samples in one blob: an arm sampled every 0.4 ms for an hour. Equal samples take no bytes at
all, so bytes do not bound them either."""

MAX_INT_BYTES = 32
"""Width of the widest difference. Nanoseconds of a century need 8; the rest is room."""

_MAX_VARINT_BYTES = (MAX_INT_BYTES * 8 + 2) // 7 + 1


def pack(arrays: Sequence[Sequence[int]]) -> bytes:
    """All arrays in one envelope; `unpack` gives them back exactly."""
    if len(arrays) > MAX_ARRAYS:
        raise BlobError(f"{len(arrays)} arrays are more than the limit of {MAX_ARRAYS}")
    head = bytearray()
    _put_varint(head, len(arrays))
    for array in arrays:
        _put_varint(head, len(array))
    bases = [min(array) if array else 0 for array in arrays]
    previous = 0
    for base in bases:
        _put_varint(head, _zigzag(base - previous))  # neighbours are alike
        previous = base
    if sum(map(len, arrays)) > MAX_SAMPLES:
        raise BlobError(f"more than {MAX_SAMPLES} samples in one arm")
    rest = [value - base for array, base in zip(arrays, bases, strict=True) for value in array]
    width = (max(rest, default=0).bit_length() + 7) // 8
    if width > MAX_INT_BYTES:
        raise BlobError(f"an integer needs more than {MAX_INT_BYTES} bytes")
    head.append(width)
    flat = b"".join([value.to_bytes(width, "little") for value in rest]) if width else b""
    return compress(bytes(head) + b"".join(flat[plane::width] for plane in range(width)))


def unpack(blob: bytes) -> list[tuple[int, ...]]:
    """The arrays that `pack` put in. Every byte must be accounted for."""
    payload = decompress(blob)
    count, at = _get_varint(payload, 0)
    if count > MAX_ARRAYS:
        raise BlobError(f"{count} arrays are more than the limit of {MAX_ARRAYS}")
    lengths, at = _get_varints(payload, at, count)
    steps, at = _get_varints(payload, at, count)
    if at >= len(payload):
        raise BlobError("the samples end too early")
    width, total = payload[at], sum(lengths)
    at += 1
    if width > MAX_INT_BYTES or total > MAX_SAMPLES:
        raise BlobError("the samples are larger than allowed")
    if len(payload) - at != width * total:
        raise BlobError(f"{len(payload) - at} bytes of samples where {width * total} belong")
    return _rebuild(lengths, steps, _gather(payload[at:], width, total))


def _gather(planes: bytes, width: int, total: int) -> list[int]:
    """Byte planes back into numbers."""
    if not width:
        return [0] * total
    flat = bytearray(len(planes))
    for plane in range(width):
        flat[plane::width] = planes[plane * total : (plane + 1) * total]
    read = int.from_bytes
    return [read(flat[i : i + width], "little") for i in range(0, len(flat), width)]


def _rebuild(lengths: list[int], steps: list[int], rest: list[int]) -> list[tuple[int, ...]]:
    """Differences back into the arrays they were taken from."""
    arrays: list[tuple[int, ...]] = []
    at = base = 0
    for length, step in zip(lengths, steps, strict=True):
        base += _unzigzag(step)
        arrays.append(tuple([base + value for value in rest[at : at + length]]))
        at += length
    return arrays


def _zigzag(value: int) -> int:
    """Signed to unsigned, small staying small: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def _unzigzag(value: int) -> int:
    return -((value + 1) >> 1) if value & 1 else value >> 1


def _put_varint(out: bytearray, value: int) -> None:
    start = len(out)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    if len(out) - start > _MAX_VARINT_BYTES:
        raise BlobError(f"an integer needs more than {MAX_INT_BYTES} bytes")


def _get_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise BlobError("a number has no end")


def _get_varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    values = []
    for _ in range(count):
        value, at = _get_varint(data, at)
        values.append(value)
    return values, at
