"""What may disturb a measurement on this machine: one small checkup each, found by entry point.

Holds: the view that checkups look at, the second in which the machine is watched, the registry,
and the checkups. Touches: the system's own files under a root, `nvidia-smi` where there is one;
it changes nothing. Imports the standard library, `records` and its own package; never torch.
"""

from torchstone.machine.doctor.base import (
    Checkup,
    FunctionCheckup,
    View,
    allowed_cores,
    fail,
    fix,
    note,
    ok,
    split_fix,
    unseen,
    warn,
)
from torchstone.machine.doctor.registry import CHECKUPS, examine, known_checkups, run_checkups
from torchstone.machine.doctor.window import WINDOW_S, Moment, Window, moment, watch

__all__ = [
    "CHECKUPS",
    "WINDOW_S",
    "Checkup",
    "FunctionCheckup",
    "Moment",
    "View",
    "Window",
    "allowed_cores",
    "examine",
    "fail",
    "fix",
    "known_checkups",
    "moment",
    "note",
    "ok",
    "run_checkups",
    "split_fix",
    "unseen",
    "warn",
    "watch",
]
