"""Are the roofs known, measured and of this machine?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Calibration, Check, Level, Measurement, Result
from torchstone.stats import compute_roof, dtype_of, threads_of
from torchstone.stats.roofline import applies
from torchstone.validate.base import FunctionRule
from torchstone.validate.roofs import caches_of, compute_refusals, sound
from torchstone.validate.words import count, name_of

NAME = "peak"

_CALIBRATE = "Calibrate (torchstone doctor --calibrate)"


def _judge(result: Result) -> Iterator[Check]:
    counted = [arm for arm in result.arms if arm.flops is not None and arm.turns]
    calibration = result.calibration
    if calibration is None:
        if counted:
            text = (
                "The peak of this machine is unknown, so no utilisation is claimed. "
                f"{_CALIBRATE} to have one."
            )
            yield Check(NAME, Level.NOTE, text)
        return
    refused = list(_refused(calibration))
    yield from refused
    fitting = [arm for arm in counted if applies(calibration, arm)]
    strangers = [arm for arm in counted if arm not in fitting]
    # Some of the arms: each by itself, because what is said of the baseline is every case's.
    for arms in [[arm] for arm in strangers] if fitting else [strangers]:
        if arms:
            yield _strange(arms, calibration)
    unknown = list(_unknown(fitting, result, calibration))
    yield from unknown
    if not refused and not strangers and not unknown and calibration.compute:
        text = f"{count(len(calibration.compute), 'peak')} known, with source and dtype."
        yield Check(NAME, Level.OK, text, {"peaks": float(len(calibration.compute))})


def _refused(calibration: Calibration) -> Iterator[Check]:
    found = list(compute_refusals(calibration))
    for known in (True, False):
        some = [refusal for refusal in found if refusal.known is known]
        if not some:
            continue
        first = some[0]
        more = f" (and {count(len(some) - 1, 'more')})" if len(some) > 1 else ""
        figures = {"refused": float(len(some))}
        if first.measured_over_said is not None:
            figures["measured_over_said"] = first.measured_over_said
        remedy = (
            f"Nothing is held against it; correct it, or leave it out. {_CALIBRATE}."
            if known
            else f"{_CALIBRATE} for the roofs that are used."
        )
        roof = first.roof[0].upper() + first.roof[1:]
        text = f"{roof}{more} {first.reason}. {remedy}"
        yield Check(NAME, Level.WARN if known else Level.NOTE, text, figures)


def _strange(arms: list[Measurement], calibration: Calibration) -> Check:
    text = (
        f"The roofs are of another machine or device ({calibration.device_name or 'unnamed'}, "
        f"{calibration.machine_id}, {calibration.device}) than {name_of(arms[0])}, so no "
        f"utilisation is claimed. {_CALIBRATE} where the arms run."
    )
    return Check(NAME, Level.WARN, text, arms=tuple(arm.arm.name for arm in arms))


def _unknown(arms: list[Measurement], result: Result, calibration: Calibration) -> Iterator[Check]:
    """Arms for whose dtype and thread count nothing was measured; there is no figure to fall on."""
    known = sound(calibration, caches_of(result))
    for arm in arms:
        dtype, threads = dtype_of(arm), threads_of(arm)
        if threads is None or compute_roof(known, dtype, threads) is not None:
            continue
        text = (
            f"The {dtype} peak at {count(threads, 'thread')} is unknown, so no share of it is "
            f"claimed of {name_of(arm)}. {_CALIBRATE} at that thread count to have one."
        )
        yield Check(NAME, Level.NOTE, text, arms=(arm.arm.name,))


PEAK = FunctionRule(
    NAME, "R2: unknown is unknown, and tables must agree with measurement; R3: dense only", _judge
)
