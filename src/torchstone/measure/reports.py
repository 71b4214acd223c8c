"""What conductor and worker tell each other. Frozen records, sent as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records import Contract, Environment, Flops, Graphs, Integrity, Memory, WarmUp


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
class Float64Report:
    """The same calls in float64: made, or why not."""

    reason: str = ""


@dataclass(frozen=True)
class CountReport:
    """Operations of a step; None for a statement, which has none to count."""

    flops: Flops | None


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
    """The samples of one turn, as the worker saw them."""

    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    probe_ns: tuple[int, ...]
    probe_every: int
    first_ns: int
    minor_faults: int
    major_faults: int
    turn_wall_ns: int
    turn_cpu_ns: int
    compiles: int
    integrity: Integrity
