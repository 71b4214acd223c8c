"""The arithmetic of one round: from what was seen to nanoseconds by line.

Two passes are put together. The plain one says how long a step takes and how long its thread ran.
The traced one says what it did, and costs something for each event. An event is recorded on entry
and on exit: half of its cost falls into its own span, half into that of its caller.

Levels 4 and 5: the kernels' time once more, by library, and by the peak they stand under.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from torchstone.explain.passes import report
from torchstone.explain.passes.blocked import FILE, NETWORK, OTHER, TORCH
from torchstone.explain.passes.floors import at_speed, binding_of, floor_of
from torchstone.explain.passes.report import (
    Block,
    Costs,
    OpTime,
    Passes,
    Round,
    Traced,
    Watched,
    allocates,
)
from torchstone.explain.roofline import bound_of
from torchstone.records import (
    ArmSpec,
    Calibration,
    LedgerLine,
    LedgerPart,
    Measurement,
    OpCost,
    OpWork,
    Outcome,
)
from torchstone.records.ledger import ABSTRACTION, HARDWARE
from torchstone.stats.roofline import compute_peak, dtype_of, last_level, threads_of, utilisation

TRUSTED = (0.5, 2.0)
"""How far the cost of an event, as seen on the step itself, may lie from the one that was measured
on empty ops. Beyond, the difference is not tracing, and stays unexplained."""
MOST_DRIFT = 0.10
"""Between two stretches of the same steps a shared core's speed differs by as much; what lies
beyond stays unexplained."""
MOST_FAULTS = 0.9
"""Of the time in kernels: mapping pages cannot take all of it, whatever the count says."""
MOST_NODES = 0.6
"""Of the front end: making a node takes about as long as dispatching the op, not much longer."""
SHARED_S = 10e-6
"""A call whose kernel takes longer was worth sharing among threads."""
MOST_POOL = 0.5


@dataclass(frozen=True)
class Split:
    """One round, in nanoseconds of a step; `lines` by name. Its ops are in seconds."""

    wall: float
    cpu: float
    lines: Mapping[str, float]
    ops: tuple[OpCost, ...] = ()
    tracing: float = 1.0
    event: float = 0.0
    drift: float = 1.0


@dataclass(frozen=True)
class Blocked:
    """Off-CPU time of a step by line, before it is fitted to what the kernel's clocks say."""

    known: Mapping[str, float]
    on: Mapping[str, float] = field(default_factory=dict)
    """Time on the core in calls for files and for the network, by line."""
    torch_off: float = 0.0
    seen: Mapping[str, float] | None = None
    """Shares of the time asleep by what the thread slept in, where somebody could look. Asleep,
    because a look at a thread that runs cannot tell whether it has a core."""


_SILENT = ("locks", "sleep", "network")
LEAST_LOOKS = 20
"""At a sleeping thread: fewer say nothing about shares."""


def blocked_of(blocks: Sequence[Block], watched: Watched) -> Blocked:
    """What two passes said of where the thread blocks."""
    known: dict[str, float] = defaultdict(float)
    on: dict[str, float] = defaultdict(float)
    for block in blocks:
        if block.kind in (FILE, NETWORK):
            on[block.kind] += block.on
        if block.kind not in (TORCH, OTHER):
            known[block.kind] += block.off
    torch_off = sum(block.off for block in blocks if block.kind == TORCH)
    asleep = sum(watched.asleep.values())
    if asleep < LEAST_LOOKS:
        return Blocked(known, on, torch_off)
    seen = {name: times / asleep for name, times in watched.asleep.items()}
    return Blocked(known, on, torch_off, seen)


