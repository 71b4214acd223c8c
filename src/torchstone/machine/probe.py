"""The probe: a fixed kernel, run between samples, that shows when the core itself runs slow.

On a shared machine a neighbour on the same physical core slows everything by up to two times and
no counter of the guest shows it; a piece of work whose duration is known does. It must not push
the workload out of the caches, so it works on a few hundred bytes: modular powers of integers.
"""

from __future__ import annotations

import math
from time import perf_counter_ns as _now  # bound before user code can patch `time`

TARGET_NS = 100_000
"""Long against the timer, short against a sample; the probes may take 10 % of a turn."""
MODULUS_BITS = 512
MIN_EXPONENT_BITS = 16
MAX_EXPONENT_BITS = 4096
_TRIAL_BITS = 64
_TRIALS = 30

_MODULUS = (1 << MODULUS_BITS) - 569  # odd and full width; nothing else is asked of it
_BASE = (1 << MODULUS_BITS) // 3
_power = pow


class Probe:
    """Call it to run the kernel once; it returns how long that took, in nanoseconds."""

    __slots__ = ("_exponent", "exponent_bits")

    def __init__(self, exponent_bits: int) -> None:
        self.exponent_bits = exponent_bits
        self._exponent = (1 << exponent_bits) - 1

    def __call__(self) -> int:
        exponent = self._exponent
        start = _now()
        _power(_BASE, exponent, _MODULUS)
        return _now() - start


def make_probe(target_ns: int = TARGET_NS, exponent_bits: int | None = None) -> Probe:
    """A probe of about `target_ns`, or of exactly the size that an earlier one had.

    The size is a power of two, found from the floor of a few trials, so that processes of one
    interpreter on one machine agree on it; give `exponent_bits` to be certain.
    """
    if exponent_bits is None:
        trial = Probe(_TRIAL_BITS)
        floor = max(1, min(trial() for _ in range(_TRIALS)))
        exponent_bits = 2 ** round(math.log2(max(1.0, _TRIAL_BITS * target_ns / floor)))
        exponent_bits = min(MAX_EXPONENT_BITS, max(MIN_EXPONENT_BITS, exponent_bits))
    return Probe(exponent_bits)
