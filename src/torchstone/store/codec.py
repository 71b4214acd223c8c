"""A result as it is stored: one compressed JSON document and, per arm, its samples.

The turns are turned into columns and moved behind all arms. Equal neighbours (the arms' same
environment, the same counter turn after turn) then stand close together, where deflate finds
them.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array as array_of
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


def to_json(data: Any) -> str:
    """Compact and strict, in ASCII."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


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
# Each array is kept as its smallest value and the differences from it (frame of reference). All
# numbers are laid out by byte significance: first all lowest bytes, then all second bytes, and so
# on, and the whole is deflated. Times jitter in their low bytes and agree in their high ones, so
# the high planes shrink to almost nothing.
#
# Bytes per sample, for 2 arms of 60 turns of 12 samples of a noisy 5 ms step (wall time, CPU time
# and probe; `tests/store/test_store_size.py` prints it): 2.3 here, 8 as int64, 9.1 as
# JSON text. The whole case takes 14 KB where plain JSON takes 85.


MAX_SAMPLES = 10_000_000
"""Samples in one blob: an arm sampled every 0.4 ms for an hour."""
_WIDTH = 8  # bytes of a number; nanoseconds of a century need as many


def pack(arrays: Sequence[Sequence[int]]) -> bytes:
    """All arrays in one envelope; `unpack` gives them back exactly."""
    if sum(map(len, arrays)) > MAX_SAMPLES:
        raise BlobError(f"more than {MAX_SAMPLES} samples in one arm")
    bases = [min(array) if array else 0 for array in arrays]
    steps = [base - before for base, before in zip(bases, [0, *bases], strict=False)]
    try:
        numbers = array_of("Q", [len(arrays), *map(len, arrays)])
        numbers.extend(2 * step if step >= 0 else -2 * step - 1 for step in steps)
        for array, base in zip(arrays, bases, strict=True):
            numbers.extend(value - base for value in array)
    except OverflowError:
        raise BlobError(f"an integer needs more than {_WIDTH} bytes") from None
    flat = _little_endian(numbers).tobytes()
    return compress(b"".join(flat[plane::_WIDTH] for plane in range(_WIDTH)))


def unpack(blob: bytes, limit: int = MAX_UNSEALED) -> list[tuple[int, ...]]:
    """The arrays that `pack` put in. Every byte must be accounted for."""
    lengths, rest = _lengths(decompress(blob, limit))
    count, at, base = len(lengths), len(lengths), 0
    if len(rest) != count + sum(lengths):
        raise BlobError(f"{len(rest)} numbers where {count + sum(lengths)} belong")
    arrays: list[tuple[int, ...]] = []
    for length, step in zip(lengths, rest[:count], strict=True):
        base += step >> 1 if step % 2 == 0 else -(step >> 1) - 1
        arrays.append(tuple([base + value for value in rest[at : at + length]]))
        at += length
    return arrays


def count(blob: bytes) -> int:
    """How many samples are in a blob."""
    return sum(_lengths(decompress(blob))[0])


def _lengths(payload: bytes) -> tuple[array_of[int], array_of[int]]:
    """How long each array is, and the numbers after that."""
    total, left = divmod(len(payload), _WIDTH)
    if left or not total:
        raise BlobError("the samples end too early")
    flat = bytearray(len(payload))
    for plane in range(_WIDTH):
        flat[plane::_WIDTH] = payload[plane * total : (plane + 1) * total]
    numbers = _little_endian(array_of("Q", bytes(flat)))
    after = numbers[0] + 1
    if after > total:
        raise BlobError("the samples end too early")
    return numbers[1:after], numbers[after:]


def _little_endian(numbers: array_of[int]) -> array_of[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


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
        text = to_json({"result": data, "turns": turns})
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
        text = to_json(stored)
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
    """Records of one type as columns; a nested record that all of them have, as nested columns."""
    if not rows:
        return {}
    return {
        name: _columns([row[name] for row in rows])
        if all(isinstance(row[name], dict) for row in rows)
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