def split_round(found: Round, costs: Costs, blocked: Blocked, threads: int) -> Split:
    """One round's lines. They add up to its wall time but for what cannot be explained."""
    plain, traced = found.plain, found.traced
    lines = _off_lines(plain.off, plain.python_threads, blocked, threads)
    lines["contention"] = plain.wait
    ops: tuple[OpCost, ...] = ()
    event, drift = 0.0, 1.0
    calling = sum(blocked.on.values())
    if traced is None:
        on = {"interpreter": plain.cpu - plain.collecting - calling}
    else:
        costs = at_speed(costs, traced.speeds, traced.grad_speeds)
        event = _event_cost(found, traced, costs)
        on, ops = _on_lines(traced, costs, event, blocked, threads)
        drift = _drift(sum(on.values()), plain.cpu - plain.collecting)
        on = {name: ns * drift for name, ns in on.items()}
        ops = tuple(
            replace(op, kernel_s=op.kernel_s * drift, front_s=op.front_s * drift) for op in ops
        )
        _take_from_python(on, calling)
        _take_from_kernels(on, ops, costs, plain.faults, threads)
    on |= {"collector": plain.collecting, **blocked.on}
    for name, ns in on.items():
        lines[name] += max(0.0, ns)
    tracing = traced.wall / plain.wall if traced and plain.wall else 1.0
    return Split(plain.wall, plain.cpu, lines, ops, tracing, event, drift)


def _drift(seen: float, wanted: float) -> float:
    """The core ran faster or slower for the traced steps than for the plain ones; within bounds
    that is taken for granted, and the shares are theirs."""
    return min(max(wanted / seen, 1 - MOST_DRIFT), 1 + MOST_DRIFT) if seen > 0 else 1.0


def _event_cost(found: Round, traced: Traced, costs: Costs) -> float:
    """By the step itself: what it ran longer when traced, for each event, within bounds."""
    if not traced.events:
        return costs.event
    more = traced.on - traced.collecting - (found.plain.cpu - found.plain.collecting)
    seen = more / traced.events
    return min(max(seen, TRUSTED[0] * costs.event), TRUSTED[1] * costs.event)


def _on_lines(
    traced: Traced, costs: Costs, event: float, blocked: Blocked, threads: int
) -> tuple[dict[str, float], tuple[OpCost, ...]]:
    off = traced.off
    loading = min(off, blocked.known.get("loading", 0.0))
    waiting = min(off - loading, _in_pool(off, blocked)) if threads > 1 else 0.0
    away = {report.LOADING: loading}
    left = off - loading - waiting + traced.collecting
    for place in (report.PYTHON, report.BREAK):  # in compiled code, Python runs where it breaks
        seen = traced.places.get(place)
        away[place] = min(left, seen.own) if seen is not None else 0.0
        left -= away[place]
    half = event / 2
    on: dict[str, float] = defaultdict(float)
    bound: dict[str, float] = defaultdict(float)
    for place, seen in traced.places.items():
        own = max(0.0, seen.own - away.get(place, 0.0))
        own = max(0.0, own - (seen.events + seen.inside) * half)
        entering = {entry: n * binding_of(costs, entry) for entry, n in seen.entries.items()}
        into = sum(entering.values())
        fit = min(1.0, own / into) if into else 0.0  # getting into ops takes no more than there is
        left = own - fit * into
        if place == report.BREAK:
            price = min(left, traced.breaks * costs.breaking)
            on["breaks"] += price
            left -= price
        on[report.PYTHON if place == report.BREAK else place] += left
        for entry, ns in entering.items():
            bound[entry.partition(">")[0]] += ns * fit
    ops = [_op(op, costs, half, bound[op.name]) for op in traced.ops]
    ops += [
        OpCost(k.name, k.calls, max(0.0, k.own - k.calls * half) / 1e9, 0.0, generated=True)
        for k in traced.kernels
    ]
    for op in ops:
        allocates = report.allocates(op.name)
        on["allocator" if allocates else "kernels"] += op.kernel_s * 1e9
        on["allocator" if allocates else "dispatch"] += op.front_s * 1e9
    on["kernels"] -= waiting
    nodes = min(_forward_nodes(traced.ops, costs), MOST_NODES * on["dispatch"])
    on["dispatch"] -= nodes
    on["autograd"] += nodes
    return on, tuple(ops)


def _op(op: OpTime, costs: Costs, half: float, entering: float) -> OpCost:
    """What an op takes beyond the same op with nothing to do is its kernel."""
    plain_calls = op.calls - op.with_grad
    floor = plain_calls * floor_of(costs, op.name, False) if plain_calls else 0.0
    floor += op.with_grad * floor_of(costs, op.name, True) if op.with_grad else 0.0
    kernel = max(0.0, op.own - floor)
    front = op.own - kernel - (op.calls + op.inside) * half + entering
    return OpCost(op.name, op.calls, kernel / 1e9, front / 1e9)


