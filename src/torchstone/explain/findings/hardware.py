"""Cores that stand idle while kernels run, and threads that cost more than they bring."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import LEAST_GAIN, percent, ratio
from torchstone.explain.kinds import figure, physical_cores
from torchstone.explain.passes.report import copies_to_device, synchronises
from torchstone.records import Ledger, OpCost, Prediction, Remedy
from torchstone.records.ledger import ABSTRACTION, BACK_END

LEAST_KERNELS = 0.30
LEAST_POOL = 0.10
THREADS_SURE = 0.15


@dataclass(frozen=True)
class IdleCores:
    """For steps that leave cores unused."""

    name: str = "idle-cores"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Threads fewer than physical cores, and enough kernel time to share."""
        cores, threads = physical_cores(ledger), int(figure(ledger, "threads"))
        kernels = ledger.share("kernels")
        if not 0 < threads < cores or kernels < LEAST_KERNELS:
            return None
        stake = kernels * ledger.wall_s * (1 - threads / cores)
        return Prediction(
            name=self.name,
            level=ABSTRACTION,
            title="Idle cores",
            evidence=(
                f"{percent(kernels)} of the step is in kernels, on {threads} of {cores} cores"
            ),
            advice=f"give torch {cores} threads",
            at_stake_s=stake,
            time_ratio=ratio(ledger, 1.05 * stake, THREADS_SURE * stake),
            remedy=Remedy(threads=cores),
        )


@dataclass(frozen=True)
class DearPool:
    """For steps whose kernels are too small to share, or shared by more threads than can run."""

    name: str = "thread-pool"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Starting and joining threads takes a share of its own."""
        share, threads = ledger.share("pool"), int(figure(ledger, "threads"))
        cores = int(figure(ledger, "cores")) or threads
        if threads < 2 or share < LEAST_POOL:
            return None
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
        if sure < LEAST_GAIN * ledger.wall_s:
            return None
        return Prediction(
            name=self.name,
            level=BACK_END,
            title="Threads that cost more than they bring",
            evidence=f"{percent(share)} of the step starts and joins {threads} threads",
            advice=advice,
            at_stake_s=stake,
            time_ratio=ratio(ledger, most, sure),
            remedy=Remedy(threads=enough),
        )


IDLE_CORES = IdleCores()
DEAR_POOL = DearPool()


# Copies between host and device, and waits for the device, in every step.


DEVICE_LEAST_SHARE = 0.05


@dataclass(frozen=True)
class DeviceCopies:
    """For accelerators."""

    name: str = "device-copies"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Copies of a step, by the tracer's names for them."""
        ops = [op for op in ledger.ops if copies_to_device(op.name)]
        return _predict(
            self.name,
            ledger,
            ops,
            "Copies between host and device",
            "copies between host and device",
            "copy once, from pinned memory, with non_blocking=True",
        )


@dataclass(frozen=True)
class Synchronisation:
    """For accelerators: on the CPU nothing is queued, so there is nothing to wait for."""

    name: str = "synchronisation"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Waits of a step: `.item()`, printing, comparing a tensor in an `if`."""
        if ledger.arm.device.split(":")[0] == "cpu":
            return None
        ops = [op for op in ledger.ops if synchronises(op.name)]
        return _predict(
            self.name,
            ledger,
            ops,
            "Needless synchronisation",
            "waits for the device to finish",
            "read results (.item(), .cpu(), print) once in many steps",
        )


def _predict(
    name: str, ledger: Ledger, ops: list[OpCost], title: str, what: str, advice: str
) -> Prediction | None:
    stake = sum(op.kernel_s + op.front_s for op in ops)
    if stake < DEVICE_LEAST_SHARE * ledger.wall_s:
        return None
    calls = sum(op.calls for op in ops)
    return Prediction(
        name=name,
        level=BACK_END,
        title=title,
        evidence=f"{percent(stake / ledger.wall_s)} of the step {what}, {calls:.0f} times",
        advice=advice,
        at_stake_s=stake,
        time_ratio=ratio(ledger, 1.2 * stake, 0.2 * stake),
        why_not="only a change of the code can do it",
    )


DEVICE_COPIES = DeviceCopies()
SYNCHRONISATION = Synchronisation()


# Memory that each step takes fresh from the system, page by page, and gives back.


ALLOCATIONS_LEAST_SHARE = 0.03
LEAST_FAULTS = 32
ALLOCATIONS_SURE, MOST = 0.25, 1.7
"""Giving pages back costs too, and is not counted; caches stay warm with pages that are kept."""
KEEP_IT = (
    "let the program keep its memory (MALLOC_MMAP_MAX_=0, MALLOC_TRIM_THRESHOLD_=-1, or another "
    "allocator preloaded), or write into buffers that are reused"
)
REUSE = "write into buffers that are reused"
"""Where the allocator keeps its memory already, the step maps its own."""


@dataclass(frozen=True)
class Allocations:
    """For the C library's allocator."""

    name: str = "allocations"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Page faults in every step."""
        faults = figure(ledger, "faults")
        stake = faults * figure(ledger, "fault_ns") / 1e9
        stake = min(stake, ledger.share("allocator") * ledger.wall_s)
        if faults < LEAST_FAULTS or stake < ALLOCATIONS_LEAST_SHARE * ledger.wall_s:
            return None
        allocator = ledger.arm.allocator
        return Prediction(
            name=self.name,
            level=BACK_END,
            title="Memory taken fresh in every step",
            evidence=(
                f"{faults:.0f} pages are mapped in each step, about "
                f"{percent(stake / ledger.wall_s)} of it"
            ),
            advice=KEEP_IT if allocator == "default" else REUSE,
            at_stake_s=stake,
            time_ratio=ratio(ledger, MOST * stake, ALLOCATIONS_SURE * stake),
            remedy=Remedy(allocator="keep") if allocator == "default" else Remedy(),
            why_not="" if allocator == "default" else f"the allocator is {allocator} already",
        )


ALLOCATIONS = Allocations()
