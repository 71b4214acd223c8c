"""What may disturb a measurement on this machine: one small checkup each, found by entry point.

Holds: the view that checkups look at, the second in which the machine is watched, the registry,
and the checkups. Touches: the system's own files under a root, `nvidia-smi` where there is one;
it changes nothing. Imports the standard library, `records` and its own package; never torch.
"""

from torchstone.machine.doctor.base import (
    CHECKUPS,
    Checkup,
    FunctionCheckup,
    View,
    examine,
    fail,
    fix,
    note,
    ok,
    run_checkups,
    unseen,
    warn,
    watch,
)
from torchstone.machine.processes import allowed_cores

__all__ = [
    "CHECKUPS",
    "Checkup",
    "FunctionCheckup",
    "View",
    "allowed_cores",
    "examine",
    "fail",
    "fix",
    "note",
    "ok",
    "run_checkups",
    "unseen",
    "warn",
    "watch",
]
