"""A result as it is stored: one compressed JSON document and, per arm, its samples.

The turns are turned into columns and moved behind all arms. Equal neighbours (the arms' same
environment, the same counter turn after turn) then stand close together, where deflate finds
them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.records import RecordError, Result, from_data, to_data

# One sealed envelope for everything kept as bytes: a format byte, then a zlib stream.


FORMAT = 1
"""The first byte of every envelope. A reader refuses a format that it does not know."""

MAX_UNSEALED = 128 * 1024 * 1024
"""Bytes. No envelope unpacks to more, so a small hostile file cannot fill the memory. A step
measured for an hour leaves some 10 MB, so the limit is far above any honest result."""

_LEVEL = 9  # on the small payloads of a case it costs a few milliseconds, once


class BlobError(ValueError):
    """Bytes that are not what this program wrote, or data that it cannot write."""


def compress(payload: bytes) -> bytes:
    """The payload, compressed, behind its format byte."""
    if len(payload) > MAX_UNSEALED:
        raise BlobError(f"{len(payload)} bytes are more than the limit of {MAX_UNSEALED}")
    return bytes((FORMAT,)) + zlib.compress(payload, _LEVEL)


def decompress(blob: bytes, limit: int = MAX_UNSEALED) -> bytes:
    """The payload of an envelope, of at most `limit` bytes; anything else is an error."""
    if not blob:
        raise BlobError("no bytes at all")
    if blob[0] != FORMAT:
        raise BlobError(f"unknown format {blob[0]}")
    inflate = zlib.decompressobj()
    try:
        # One byte more than allowed tells "just fits" from "too long" without unpacking it all.
        payload = inflate.decompress(blob[1:], limit + 1)
    except zlib.error as error:
        raise BlobError(f"damaged bytes ({error})") from None
    if len(payload) > limit:
        raise BlobError(f"more than {limit} bytes when unpacked")
    if not inflate.eof:
        raise BlobError("the bytes end too early")
    if inflate.unused_data:
        raise BlobError("bytes after the end")
    return payload


# Integer samples in few bytes, without loss.
#
# Each array is kept as its smallest value and the differences from it (frame of reference). The
# differences of all arrays are laid out by byte significance: first all lowest bytes, then all
# second bytes, and so on, and the whole is deflated. Times jitter in their low bytes and agree in
# their high ones, so the high planes shrink to almost nothing.
#
# Bytes per sample, for 2 arms of 60 turns of 12 samples of a noisy 5 ms step (wall time, CPU time
# and probe; `tests/store/test_store_size.py` prints it): 2.3 here, 8 as int64, 9.1 as
# JSON text. The whole case takes 14 KB where plain JSON takes 85.


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


def unpack(blob: bytes, limit: int = MAX_UNSEALED) -> list[tuple[int, ...]]:
    """The arrays that `pack` put in. Every byte must be accounted for."""
    payload = decompress(blob, limit)
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


def count(blob: bytes) -> int:
    """How many samples are in a blob."""
    payload = decompress(blob)
    arrays, at = _get_varint(payload, 0)
    if arrays > MAX_ARRAYS:
        raise BlobError(f"{arrays} arrays are more than the limit of {MAX_ARRAYS}")
    return sum(_get_varints(payload, at, arrays)[0])


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


TURN_ARRAYS = ("wall_ns", "cpu_ns", "probe_ns")
"""The fields of a turn that go into the samples; a replicate gives its warm-up's `wall_ns`."""

MAX_DOCUMENT = 64 * 1024 * 1024
"""Bytes of JSON in one result. A turn takes about 300, so this is some 200,000 turns."""


@dataclass(frozen=True)
class EncodedResult:
    """What is written for one result: the document, and the samples of each arm in order."""

    document: bytes
    samples: tuple[bytes, ...]


def split(result: Result) -> EncodedResult:
    """The result as bytes. Raises `BlobError` if it could not be read back."""
    data = to_data(result)
    samples = []
    turns = []
    try:
        for arm in data["arms"]:
            samples.append(pack(_take_arrays(arm)))
            turns.append({"count": len(arm["turns"]), "columns": _columns(arm.pop("turns"))})
        text = json.dumps({"result": data, "turns": turns}, separators=(",", ":"), allow_nan=False)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise BlobError(str(error)) from None
    encoded = EncodedResult(compress(text.encode("ascii")), tuple(samples))
    join(encoded.document, encoded.samples)  # stored for good, so it must be readable
    return encoded


def join(document: bytes, samples: Sequence[bytes]) -> Result:
    """The result that `split` took apart. Raises `BlobError` if anything does not fit."""
    try:
        stored = json.loads(decompress(document, MAX_DOCUMENT))
        data, turns = stored["result"], stored["turns"]
        if not len(data["arms"]) == len(turns) == len(samples):
            raise BlobError(f"{len(data['arms'])} arms, but samples of {len(samples)}")
        for arm, table, blob in zip(data["arms"], turns, samples, strict=True):
            arm["turns"] = _rows(table["columns"], table["count"])
            _give_arrays(arm, unpack(blob))
        return from_data(Result, data)
    except RecordError as error:
        raise BlobError(str(error)) from None
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError) as error:
        raise BlobError(f"unexpected content ({type(error).__name__}: {error})") from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise error if isinstance(error, BlobError) else BlobError(str(error)) from None


def without_samples(document: bytes, samples: Sequence[bytes]) -> tuple[EncodedResult, int]:
    """The same result with no turns and no warm-up samples; and how many samples that removes."""
    try:
        stored = json.loads(decompress(document, MAX_DOCUMENT))
        arms = stored["result"]["arms"]
        stored["turns"] = [{"count": 0, "columns": {}} for _ in arms]
        empty = tuple(pack([()] * len(arm["replicates"])) for arm in arms)
        text = json.dumps(stored, separators=(",", ":"), allow_nan=False)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise error if isinstance(error, BlobError) else BlobError(str(error)) from None
    encoded = EncodedResult(compress(text.encode("ascii")), empty)
    join(encoded.document, encoded.samples)  # stored for good, so it must be readable
    return encoded, sum(map(count, samples))


def _take_arrays(arm: dict[str, Any]) -> list[list[int]]:
    """Remove the arrays from an arm's data; arrays of one kind stand together."""
    arrays = [turn.pop(name) for name in TURN_ARRAYS for turn in arm["turns"]]
    arrays += [replicate["warm_up"].pop("wall_ns") for replicate in arm["replicates"]]
    return arrays


def _give_arrays(arm: dict[str, Any], arrays: list[tuple[int, ...]]) -> None:
    """Put back what `_take_arrays` removed."""
    owners = [(turn, name) for name in TURN_ARRAYS for turn in arm["turns"]]
    owners += [(replicate["warm_up"], "wall_ns") for replicate in arm["replicates"]]
    if len(owners) != len(arrays):
        raise BlobError(f"{len(arrays)} arrays of samples where {len(owners)} belong")
    for (owner, name), array in zip(owners, arrays, strict=True):
        owner[name] = list(array)


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Records of one type as columns; a nested record becomes nested columns."""
    if not rows:
        return {}
    return {
        name: _columns([row[name] for row in rows])
        if isinstance(rows[0][name], dict)
        else [row[name] for row in rows]
        for name in rows[0]
    }


def _rows(columns: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Columns back into `count` records."""
    table = {
        name: _rows(column, count) if isinstance(column, dict) else column
        for name, column in columns.items()
    }
    for name, values in table.items():  # before anything of that length is made
        if len(values) != count:
            raise BlobError(f"column {name!r} has {len(values)} entries where {count} belong")
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
