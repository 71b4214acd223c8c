"""Is a bandwidth that is called DRAM's not the cache's?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.roofs import bandwidth_refusals, caches_of
from torchstone.validate.words import count, rate

NAME = "working-set"


def _judge(result: Result) -> Iterator[Check]:
    calibration = result.calibration
    if calibration is None or not calibration.bandwidth:
        return
    refused = list(bandwidth_refusals(calibration, caches_of(result)))
    figures = {"bandwidths": float(len(calibration.bandwidth)), "refused": float(len(refused))}
    if not refused:
        text = f"{count(len(calibration.bandwidth), 'bandwidth')} measured with fitting arrays."
        yield Check(NAME, Level.OK, text, figures)
        return
    peak, reason = refused[0]
    more = f" (and {count(len(refused) - 1, 'more')})" if len(refused) > 1 else ""
    yield Check(
        NAME,
        Level.WARN,
        f"The bandwidth of {peak.level or 'an unnamed level'} ({rate(peak.value, 'B/s')}){more} "
        f"{reason}. Nothing is held against it; calibrate again (torchstone doctor --calibrate) "
        "with arrays that fit the label.",
        {**figures, "array_bytes": float(peak.array_bytes), "bytes_per_s": peak.value},
    )


WORKING_SET = FunctionRule(NAME, "R9: arrays of four times the last-level cache (STREAM)", _judge)
