"""What the passes report to the process that makes the ledger of it. Figures are nanoseconds of
one step, unless they say otherwise, and nothing has been corrected yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records import Contract, Environment, Flops, Graphs


@dataclass(frozen=True)
class Plan:
    """How long to look, and at what."""

    budget_s: float = 6.0
    """For the rounds of plain and traced steps; the other passes take about as long."""
    rounds: int = 8
    count_flops: bool = True


@dataclass(frozen=True)
class Plain:
    """Steps with nobody looking: the truth that the ledger divides."""

    steps: int
    wall: float
    """As the clock on the wall has it, on average."""
    cpu: float
    """Of the critical thread, in an undisturbed step."""
    off: float
    """Asleep: neither running nor waiting for a core."""
    wait: float
    """Ready to run, but without a core."""
    collecting: float
    """In the garbage collector, on the critical thread."""
    process_cpu: float
    """Of all threads."""
    faults: float
    """Pages that had to be mapped (a count)."""
    python_threads: float = 0.0
    """CPU time of the process's other Python threads."""
    busy: float = 0.0
    """Cores that the process kept busy, on average."""
    dropped: int = 0
    """Steps left out because they waited longest for a core."""


@dataclass(frozen=True)
class OpTime:
    """All calls of one op or kernel in a step, as traced: its own time, without what it called."""

    name: str
    calls: float
    own: float
    inside: float
    """Events that it called itself (a count)."""
    with_grad: float = 0.0
    """Calls that made an autograd node (a count)."""


@dataclass(frozen=True)
class Place:
    """Time of a step outside all ops, by whose it is, as traced."""

    events: float
    """Events that mark it (a count); none for the step itself."""
    own: float
    inside: float
    entries: Mapping[str, float]
    """Ops that it called through the Python binding (counts): `aten::add`, `aten::mul>aten::to`."""


@dataclass(frozen=True)
class Traced:
    """Steps under the tracer."""

    steps: int
    wall: float
    cpu: float
    off: float
    wait: float
    collecting: float
    events: float
    places: Mapping[str, Place]
    ops: tuple[OpTime, ...]
    kernels: tuple[OpTime, ...] = ()
    """Of the compiler's making."""
    copies: tuple[OpTime, ...] = ()
    """Between host and device; on the device, so no part of the thread's time."""
    breaks: float = 0.0
    """Compiled regions that were left at a graph break (a count)."""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """By event name: what ops with nothing to do took between these steps, as a multiple of what
    they took when floors were measured."""
    grad_speeds: Mapping[str, float] = field(default_factory=dict)
    """The same where they make autograd nodes."""

    @property
    def on(self) -> float:
        """All that was traced, without the time asleep."""
        spent = sum(place.own for place in self.places.values())
        spent += sum(op.own for op in (*self.ops, *self.kernels))
        return spent - self.off


@dataclass(frozen=True)
class Round:
    """A stretch of plain steps and one of traced steps, one after the other."""

    plain: Plain
    traced: Traced | None = None


@dataclass(frozen=True)
class Costs:
    """What the tracer and an op's front end cost here, measured on ops with nothing to do."""

    event: float = 0.0
    """One traced event."""
    binding: float = 0.0
    """From Python into an op: what its event does not cover; a usual one."""
    bindings: Mapping[str, float] = field(default_factory=dict)
    """The same by how an op is entered, where it is known."""
    floors: Mapping[str, float] = field(default_factory=dict)
    """By event name: its own traced time where its kernel has nothing to do."""
    grad_floors: Mapping[str, float] = field(default_factory=dict)
    """The same where it makes an autograd node."""
    default_floor: float = 0.0
    pool: float = 0.0
    """To start and join the thread pool once."""
    fault: float = 0.0
    """To map one page."""
    breaking: float = 0.0
    """To leave compiled code at a graph break and go on, with nothing to do in between; what it
    takes to find and enter the code that goes on is traced, and no part of it."""


@dataclass(frozen=True)
class Block:
    """Time in which the thread slept in one C function, and who called it."""

    kind: str
    """`sleep`, `lock`, `file`, `network`, `loading`, `torch` or `other`."""
    function: str
    place: str
    off: float
    on: float
    calls: float


@dataclass(frozen=True)
class Watched:
    """Looks at the thread from outside, each at one moment (counts)."""

    looks: int = 0
    running: int = 0
    gil: int = 0
    pool: int = 0
    lock: int = 0
    sleep: int = 0
    reading: int = 0
    other: int = 0
    reason: str = ""
    """Why nobody could look."""
    others: int = 0
    """The process's other Python threads."""
    others_looks: int = 0
    others_gil: int = 0


@dataclass(frozen=True)
class Function:
    """One Python function of a step: its own time under `cProfile`, ops apart."""

    name: str
    file: str
    line: int
    calls: float
    own: float


@dataclass(frozen=True)
class Library:
    """What a library said of one kind of work of one step."""

    library: str
    kind: str
    """`gemm`, `convolution`, `reorder` and the like."""
    implementation: str
    calls: float
    ns: float


@dataclass(frozen=True)
class Break:
    """A place where the compiler had to stop, and why."""

    reason: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Fused:
    """One kernel of the compiler's making and the ops of the original that it stands for."""

    name: str
    ops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of the arm."""

    graphs: Graphs
    breaks: tuple[Break, ...] = ()
    recompiles: tuple[Break, ...] = ()
    kernels: tuple[Fused, ...] = ()
    late: int = 0
    """Compilations while the passes ran."""


@dataclass(frozen=True)
class Passes:
    """All that was seen of one arm."""

    rounds: tuple[Round, ...]
    costs: Costs
    environment: Environment
    contract: Contract | None = None
    blocks: tuple[Block, ...] = ()
    watched: Watched = field(default_factory=Watched)
    functions: tuple[Function, ...] = ()
    libraries: tuple[Library, ...] = ()
    compiled: Compiled | None = None
    flops: Flops | None = None
    steady: bool = True
    facts: Mapping[str, str] = field(default_factory=dict)
    """`gil`, `isa`, `threads`, `cores`, `interop`, `device`."""
    notes: tuple[str, ...] = ()
