"""What the operating system saw of other work while a process ran: cheap snapshots, and deltas.

These counters miss a neighbour on the same physical core; the probe is there for that.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns as _now  # bound before user code can patch `time`

from torchstone.machine import processes
from torchstone.machine.processes import by_thread, list_numbers, read_field, read_text, read_word
from torchstone.records import Noise

NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_STEAL = 8  # position in the first line of /proc/stat, after the word `cpu`


@dataclass(frozen=True)
class NoiseSnapshot:
    """Counters at one moment; None where the system does not say. Waiting is per thread."""

    wait_ns: Mapping[int, int] | None = field(default=None)
    involuntary_switches: int | None = None
    steal_ns: int | None = None
    pressure_ns: int | None = None
    throttled_ns: int | None = None


def snapshot(pid: int | None = None) -> NoiseSnapshot:
    """The counters of a process (this one by default) and of the machine, now."""
    return NoiseSnapshot(
        wait_ns=by_thread("self" if pid is None else pid, 1) or None,
        involuntary_switches=_involuntary(pid),
        steal_ns=_steal(),
        pressure_ns=pressure_ns("cpu"),
        throttled_ns=processes.throttled_ns(),
    )


def difference(before: NoiseSnapshot, after: NoiseSnapshot, wall_ns: int, cpu_ns: int) -> Noise:
    """What happened between two snapshots of one process."""
    return Noise(
        wall_ns=wall_ns,
        cpu_ns=cpu_ns,
        wait_ns=_waited(before.wait_ns, after.wait_ns),
        involuntary_switches=_grown(before.involuntary_switches, after.involuntary_switches),
        steal_ns=_grown(before.steal_ns, after.steal_ns),
        pressure_ns=_grown(before.pressure_ns, after.pressure_ns),
        throttled_ns=_grown(before.throttled_ns, after.throttled_ns),
    )


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _waited(before: Mapping[int, int] | None, after: Mapping[int, int] | None) -> int | None:
    if before is None or after is None:
        return None
    # Thread by thread, because the wait of a thread that ended would be subtracted from a sum.
    return sum(max(0, wait - before.get(thread, 0)) for thread, wait in after.items())


def waited_ns() -> int:
    """How long this thread has been ready to run but without a core; 0 where nobody says."""
    words = read_word("/proc/thread-self/schedstat").split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _involuntary(pid: int | None) -> int | None:
    if pid is None or pid == os.getpid():
        return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    # /proc/PID/status speaks of the first thread alone.
    counts = [
        read_field(f"/proc/{pid}/task/{thread}/status", "nonvoluntary_ctxt_switches")
        for thread in list_numbers(f"/proc/{pid}/task")
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _steal() -> int | None:
    words = (read_text("/proc/stat") or "").partition("\n")[0].split()
    if len(words) <= _STEAL or words[0] != "cpu":
        return None
    return int(words[_STEAL]) * NS_PER_TICK


def pressure_ns(kind: str, root: str = "") -> int | None:
    """How long some task has stalled for it (`cpu`, `io`, `memory`) since the machine's start."""
    return some_pressure_ns(read_word(f"{root}/proc/pressure/{kind}"))


def some_pressure_ns(text: str) -> int | None:
    """The total of the line `some` of a file of /proc/pressure."""
    some = text.partition("\n")[0]
    total = some.rpartition("total=")[2]
    return int(total) * 1000 if some.startswith("some") and total.isdigit() else None


# The probe: a fixed kernel, run between samples, that shows when the core itself runs slow.
#
# On a shared machine a neighbour on the same physical core slows everything by up to two times and
# no counter of the guest shows it; a piece of work whose duration is known does. It must not push
# the workload out of the caches, so it works on a few hundred bytes: modular powers of integers.


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
