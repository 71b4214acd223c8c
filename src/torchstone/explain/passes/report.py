"""What the passes report to the process that makes the ledger of it. Figures are nanoseconds of
one step, unless they say otherwise, and nothing has been corrected yet.

What kind of work an op does, by its name: may a compiler fuse it, does it only move data.
"""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchstone.measure.arm import Phase
from torchstone.records import (
    CodeSite,
    Contract,
    Environment,
    Flops,
    Graphs,
    Ledger,
    OpCost,
    SourceLine,
)


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
    """`sleep`, `locks`, `files`, `network` or `loading`, as lines are named; `torch` or `other`."""
    function: str
    place: str
    off: float
    on: float
    calls: float


@dataclass(frozen=True)
class Watched:
    """Looks at the thread from outside, each at one moment (counts)."""

    looks: int = 0
    asleep: Mapping[str, int] = field(default_factory=dict)
    """By what it slept in: `gil`, `pool`, `locks`, `sleep`, `network` or `other`."""
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
class Compiled:
    """What the compiler made of the arm."""

    graphs: Graphs
    breaks: tuple[SourceLine, ...] = ()
    """Where the compiler had to stop, and why."""
    recompiles: tuple[SourceLine, ...] = ()
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
    sites: tuple[CodeSite, ...] = ()
    flops: Flops | None = None
    steady: bool = True
    facts: Mapping[str, str] = field(default_factory=dict)
    """`gil`, `isa`, `threads`, `cores`, `interop`, `device`."""
    notes: tuple[str, ...] = ()


# Whose an event of torch's tracer is, by its name.


STEP = "torchstone::step"
REFERENCE = "torchstone::reference "
"""Marks of ours: a step, and an op with nothing to do between two of them, before its number."""
PYTHON, OPTIMIZER, LOADING, AUTOGRAD = "interpreter", "optimizer", "loading", "autograd"
GUARDS, BREAK, WRAPPER = "guards", "break", "wrapper"
OP, KERNEL, MARK = "op", "kernel", "mark"
PLACES = (PYTHON, OPTIMIZER, LOADING, AUTOGRAD, GUARDS, BREAK, WRAPPER)
PYTHON_MARKS = (MARK, OPTIMIZER, LOADING)
"""Marks that Python makes on its way: what is called under them is called by Python."""

_BEGINNINGS = (
    ("autograd::engine::", AUTOGRAD),
    ("torch::autograd::", AUTOGRAD),
    ("Optimizer.", OPTIMIZER),
    ("enumerate(DataLoader)#", LOADING),
    ("TorchDynamo Cache Lookup", GUARDS),
    ("Torch-Compiled Region", GUARDS),
    ("Pregraph bytecode", GUARDS),
    ("AOTDispatcher", GUARDS),
    ("## Call CompiledFxGraph", WRAPPER),
)
_REGION, _LOOKUP = "Torch-Compiled Region", "TorchDynamo Cache Lookup"
_GENERATED = ("cpp_fused", "triton_", "cpp_CppMicroGemm")
_ALLOCATING = (
    *("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"),
    *("aten::new_empty_strided", "aten::resize_", "aten::_resize_output_", "aten::set_"),
)
_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("_reshape_alias", "_unsafe_view", "alias", "as_strided", "chunk", "detach", "detach_"),
        *("diagonal", "expand", "expand_as", "flatten", "movedim", "narrow", "permute", "select"),
        *("slice", "split", "split_with_sizes", "squeeze", "squeeze_", "t", "t_", "transpose"),
        *("transpose_", "unbind", "unflatten", "unfold", "unsqueeze", "unsqueeze_", "view"),
        *("view_as", "resolve_conj", "resolve_neg", "lift_fresh", "result_type", "is_nonzero"),
    )
)
_SYNCHRONISING = ("aten::_local_scalar_dense", "cudaStreamSynchronize", "cudaDeviceSynchronize")
_COPIES = ("Memcpy HtoD", "Memcpy DtoH")


