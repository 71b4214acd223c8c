"""A result as it is stored: one compressed JSON document and, per arm, its samples.

The turns are turned into columns and moved behind all arms. Equal neighbours (the arms' same
environment, the same counter turn after turn) then stand close together, where deflate finds
them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.records import RecordError, Result, from_data, to_data
from torchstone.store.blobs import BlobError, seal, unseal
from torchstone.store.samples import count, pack, unpack

TURN_ARRAYS = ("wall_ns", "cpu_ns", "probe_ns")
"""The fields of a turn that go into the samples; a replicate gives its warm-up's `wall_ns`."""

MAX_DOCUMENT = 64 * 1024 * 1024
"""Bytes of JSON in one result. A turn takes about 300, so this is some 200,000 turns."""


@dataclass(frozen=True)
class Parcel:
    """What is written for one result: the document, and the samples of each arm in order."""

    document: bytes
    samples: tuple[bytes, ...]


def split(result: Result) -> Parcel:
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
    parcel = Parcel(seal(text.encode("ascii")), tuple(samples))
    join(parcel.document, parcel.samples)  # stored for good, so it must be readable
    return parcel


def join(document: bytes, samples: Sequence[bytes]) -> Result:
    """The result that `split` took apart. Raises `BlobError` if anything does not fit."""
    try:
        stored = json.loads(unseal(document, MAX_DOCUMENT))
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


def without_samples(document: bytes, samples: Sequence[bytes]) -> tuple[Parcel, int]:
    """The same result with no turns and no warm-up samples; and how many samples that removes."""
    try:
        stored = json.loads(unseal(document, MAX_DOCUMENT))
        arms = stored["result"]["arms"]
        stored["turns"] = [{"count": 0, "columns": {}} for _ in arms]
        empty = tuple(pack([()] * len(arm["replicates"])) for arm in arms)
        text = json.dumps(stored, separators=(",", ":"), allow_nan=False)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise error if isinstance(error, BlobError) else BlobError(str(error)) from None
    parcel = Parcel(seal(text.encode("ascii")), empty)
    join(parcel.document, parcel.samples)  # stored for good, so it must be readable
    return parcel, sum(map(count, samples))


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
