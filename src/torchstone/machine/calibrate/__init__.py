"""What this machine can do, by measurement: the peaks that figures are held against.

Holds: peaks of matrix products and memory, and the costs of a timer reading, a Python call and an
op. Touches: torch, in the files that are loaded only once a measurement begins; importing this
package loads none of it. It stays behind when `machine` is sent to the worker, and
`conductor.calibration` has it run in a process of its own.
"""

from torchstone.machine.calibrate.request import (
    Request,
    calibrate,
    fingerprint,
    is_stale,
    make_request,
)

__all__ = ["Request", "calibrate", "fingerprint", "is_stale", "make_request"]
