"""Copies between host and device, and waits for the device, in every step."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import percent, ratio
from torchstone.explain.passes.names import copies_to_device, synchronises
from torchstone.records import Ledger, OpCost, Prediction
from torchstone.records.ledger import BACK_END

LEAST_SHARE = 0.05


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
    if stake < LEAST_SHARE * ledger.wall_s:
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
