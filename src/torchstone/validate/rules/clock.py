"""Did the processor keep its clock, and can the clock be what it is said to be?

Shares at the clock of the day are figures for reporting only: peaks are never scaled, and no
configuration is chosen by them.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.roofs import plausible_clock
from torchstone.validate.words import percent, rate

NAME = "clock"
DRIFT = 0.03
"""R5: a clock that moves by more between before and after is reason to repeat."""


def _judge(result: Result) -> Iterator[Check]:
    odd = list(_implausible(result))
    yield from odd
    clocks = [hertz for hertz in result.clocks_hz if plausible_clock(hertz)]
    if not clocks:
        return
    figures = {"before_hz": clocks[0], "after_hz": clocks[-1], **_against(result, clocks)}
    drift = max(clocks) / min(clocks) - 1
    figures["drift"] = drift
    if drift > DRIFT:
        yield Check(
            NAME,
            Level.WARN,
            f"The clock moved by {percent(drift)} while this was measured (from "
            f"{rate(clocks[0], 'Hz')} to {rate(clocks[-1], 'Hz')}). Repeat it when the processor "
            "has settled; interleaved arms share the drift, single times do not.",
            figures,
        )
    elif not odd:
        text = f"The clock stayed at {rate(clocks[-1], 'Hz')}."
        yield Check(NAME, Level.OK, text, figures)


def _against(result: Result, clocks: list[float]) -> dict[str, float]:
    """The clock over that of the calibration and over the default one; above 1 is a boost."""
    calibration = result.calibration
    if calibration is None:
        return {}
    mean = sum(clocks) / len(clocks)
    figures = {}
    if calibration.clock is not None and plausible_clock(calibration.clock.value):
        figures["over_calibration"] = mean / calibration.clock.value
    nominal = calibration.nominal_clock_hz
    if nominal is not None and plausible_clock(nominal):
        figures["over_default"] = mean / nominal
    return figures


def _implausible(result: Result) -> Iterator[Check]:
    calibration = result.calibration
    said: dict[str, float] = {}
    for place, hertz in zip(("before", "after"), result.clocks_hz, strict=False):
        said[f"{place} the measurement"] = hertz
    if calibration is not None and calibration.clock is not None:
        said["of the calibration"] = calibration.clock.value
    if calibration is not None and calibration.nominal_clock_hz is not None:
        said["that is the default"] = calibration.nominal_clock_hz
    for what, hertz in said.items():
        if not plausible_clock(hertz):
            yield Check(
                NAME,
                Level.WARN,
                f"The clock {what} is given as {rate(hertz, 'Hz')}, which no processor runs at: "
                "kHz or MHz were probably taken for Hz. It is not used; correct its unit.",
                {"hertz": hertz},
            )


CLOCK = FunctionRule(NAME, "R5: clock before and after, scaled for reporting only", _judge)
