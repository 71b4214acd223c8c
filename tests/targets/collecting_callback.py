"""A program whose garbage collector calls Python back, sampled by CPU time."""

from __future__ import annotations

import gc
import time

from torchstone.profile.probes.base import ProbeOptions
from torchstone.profile.probes.sample import SampleProbe

SPIN_S = 0.002
RATE = 1000.0
SECONDS = 1.5


def spin(*_: object) -> None:
    """Long enough for a timer to go off meanwhile."""
    end = time.perf_counter() + SPIN_S
    while time.perf_counter() < end:
        pass


def main() -> None:
    probe = SampleProbe(ProbeOptions(rate_hz=RATE, clock="cpu"))
    gc.callbacks.append(spin)
    gc.set_threshold(5)
    probe.start()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        spin()
    profile = probe.stop()
    assert gc.isenabled()
    assert profile.sampling is not None
    print(profile.sampling.samples)


if __name__ == "__main__":
    main()
