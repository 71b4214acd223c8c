"""A profile: where time or memory went. Whatever took it or wrote it, this is what it becomes.

Long lists are columns (tuples of equal length, one entry a node, span or line), because a profile
may have a million of them. A part that a way of profiling cannot give is None or empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records.measurement import ArmSpec
from torchstone.records.result import Estimate

PROFILE_SCHEMA = 2
"""2: with the arm that it is of. Both are read; profiles of 1 have none."""
WAYS = ("count", "sample", "trace", "memory")
"""How a profile can be taken."""
UNITS = ("seconds", "samples", "bytes", "calls", "weight")
"""`weight` is whatever a file counted without saying what."""


@dataclass(frozen=True)
class Frame:
    """A place in code, or an op, a kernel, a marked stretch: what a stack is made of.

    `kind` is `python`, `native`, `op`, `kernel`, `annotation`, `gc`, `wait` or `root`. `line` is
    the first line of the function; 0 where there is none.
    """

    name: str
    file: str = ""
    line: int = 0
    kind: str = "python"


@dataclass(frozen=True)
class Thread:
    """A thread of the profiled process. `critical`: the one whose wall time is the step's."""

    name: str
    id: int = 0
    process: int = 0
    critical: bool = False


@dataclass(frozen=True)
class CallTree:
    """Call paths with what each took by itself, in columns. A node's parent comes before it; the
    parent of a root is -1. `calls` is empty where calls were not counted."""

    unit: str
    parents: tuple[int, ...]
    frames: tuple[int, ...]
    own: tuple[float, ...]
    threads: tuple[int, ...]
    calls: tuple[int, ...] = ()


@dataclass(frozen=True)
class Spans:
    """Stretches of time, in columns, ordered by thread, then start, longer first; nanoseconds from
    the profile's start. Spans of one thread nest and never overlap otherwise: readers see to it."""

    frames: tuple[int, ...]
    threads: tuple[int, ...]
    start_ns: tuple[int, ...]
    duration_ns: tuple[int, ...]


@dataclass(frozen=True)
class Calls:
    """How often and how long a function was called; by one caller, or in all.

    `primitive` leaves out recursion. Seconds, as `cProfile` counts them: `own` without callees,
    `total` with them and without recursion.
    """

    frame: int
    calls: int
    primitive: int
    own_s: float
    total_s: float


@dataclass(frozen=True)
class FunctionCalls:
    """One function's exact figures, and those by each of its callers."""

    of: Calls
    callers: tuple[Calls, ...] = ()


@dataclass(frozen=True)
class LineTable:
    """What lines of one file took, in columns; only lines with something to say.

    `bytes` is the memory in use after the line, `increment` what it added over all its runs; both
    empty where memory was not looked at. `text` is the source of the whole file, line by line,
    where it may be shown; empty else.
    """

    file: str
    lines: tuple[int, ...]
    hits: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    bytes: tuple[int, ...] = ()
    increment: tuple[int, ...] = ()
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class Instruction:
    """One bytecode instruction. `specialised` is the form that the interpreter adapted it to."""

    offset: int
    line: int
    name: str
    argument: str = ""
    specialised: str = ""
    jump_target: bool = False


@dataclass(frozen=True)
class Bytecode:
    """The instructions of one function."""

    frame: int
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class LiveTensor:
    """Memory of one kind that was alive at the peak: how many, how much, and who made it."""

    what: str
    count: int
    bytes: int
    stack: tuple[int, ...] = ()
    """Frames, the outermost first."""


@dataclass(frozen=True)
class MemoryUse:
    """Memory over time, in columns, and what was alive at the peak."""

    time_ns: tuple[int, ...] = ()
    resident: tuple[int, ...] = ()
    heap: tuple[int, ...] = ()
    peak_bytes: int = 0
    peak_ns: int = 0
    at_peak: CallTree | None = None
    alive: tuple[LiveTensor, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Counter:
    """One count; `value` is None where it cannot be measured here, and `note` says why."""

    name: str
    value: float | None
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Sampling:
    """How samples were taken: shares of them are statistics, and have intervals."""

    samples: int
    interval_s: float
    clock: str
    """`wall`, `cpu` or `gil`."""
    lost: int = 0
    """Samples that came too late or could not be taken."""


@dataclass(frozen=True)
class Cost:
    """What profiling did to what it looked at: profiled ÷ unprofiled wall time in interleaved
    turns, and the same for unprofiled ÷ unprofiled: what the machine makes of nothing."""

    ratio: Estimate
    control: Estimate
    unprofiled_s: float
    profiled_s: float
    footprint_bytes: int = 0
    """Of what the profiler wrote."""
    memory_bytes: int = 0
    """That the profiled process needed more."""


@dataclass(frozen=True)
class Profile:
    """One way's look at one piece of work."""

    id: str
    created: str
    how: str
    """`count`, `sample`, `trace` or `memory`."""
    tool: str
    """Who took it: `cProfile`, `py-spy`, `torch.profiler`, or the format it was read from."""
    frames: tuple[Frame, ...] = ()
    threads: tuple[Thread, ...] = ()
    tree: CallTree | None = None
    spans: Spans | None = None
    functions: tuple[FunctionCalls, ...] = ()
    lines: tuple[LineTable, ...] = ()
    bytecode: tuple[Bytecode, ...] = ()
    memory: MemoryUse | None = None
    counters: tuple[Counter, ...] = ()
    sampling: Sampling | None = None
    cost: Cost | None = None
    steps: int = 0
    """Steps of a workload that it covers; 0 for a program."""
    wall_s: float = 0.0
    estimated: bool = False
    """Call paths are guessed: the source knows callers, but not which path led to them."""
    problems: tuple[str, ...] = ()
    """What is wrong with it: time stamps of zero, children longer than parents, lost events."""
    command: tuple[str, ...] = ()
    label: str = ""
    origin: str = "here"
    machine_id: str = ""
    arm: ArmSpec | None = None
    """What was profiled; None for a program."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Interpreter, torch, threads, whether there is a GIL."""
    notes: tuple[str, ...] = ()
    version: str = ""
    schema: int = PROFILE_SCHEMA