def _forward_nodes(ops: Sequence[OpTime], costs: Costs) -> float:
    """What ops of the forward pass take longer because they make autograd nodes; no more than they
    do take, because a node of one operand is cheaper than the two that floors are measured with."""
    total = 0.0
    for op in ops:
        if op.with_grad and op.name in costs.grad_floors and op.name in costs.floors:
            floor = costs.floors[op.name]
            most = op.with_grad * max(0.0, costs.grad_floors[op.name] - floor)
            total += min(most, max(0.0, op.own - op.calls * floor))
    return total


def _take_from_python(lines: dict[str, float], calling: float) -> None:
    """Calls for files and for the network are made by Python, in compiled code where it breaks."""
    for name in ("interpreter", "breaks"):
        taken = min(calling, max(0.0, lines.get(name, 0.0)))
        lines[name] = lines.get(name, 0.0) - taken
        calling -= taken


def _take_from_kernels(
    lines: dict[str, float], ops: Sequence[OpCost], costs: Costs, faults: float, threads: int
) -> None:
    """Pages are mapped when a kernel first writes to them; threads are started for it."""
    kernels = max(0.0, lines.get("kernels", 0.0))
    mapping = min(faults * costs.fault, MOST_FAULTS * kernels)
    lines["allocator"] = lines.get("allocator", 0.0) + mapping
    pool = 0.0
    if threads > 1 and costs.pool:
        shared = sum(op.calls for op in ops if op.calls and op.kernel_s / op.calls > SHARED_S)
        pool = min(shared * costs.pool, MOST_POOL * (kernels - mapping))
    lines["pool"] = pool
    lines["kernels"] = kernels - mapping - pool


def _off_lines(
    off: float, python_threads: float, blocked: Blocked, threads: int
) -> dict[str, float]:
    """Off-CPU time, not counting the wait for a core, divided among what was seen to block."""
    lines: dict[str, float] = defaultdict(float)
    known, seen = sum(blocked.known.values()), blocked.seen
    if seen is not None:
        gil = off * seen.get("gil", 0.0) if python_threads else 0.0
    else:
        # Nobody could look: what no call accounts for, as long as other threads ran Python.
        gil = min(max(0.0, off - known - blocked.torch_off), python_threads)
    left = off - gil
    pool = min(left, _in_pool(off, blocked)) if threads > 1 else 0.0
    lines |= {"gil": gil, "pool": pool}
    left -= pool
    fit = min(1.0, left / known) if known else 0.0
    for name, ns in blocked.known.items():
        lines[name] += ns * fit
    left -= known * fit
    if seen is not None and left > 0:
        _add_silent(lines, left, off, seen)
    return lines


def _in_pool(off: float, blocked: Blocked) -> float:
    """Of the time off the CPU, what was spent waiting for the other threads of a kernel."""
    return blocked.torch_off if blocked.seen is None else off * blocked.seen.get("pool", 0.0)


def _add_silent(
    lines: dict[str, float], left: float, off: float, seen: Mapping[str, float]
) -> None:
    """What no call owns up to: `with lock:` is no call of a function to a profiler. Somebody who
    looks from outside sees what the thread slept in all the same."""
    loading = lines["loading"]
    more = {name: max(0.0, off * seen.get(name, 0.0) - lines[name] - loading) for name in _SILENT}
    total = sum(more.values()) + off * seen.get("other", 0.0)
    for name, ns in more.items():
        lines[name] += left * ns / total if total else 0.0


