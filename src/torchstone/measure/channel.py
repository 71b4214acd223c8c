"""Messages between conductor and worker: JSON, each with its length before it, over two pipes.

The pipes are not standard output, so nothing that user code prints can be taken for a message.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchstone.records import (
    Contract,
    Environment,
    Flops,
    Graphs,
    Integrity,
    Memory,
    Turn,
    WarmUp,
)

_LENGTH = struct.Struct("!I")
MESSAGE_LIMIT = 256 * 1024 * 1024
TAG = "TORCHSTONE_WORKER"
"""The variable by which a worker and all that it starts can be found."""


class ChannelClosed(Exception):
    """The other side is gone."""


def send(descriptor: int, message: dict[str, Any]) -> None:
    """Write one whole message."""
    body = json.dumps(message, separators=(",", ":")).encode()
    view = memoryview(_LENGTH.pack(len(body)) + body)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BrokenPipeError:
            raise ChannelClosed from None


def receive(descriptor: int) -> dict[str, Any]:
    """Read one whole message; blocks."""
    (length,) = _LENGTH.unpack(_read(descriptor, _LENGTH.size))
    if length > MESSAGE_LIMIT:
        raise ChannelClosed(f"a message of {length} bytes cannot be ours")
    message = json.loads(_read(descriptor, length))
    if not isinstance(message, dict):
        raise ChannelClosed("not a message of ours")
    return message


def _read(descriptor: int, length: int) -> bytes:
    parts = []
    while length:
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            raise ChannelClosed
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


# What conductor and worker tell each other. Frozen records, sent as JSON.


@dataclass(frozen=True)
class Failure:
    """An arm that said what was wrong before it ended.

    `kind` is `usage` (the request is at fault), `not_supported`, `oom` or `error`.
    """

    kind: str
    message: str
    remedy: str = ""
    phase: str = ""
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True)
class SoloReport:
    """Everything the solo pass found out about an arm."""

    environment: Environment
    first_call_ns: int
    warm_up: WarmUp
    loops: int
    step_ns: int
    contract: Contract | None = None
    memory: Memory | None = None
    graphs: Graphs | None = None
    integrity: Integrity = field(default_factory=Integrity)
    fault_cost_ns: float | None = None
    changes: tuple[str, ...] = ()
    probe_bits: int | None = None
    """The size of the probe that takes its time here, found while nothing else of ours ran."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the user's own source files, by path."""


@dataclass(frozen=True)
class Seen:
    """Calls that an arm has just made alone, sent while its pass goes on: nanoseconds of each."""

    call_ns: tuple[int, ...]


NO_TENSORS = "the memory of its tensors is unknown"


@dataclass(frozen=True)
class TensorReport:
    """The memory of an arm with that of its tensors, or why there is none of them."""

    memory: Memory
    note: str = ""


@dataclass(frozen=True)
class CheckedCall:
    """A call whose output is compared with the reference's: its seed, and which shape."""

    seed: int
    shape: int = 0


@dataclass(frozen=True)
class ReferenceReport:
    """References made for some calls, by plain eager code."""

    weights_hash: str
    constant: bool
    """The output was the same for inputs that differ."""
    step_ns: int
    notes: tuple[str, ...] = ()


FLOAT64_FAILED = "float64 failed"


@dataclass(frozen=True)
class CountReport:
    """Operations and bytes of a step, or why there is no figure; a statement has none to count."""

    flops: Flops | None
    note: str = ""


@dataclass(frozen=True)
class StartReport:
    """A measuring process is built and steady."""

    start_ns: int
    warm_up: WarmUp
    layout: str
    sample_ns: int
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TurnReport:
    """One turn as the worker saw it; the conductor knows which it was, and what else went on."""

    turn: Turn
    compiles: int
    integrity: Integrity
    marked_ns: int = 0
    """Between the two marks, by the worker's clock."""
    cpu_ns: int = 0
    """CPU time since the command came."""
    marked_sample: int | None = None
    """The one that has marks of its own."""
