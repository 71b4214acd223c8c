"""Cores that stand idle while kernels run, and threads that cost more than they bring."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import LEAST_GAIN, percent, ratio
from torchstone.explain.kinds import figure, physical_cores
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import ABSTRACTION, BACK_END

LEAST_KERNELS = 0.30
LEAST_POOL = 0.10
SURE = 0.15


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
            time_ratio=ratio(ledger, 1.05 * stake, SURE * stake),
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
            sure, enough = SURE * stake, physical_cores(ledger) or cores
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