LAYOUT_OPS = ("aten::contiguous", "aten::clone", "aten::copy_", "aten::_to_copy")
_MATRIX = ("mm", "linear", "matmul", "dot", "mv", "baddbmm", "addbmm")
_CONVOLUTION = ("convolution", "mkldnn_convolution", "conv")
KERNELS_OF = {
    "aten::convolution": (
        *("aten::mkldnn_convolution", "aten::thnn_conv2d", "aten::_slow_conv2d_forward"),
        *("aten::slow_conv3d_forward", "aten::slow_conv_dilated2d", "aten::_convolution"),
    ),
    "aten::_native_batch_norm_legit": ("aten::native_batch_norm",),
    "aten::_native_batch_norm_legit_no_training": ("aten::native_batch_norm",),
    "aten::relu": ("aten::clamp_min",),
    "aten::relu_": ("aten::clamp_min_",),
    "aten::mean": ("aten::sum",),
    "aten::clone": ("aten::copy_",),
    "aten::_to_copy": ("aten::copy_",),
}
"""Work is counted where a dispatch mode sees ops, which is above the ops that the tracer sees do
it. As torch 2.13 calls them on the CPU; of others the work stays unknown."""
LIBRARIES = {
    "generated": "code of the compiler's making",
    "oneDNN": "oneDNN",
    "MKL": "MKL or another BLAS",
    "layout": "copies and layout conversions",
    "native": "torch's own kernels",
}
PEAKS = {
    "compute": "bound by compute",
    "memory": "bound by memory",
    "unknown": "of unknown work",
}


def deep_lines(
    arm: ArmSpec,
    passes: Passes,
    ops: Sequence[OpCost],
    kernels_s: float,
    wall_s: float,
    calibration: Calibration | None,
) -> list[LedgerLine]:
    """Both levels; each adds up to the kernels' time. What only makes room is not in it."""
    ops = [op for op in ops if not allocates(op.name)]
    libraries = _by(ops, lambda op: library_of(op, passes))
    made = _divide(ABSTRACTION, LIBRARIES, libraries, kernels_s, wall_s)
    works = _works(passes.flops.heaviest if passes.flops else ())
    measurement = _measurement(arm, passes)
    if calibration is not None and works:
        peaks = _by(ops, lambda op: _peak_of(op, works, measurement, calibration))
        made += _divide(HARDWARE, PEAKS, peaks, kernels_s, wall_s)
    return made


def _by(ops: Sequence[OpCost], key: Callable[[OpCost], str]) -> dict[str, list[OpCost]]:
    found: dict[str, list[OpCost]] = {}
    for op in ops:
        if op.kernel_s > 0:
            found.setdefault(key(op), []).append(op)
    return found


def _divide(
    level: int,
    titles: dict[str, str],
    groups: dict[str, list[OpCost]],
    kernels_s: float,
    wall_s: float,
) -> list[LedgerLine]:
    total = sum(op.kernel_s for ops in groups.values() for op in ops)
    fit = kernels_s / total if total else 0.0  # so that the parts fill their line
    lines = []
    for name, title in titles.items():
        parts = [LedgerPart(op.name, op.kernel_s * fit, op.calls) for op in groups.get(name, [])]
        seconds = sum(part.seconds for part in parts)
        if seconds > 0:
            line = LedgerLine(level, name, title, seconds, seconds / wall_s, estimated=True)
            lines.append(replace(line, parts=tuple(parts[:4])))
    return lines


def library_of(op: OpCost, passes: Passes) -> str:
    """Whose kernel it is, by its name and by what the libraries themselves said."""
    if op.generated:
        return "generated"
    name = op.name.partition("::")[2]
    spoke = {one.library for one in passes.libraries}
    if "mkldnn" in name or "onednn" in name:
        return "oneDNN"
    if op.name in LAYOUT_OPS:
        return "layout"
    if any(word in name for word in _CONVOLUTION) and "oneDNN" in spoke:
        return "oneDNN"
    if any(name.lstrip("_").endswith(word) or f"{word}_" in name for word in _MATRIX):
        matrix = {one.library for one in passes.libraries if one.kind in ("gemm", "matmul")}
        return "oneDNN" if matrix == {"oneDNN"} else "MKL"
    return "native"


def _works(counted: Sequence[OpWork]) -> dict[str, OpWork]:
    """By the names that the tracer has for them, and by those of the kernels that do the work."""
    by_name = {work.op.replace(".", "::", 1): work for work in counted}
    found: dict[str, OpWork] = {}
    for name, work in by_name.items():
        for kernel in KERNELS_OF.get(name, ()):
            if kernel in by_name:
                continue
            known = found.get(kernel)
            found[kernel] = work if known is None else _together(known, work)
    return {**found, **by_name}


