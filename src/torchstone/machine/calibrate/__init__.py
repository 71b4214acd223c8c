"""What this machine can do, by measurement: the peaks that figures are held against.

Holds: peaks of matrix products and memory, the costs of a timer reading, a Python call and an op,
and the starter that has them measured in a process of their own. Touches: torch, in the files that
are loaded only once a measurement begins; importing this package loads none of it. It stays at
home when `machine` travels to the worker.
"""

from torchstone.machine.calibrate.request import (
    DTYPES,
    LEVELS,
    SECONDS,
    STALE_AFTER_DAYS,
    fingerprint,
    is_stale,
    threads_allowed,
)
from torchstone.machine.calibrate.starter import run_calibration
from torchstone.machine.calibrate.whole import calibrate

__all__ = [
    "DTYPES",
    "LEVELS",
    "SECONDS",
    "STALE_AFTER_DAYS",
    "calibrate",
    "fingerprint",
    "is_stale",
    "run_calibration",
    "threads_allowed",
]
