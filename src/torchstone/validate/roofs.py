"""Which roofs of a calibration a result may be held against, and what its arms reached of them.

A roof that is not sound is refused: nothing is held against it, and a rule says why. That takes no
figure from the arms, whose times do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torchstone.records import DRAM, Calibration, Measurement, Peak, Result
from torchstone.stats import Utilisation, utilisation
from torchstone.stats.roofline import DRAM_MULTIPLE, LEVELS, last_level
from torchstone.validate.facts import estimator, seconds_per_call
from torchstone.validate.words import percent, rate, size

SOURCES = ("measured", "datasheet", "user")
AGREES = (0.5, 1.15)
"""R2: what was measured, over what a table says, when both speak of the same thing."""
TWICE_WITHIN = 0.10
"""R3: a factor of two is the sign of counted sparsity or of MACs; a good matrix product comes
within a tenth of the dense peak (90 % was measured)."""
CLOCKS_HZ = (1e8, 1e10)
"""R5: processors run between 0.1 and 10 GHz; kHz or MHz taken for Hz lie outside."""
WRITE_ALLOWANCE = 4 / 3
"""A roof measured by writing counts three words of the four that move where the cache reads a line
before it is written. A step that only reads may exceed it by that much."""
DISTURBED = 1.15
"""DRAM beyond the caches by more than R2's tolerance: one of the readings was disturbed."""


@dataclass(frozen=True)
class Refusal:
    """A roof that is not used, and why."""

    roof: str
    reason: str
    measured_over_said: float | None = None
    known: bool = True
    """False where it only lacks confirmation, which is no fault."""


def reached(arm: Measurement, result: Result) -> Utilisation | None:
    """The shares of sound roofs that an arm reached; None where roof, count or time is unknown.

    A count is of one shape, so that nothing is claimed of an arm that goes through several.
    """
    if arm.flops is None or result.calibration is None or arm.arm.shapes > 1:
        return None
    seconds = seconds_per_call(arm, estimator(result))
    if seconds is None:
        return None
    return utilisation(arm, sound(result.calibration, caches_of(result)), seconds)


def fullest(found: Utilisation) -> float:
    """The largest share that cannot honestly be over 1: operations, or bytes nobody can avoid."""
    return max(found.compute or 0.0, (found.least_memory or 0.0) / WRITE_ALLOWANCE)


def sound(calibration: Calibration, caches: Mapping[str, int]) -> Calibration:
    """The calibration without what is refused; every compute peak of it was measured."""
    clock = calibration.clock
    return replace(
        calibration,
        compute=tuple(
            p
            for p in calibration.compute
            if p.source == "measured" and _compute_reason(p, calibration) is None
        ),
        bandwidth=tuple(
            p for p in calibration.bandwidth if not _bandwidth_reason(p, calibration, caches)
        ),
        clock=clock if clock is not None and plausible_clock(clock.value) else None,
    )


def compute_refusals(calibration: Calibration) -> Iterator[Refusal]:
    """Compute peaks that are not used. A sparse one beside a dense one does no harm."""
    dense = {_key(peak) for peak in calibration.compute if not peak.sparse}
    for peak in calibration.compute:
        refusal = _compute_reason(peak, calibration)
        if refusal is not None and not (peak.sparse and _key(peak) in dense):
            yield refusal


def bandwidth_refusals(
    calibration: Calibration, caches: Mapping[str, int]
) -> Iterator[tuple[Peak, str]]:
    """Bandwidths that are not used, and why."""
    for peak in calibration.bandwidth:
        reason = _bandwidth_reason(peak, calibration, caches)
        if reason:
            yield peak, reason


def plausible_clock(hertz: float) -> bool:
    """Whether a processor can run at that."""
    return CLOCKS_HZ[0] <= hertz <= CLOCKS_HZ[1]


def caches_of(result: Result) -> Mapping[str, int]:
    """Cache sizes as the first arm that knows them says."""
    known = (arm.environment.caches for arm in result.arms if arm.environment)
    return next((caches for caches in known if caches), {})


def name_of_roof(peak: Peak) -> str:
    """`the fp32 peak at 2 threads (measured, 93.3 GFLOP/s)`."""
    what = peak.dtype or "unnamed"
    where = f" at {peak.threads} thread{'s' * (peak.threads != 1)}" if peak.threads else ""
    said = peak.source or "no source"
    return f"the {what} peak{where} ({said}, {rate(peak.value, 'FLOP/s')})"


def _key(peak: Peak) -> tuple[str, int]:
    return peak.dtype, peak.threads


def _compute_reason(peak: Peak, calibration: Calibration) -> Refusal | None:
    roof = name_of_roof(peak)
    if not (math.isfinite(peak.value) and peak.value > 0):
        return Refusal(roof, "is no rate")
    if not peak.dtype:
        return Refusal(roof, "does not say its dtype")
    if peak.source not in SOURCES:
        return Refusal(roof, "does not say where it comes from")
    if peak.sparse:
        return Refusal(roof, "counts operations that sparsity skips")
    if peak.source == "measured":
        return None
    measured = max(
        (
            p.value
            for p in calibration.compute
            if _key(p) == _key(peak) and p.source == "measured" and not p.sparse and p.value > 0
        ),
        default=None,
    )
    if measured is None:
        return Refusal(roof, "is not confirmed by a measurement on this machine", known=False)
    return _disagreement(roof, peak, measured)


def _disagreement(roof: str, peak: Peak, measured: float) -> Refusal | None:
    """What a table says is not used where a measurement stands beside it, but it may be wrong."""
    ratio = measured / peak.value
    what = f"was measured as {rate(measured, 'FLOP/s')}, {percent(ratio)} of it"
    for factor, cause in ((0.5, "counts sparsity"), (2.0, "counts a multiply-add as one")):
        if abs(ratio / factor - 1) <= TWICE_WITHIN:
            return Refusal(roof, f"{what}: a factor of two, as where it {cause}", ratio)
    if not AGREES[0] <= ratio <= AGREES[1]:
        return Refusal(roof, what, ratio)
    return None


def _bandwidth_reason(peak: Peak, calibration: Calibration, caches: Mapping[str, int]) -> str:
    if not (math.isfinite(peak.value) and peak.value > 0):
        return "is no rate"
    if peak.source not in SOURCES:
        return "does not say where it comes from"
    if peak.level not in LEVELS:
        return "does not say which level it is of"
    last = last_level(calibration, caches)
    if peak.level == DRAM:
        return _dram_reason(peak, calibration, last)
    room = last if peak.level == "L3" else caches.get({"L1": "L1d"}.get(peak.level, peak.level), 0)
    room *= 1 if peak.level == "L3" else max(1, peak.threads)
    if 0 < room < peak.array_bytes:
        return (
            f"was measured with arrays of {size(peak.array_bytes)}, which {size(room)} cannot hold"
        )
    return ""


def _dram_reason(peak: Peak, calibration: Calibration, last: int) -> str:
    if not last or peak.source != "measured":
        return ""
    if not peak.array_bytes:
        return "does not say how large its arrays were"
    if peak.array_bytes < DRAM_MULTIPLE * last:
        return (
            f"was measured with arrays of {size(peak.array_bytes)}, under {DRAM_MULTIPLE} times "
            f"the last-level cache ({size(last)}), so it is partly the cache's"
        )
    cached = max(
        (p.value for p in calibration.bandwidth if p.level != DRAM and p.threads == peak.threads),
        default=math.inf,
    )
    if peak.value > DISTURBED * cached:
        return f"is above what any cache showed ({rate(cached, 'B/s')})"
    return ""