def _together(one: OpWork, other: OpWork) -> OpWork:
    known = [work.flops for work in (one, other) if work.flops is not None]
    return OpWork(
        one.op,
        one.calls + other.calls,
        sum(known) if known else None,
        one.bytes + other.bytes,
        one.time_ns + other.time_ns,
    )


def _measurement(arm: ArmSpec, passes: Passes) -> Measurement:
    """As much of one as the peaks need."""
    made = Measurement(arm, Outcome.OK, flops=passes.flops, contract=passes.contract)
    return replace(made, environment=passes.environment)


def _peak_of(
    op: OpCost, works: dict[str, OpWork], measurement: Measurement, calibration: Calibration
) -> str:
    """The peak that allows it less: by its operations, or by the bytes it moves."""
    work = works.get(op.name)
    threads = threads_of(measurement) or 0
    if work is None or not work.bytes or op.generated:
        return "unknown"
    peak = compute_peak(calibration, dtype_of(measurement), threads)
    environment = measurement.environment
    room = last_level(calibration, environment.caches if environment else {})
    per_call = work.bytes / max(1, work.calls)
    level = "DRAM" if per_call > room else "L3" if per_call > room / 16 else "L2"
    band = calibration.bandwidth_of(level, threads) or calibration.bandwidth_of("DRAM", threads)
    if peak is None or band is None:
        return "unknown"
    return "compute" if (work.flops or 0) / peak.value > work.bytes / band.value else "memory"


def hardware_words(
    arm: ArmSpec,
    passes: Passes,
    kernels: LedgerLine | None,
    calibration: Calibration | None,
) -> tuple[str, ...]:
    """Threads against cores, vector instructions, the peaks, the clock."""
    facts = passes.facts
    busy = median(one.plain.busy for one in passes.rounds)
    words = [
        f"{busy:.2f} of {_cores_words(passes)} were busy"
        + (f", with {facts['threads']} threads for torch." if "threads" in facts else ".")
    ]
    if facts.get("isa"):
        words.append(f"Vector instructions in use: {facts['isa']}.")
    words.append(_clock_words(facts, calibration))
    said = [f"{one.library} {one.kind} ({one.implementation})" for one in passes.libraries[:3]]
    if said:
        words.append(f"The libraries said: {', '.join(said)}.")
    if kernels is not None and passes.flops is not None:
        words.append(_peak_words(arm, passes, kernels, calibration))
    return tuple(word for word in words if word)


def _cores_words(passes: Passes) -> str:
    """`8 cores`, or how many there are of each kind where hyper-threads share some."""
    usable, cpu = passes.facts.get("cores", "?"), passes.environment.cpu
    physical = cpu.get("physical_cores", "")
    if not physical or physical == cpu.get("affinity"):
        return f"{usable} cores"
    return f"{usable} logical cores (on {physical} physical ones)"


def _clock_words(facts: Mapping[str, str], calibration: Calibration | None) -> str:
    """What the core ran at after the steps, beside what it reached when its peaks were measured."""
    hertz = facts.get("clock_hz", "")
    if not hertz:
        return ""
    said = f"The core's clock right after the steps: {float(hertz) / 1e9:.2f} GHz"
    if calibration is None or calibration.clock is None:
        return f"{said}."
    return f"{said}, {calibration.clock.value / 1e9:.2f} GHz when its peaks were measured."


def _peak_words(
    arm: ArmSpec, passes: Passes, kernels: LedgerLine, calibration: Calibration | None
) -> str:
    if calibration is None:
        return "No peak is known: measure the machine with `torchstone doctor --calibrate`."
    measurement = _measurement(arm, passes)
    used = utilisation(measurement, calibration, kernels.seconds)
    assert passes.flops is not None
    found = bound_of(measurement, passes.flops, used, calibration, kernels.seconds, of_kernels=True)
    return f"While in kernels: {found.sentence}"
