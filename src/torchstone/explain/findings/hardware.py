"""Cores, devices and memory: idle cores, needless threads, copies, waits and fresh pages."""

from __future__ import annotations

from torchstone.explain.findings.base import LEAST_GAIN, finding, predict
from torchstone.explain.passes.report import copies_to_device, figure, physical_cores, synchronises
from torchstone.machine.hardware import missing_instructions
from torchstone.records import Ledger, OpCost, Prediction, Remedy
from torchstone.records.format import percent
from torchstone.records.ledger import ABSTRACTION, BACK_END

LEAST_KERNELS = 0.30
LEAST_FAULTS = 32
THREADS_SURE = 0.15
KEEP_IT = (
    "let the program keep its memory (MALLOC_MMAP_MAX_=0, MALLOC_TRIM_THRESHOLD_=-1, or another "
    "allocator preloaded), or write into buffers that are reused"
)
REUSE = "write into buffers that are reused"
"""Where the allocator keeps its memory already, the step maps its own."""


@finding("idle-cores", ABSTRACTION, "Idle cores")
def idle_cores(ledger: Ledger) -> Prediction | None:
    """Threads fewer than physical cores, and enough kernel time to share."""
    cores, threads = physical_cores(ledger), int(figure(ledger, "threads"))
    kernels = ledger.share("kernels")
    if not 0 < threads < cores or kernels < LEAST_KERNELS:
        return None
    stake = kernels * ledger.wall_s * (1 - threads / cores)
    return predict(
        ledger,
        f"{percent(kernels)} of the step is in kernels, on {threads} of {cores} cores",
        f"give torch {cores} threads",
        stake,
        gain=(THREADS_SURE * stake, 1.05 * stake),
        remedy=Remedy(threads=cores),
    )


@finding("thread-pool", BACK_END, "Threads that cost more than they bring", least=0.10)
def thread_pool(ledger: Ledger) -> Prediction | None:
    """Starting and joining threads, for kernels too small to share or more threads than cores."""
    share, threads = ledger.share("pool"), int(figure(ledger, "threads"))
    cores = int(figure(ledger, "cores")) or threads
    stake, kernels = share * ledger.wall_s, ledger.share("kernels") * ledger.wall_s
    if threads > cores:
        # Threads that spin keep the step's own from its core.
        most = stake + kernels + ledger.share("contention") * ledger.wall_s
        sure, enough = THREADS_SURE * stake, physical_cores(ledger) or cores
        advice = f"give torch no more threads than there are cores ({enough})"
    else:
        # Where the kernels are shared well, one thread takes so much longer for them.
        most, sure, enough = stake, stake - kernels * (threads - 1), 1
        advice = "give torch one thread"
    if threads < 2 or sure < LEAST_GAIN * ledger.wall_s:
        return None
    return predict(
        ledger,
        f"{percent(share)} of the step starts and joins {threads} threads",
        advice,
        stake,
        gain=(sure, most),
        remedy=Remedy(threads=enough),
    )


@finding("slow-precision", BACK_END, "A precision that this CPU does not compute in", least=0.10)
def slow_precision(ledger: Ledger) -> Prediction | None:
    """bf16 or fp16 on a CPU without instructions for it: converted around every op."""
    flags = ledger.environment.cpu.get("flags", "") if ledger.environment else ""
    missing = missing_instructions(ledger.arm.precision, flags)
    if not missing or not ledger.arm.device.startswith("cpu"):
        return None
    stake = ledger.share("kernels") * ledger.wall_s
    return predict(
        ledger,
        f"this CPU has no instructions for {missing}, so {percent(ledger.share('kernels'))} of the "
        "step computes through float32 and back, or in plain loops",
        "use fp32 here; measure bf16 and fp16 on the machine that will run them",
        stake,
        gain=(0.02 * stake, 0.97 * stake),
        why_not=f"`torchstone bench` with --precision fp32,{ledger.arm.precision} compares them",
    )


@finding("device-copies", BACK_END, "Copies between host and device", least=0.05)
def device_copies(ledger: Ledger) -> Prediction | None:
    """Copies of a step, by the tracer's names for them."""
    ops = [op for op in ledger.ops if copies_to_device(op.name)]
    advice = "copy once, from pinned memory, with non_blocking=True"
    return _on_device(ledger, ops, "copies between host and device", advice)


@finding("synchronisation", BACK_END, "Needless synchronisation", least=0.05)
def synchronisation(ledger: Ledger) -> Prediction | None:
    """Waits for an accelerator: `.item()`, printing, comparing a tensor in an `if`."""
    if ledger.arm.device.split(":")[0] == "cpu":  # where nothing is queued
        return None
    ops = [op for op in ledger.ops if synchronises(op.name)]
    advice = "read results (.item(), .cpu(), print) once in many steps"
    return _on_device(ledger, ops, "waits for the device to finish", advice)


def _on_device(ledger: Ledger, ops: list[OpCost], what: str, advice: str) -> Prediction:
    stake = sum(op.kernel_s + op.front_s for op in ops)
    calls = sum(op.calls for op in ops)
    return predict(
        ledger,
        f"{percent(stake / ledger.wall_s)} of the step {what}, {calls:.0f} times",
        advice,
        stake,
        gain=(0.2 * stake, 1.2 * stake),
        why_not="only a change of the code can do it",
    )


@finding("allocations", BACK_END, "Memory taken fresh in every step", least=0.03)
def allocations(ledger: Ledger) -> Prediction | None:
    """Memory that each step takes from the system page by page, and gives back."""
    faults = figure(ledger, "faults")
    stake = faults * figure(ledger, "fault_ns") / 1e9
    stake = min(stake, ledger.share("allocator") * ledger.wall_s)
    if faults < LEAST_FAULTS:
        return None
    used = ledger.arm.allocator
    default = used == "default"
    return predict(
        ledger,
        f"{faults:.0f} pages are mapped in each step, about {percent(stake / ledger.wall_s)} of it",
        KEEP_IT if default else REUSE,
        stake,
        # Giving pages back costs too, and is not counted; caches stay warm with pages kept.
        gain=(0.25 * stake, 1.7 * stake),
        remedy=Remedy(allocator="keep") if default else None,
        why_not="" if default else f"the allocator is {used} already",
    )
