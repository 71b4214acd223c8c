"""Levels 4 and 5: the kernels' time once more, by library, and by the peak they stand under."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from torchstone.explain.passes.report import Passes, allocates
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