def kind_of(name: str, annotation: bool = False) -> str:
    """One of the places, `op`, `kernel` (of the compiler's making), or `mark` (somebody's own)."""
    for beginning, kind in _BEGINNINGS:
        if name.startswith(beginning):
            return kind
    if any(word in name for word in _GENERATED):
        return KERNEL
    if annotation:
        return MARK
    if "::" in name:
        return OP
    if name.startswith("CompiledFunction") and not name.endswith("Backward"):
        return GUARDS
    if name.rstrip("0123456789").endswith("Backward"):
        return AUTOGRAD
    return OP if name == "detach" else MARK


def enters_compiled_code(name: str) -> bool:
    """A compiled region, or the look for one; inside another region it follows a graph break."""
    return name.startswith((_REGION, _LOOKUP))


def is_region(name: str) -> bool:
    """The code that Dynamo made of a frame, from entry to return."""
    return name.startswith(_REGION)


def region_of(compile_id: str) -> str:
    """The event of the region that was compiled under this number."""
    return f"{_REGION}: {compile_id}"


def belongs_to_region(name: str, kind: str) -> bool:
    """The steps of a region towards its graph, and the graph; ops may as well be of a break."""
    own = kind in (GUARDS, WRAPPER, KERNEL)
    return own and not enters_compiled_code(name)


def allocates(op: str) -> bool:
    """Ops that only make room."""
    return op in _ALLOCATING


def is_view(op: str) -> bool:
    """Ops that never touch the data."""
    return op in _VIEWS or op == "detach"


def synchronises(op: str) -> bool:
    """Ops and calls that wait until a device has done its work."""
    return op in _SYNCHRONISING


def copies_to_device(op: str) -> bool:
    """Copies between the host's memory and a device's."""
    return op.startswith(_COPIES)


def fused_ops(kernel: str) -> tuple[str, ...]:
    """The ops that the name of a generated kernel tells of: `cpp_fused_add_relu_0`."""
    words = kernel.partition("_fused_")[2].split("_")
    return tuple(part for part in words if part and not part.isdigit())


# Which Python functions a step spends its time in, by `cProfile`. For names, not for amounts:
# profiling each call makes small functions look more expensive than they are. By the thread's CPU
# clock: a function that sleeps is not where the interpreter is busy.


MOST_FUNCTIONS = 8


def functions_pass(
    block: Callable[[], object], loops: int, count: int, phase: Phase
) -> tuple[Function, ...]:
    """Run the block `count` times; the functions with most time of their own first."""
    phase("passes")
    profile = cProfile.Profile(time.thread_time, builtins=False)
    try:
        profile.enable()
    except ValueError:  # another profiler is there already
        return ()
    try:
        for _ in range(count):
            block()
    finally:
        profile.disable()
    steps = count * loops
    found = [_function(entry, steps) for entry in profile.getstats()]
    known = [one for one in found if one is not None]
    return tuple(sorted(known, key=lambda one: -one.own)[:MOST_FUNCTIONS])


def _function(entry: Any, steps: int) -> Function | None:
    code = entry.code
    if isinstance(code, str) or "torchstone/explain" in code.co_filename.replace("\\", "/"):
        return None
    return Function(
        code.co_name,
        code.co_filename,
        code.co_firstlineno,
        entry.callcount / steps,
        entry.inlinetime * 1e9 / steps,
    )


