"""What the machine did to an arm's turns, in one small table of totals and shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchstone.records import Measurement

PROBE_SLOW = 1.03
"""A probe this much above its own floor ran on a slow core: in trials on a shared machine the
samples beside probes within 3 % had a spread of about 1 %, all samples together 50 to 90 %."""


def summary(measurement: Measurement) -> dict[str, Any] | None:
    """Totals over all turns in seconds; None for what the system does not tell, or no turns."""
    noises = [turn.noise for turn in measurement.turns]
    if not noises:
        return None
    wall = sum(noise.wall_ns for noise in noises)
    cpu = sum(noise.cpu_ns for noise in noises)
    return {
        "wall_s": wall / 1e9,
        "cpu_per_wall": cpu / wall if wall else None,
        "wait_s": _seconds(noise.wait_ns for noise in noises),
        "involuntary_switches": _total(noise.involuntary_switches for noise in noises),
        "steal_s": _seconds(noise.steal_ns for noise in noises),
        "pressure_s": _seconds(noise.pressure_ns for noise in noises),
        "throttled_s": _seconds(noise.throttled_ns for noise in noises),
        "late_cpu_s": _seconds(noise.late_cpu_ns for noise in noises),
        "never_quiet_turns": sum(noise.quiet_after_ns is None for noise in noises),
        "probe_bits": measurement.probe_bits,
        "probe_floor_s": _probe_floor(measurement),
        "probe_slow_share": _probe_slow_share(measurement),
    }


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _seconds(values: Iterable[int | None]) -> float | None:
    total = _total(values)
    return None if total is None else total / 1e9


def _probes(measurement: Measurement) -> list[list[int]]:
    """Of each process that has any."""
    found: dict[int, list[int]] = {}
    for turn in measurement.turns:
        found.setdefault(turn.replicate, []).extend(probe for probe in turn.probe_ns if probe > 0)
    return [probes for probes in found.values() if probes]


def _probe_floor(measurement: Measurement) -> float | None:
    probes = _probes(measurement)
    return min(map(min, probes)) / 1e9 if probes else None


def _probe_slow_share(measurement: Measurement) -> float | None:
    """Each against the floor of its own process, as the rule `probe` has it."""
    probes = _probes(measurement)
    if not probes:
        return None
    slow = sum(probe > min(one) * PROBE_SLOW for one in probes for probe in one)
    return slow / sum(map(len, probes))