_HEAVY = (
    *("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "dot", "mv", "addmv"),
    *("convolution", "conv1d", "conv2d", "conv3d", "thnn_conv2d", "slow_conv2d_forward"),
    *("attention", "sort", "topk", "lstm", "gru", "fft", "solve", "svd", "cholesky", "cdist"),
)
_LAYOUT = ("contiguous", "clone", "copy_", "_to_copy")
_CAST, _COPY = "_to_copy", "copy_"
"""`.to(...)` calls the one, and that calls the other, which does the work of all copies."""

ONE_TYPE, IMAGES, OPTIMIZER_FILE = "one_type", "image_layout", "optimizer_file"
"""Facts of a ledger, for findings: `true` where inputs and parameters are all float32 and nothing
casts by itself; `channels_last` where images come so; the file of torch's optimizer that was seen
at work."""


def bare(name: str) -> str:
    """`aten::add_` as `add_`."""
    return name.rpartition("::")[2]


def is_heavy(op: OpCost) -> bool:
    """Work that a compiler hands to a library as it is."""
    name = bare(op.name)
    return any(name.strip("_") == word or word in name.split("_") for word in _HEAVY) or any(
        word in name for word in ("convolution", "attention", "conv2d")
    )


def moves_data(ledger: Ledger) -> list[OpCost]:
    """Copies that only change where or how data lie. Where there are types to cast between,
    `.to(...)` is taken for a cast. What casts take of `copy_` is taken out by their number: names
    do not tell one copy from another."""
    found = [op for op in ledger.ops if bare(op.name) in _LAYOUT]
    if ledger.facts.get(ONE_TYPE) == "true":
        return found
    casts = sum(op.calls for op in found if bare(op.name) == _CAST)
    kept = (
        _fewer(op, casts) if bare(op.name) == _COPY else op
        for op in found
        if bare(op.name) != _CAST
    )
    return [op for op in kept if op.calls > 0]


def _fewer(op: OpCost, calls: float) -> OpCost:
    left = max(0.0, op.calls - calls)
    share = left / op.calls if op.calls else 0.0
    return replace(op, calls=left, kernel_s=op.kernel_s * share, front_s=op.front_s * share)


def fusable(ledger: Ledger) -> list[OpCost]:
    """Ops with kernels that a compiler can merge with their neighbours."""
    return [op for op in _working(ledger) if not (op.generated or is_heavy(op))]


def fusable_s(ledger: Ledger) -> float:
    """Their time, as far as it is in the kernels' line: pages and the pool were taken out of it."""
    working = sum(op.kernel_s for op in _working(ledger))
    return fusable_share(ledger) * min(working, ledger.share("kernels") * ledger.wall_s)


def fusable_share(ledger: Ledger) -> float:
    """Of the time that all ops work."""
    working = sum(op.kernel_s for op in _working(ledger))
    return sum(op.kernel_s for op in fusable(ledger)) / working if working else 0.0


def _working(ledger: Ledger) -> list[OpCost]:
    return [
        op
        for op in ledger.ops
        if op.kernel_s > 0 and not allocates(op.name) and not copies_to_device(op.name)
    ]


def op_calls(ledger: Ledger) -> float:
    """Calls of ops with a kernel or a front end of their own."""
    return sum(op.calls for op in ledger.ops)


def has_convolutions(ops: Sequence[OpCost]) -> bool:
    """Whether the layout of images matters to it."""
    return any("conv" in op.name for op in ops)


def physical_cores(ledger: Ledger) -> int:
    """Those that may be used, two hyper-threads as one: torch takes no more threads by itself. All
    that may be used where the machine did not say."""
    usable = int(figure(ledger, "cores"))
    said = ledger.environment.cpu.get("physical_cores", "") if ledger.environment else ""
    return min(usable, int(said)) if said.isdigit() and int(said) else usable


def updates_fused(ops: Sequence[OpCost]) -> bool:
    """Whether an optimizer's fused implementation ran: `aten::_fused_adamw_`. In place, which
    `aten::_fused_sdp_choice` and other fused ops are not."""
    names = [bare(op.name) for op in ops]
    return any(name.startswith("_fused_") and name.endswith("_") for name in names)


def figure(ledger: Ledger, name: str) -> float:
    """A figure of the passes; 0 where there is none."""
    try:
        return float(ledger.facts.get(name, "0"))
    except ValueError:
        return 0.0
