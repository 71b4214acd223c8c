"""What a finding is, where findings are listed, and whether one held."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from torchstone.records import (
    ArmSpec,
    Ledger,
    Outcome,
    Prediction,
    Remedy,
    Result,
    SourceLine,
    Verification,
)
from torchstone.records.format import faster_range, times
from torchstone.records.plugins import Registry


class FindingRule(Protocol):
    """Looks at one ledger. Says nothing where less than its own least share is at stake."""

    @property
    def name(self) -> str:
        """The same in every ledger."""

    def look(self, ledger: Ledger) -> Prediction | None:
        """A prediction that can be tested, or None."""


@dataclass(frozen=True)
class Finding:
    """A finding that is one function; `least` is the share of a step that must be at stake."""

    name: str
    level: int
    title: str
    least: float
    function: Callable[[Ledger], Prediction | None]

    def look(self, ledger: Ledger) -> Prediction | None:
        """What the function predicts, where enough is at stake."""
        found = self.function(ledger)
        if found is None or found.at_stake_s < self.least * ledger.wall_s:
            return None
        return replace(found, name=self.name, level=self.level, title=self.title)


def finding(
    name: str, level: int, title: str, least: float = 0.0
) -> Callable[[Callable[[Ledger], Prediction | None]], Finding]:
    """Makes a finding of a function that predicts; what it predicts gets name, level and title."""
    return lambda function: Finding(name, level, title, least, function)


LEAST_GAIN = 0.01
"""Of the step: a remedy that may bring nothing at all would be right whatever is measured."""


def predict(
    ledger: Ledger,
    evidence: str,
    advice: str,
    stake: float,
    gain: tuple[float, float],
    remedy: Remedy | None = None,
    why_not: str = "",
    places: tuple[SourceLine, ...] = (),
) -> Prediction:
    """The time after as a share of the time before, if the seconds of `gain` (least, most) go. What
    the ledger could not explain may go with it. It never reaches the time before: a prediction that
    nothing can refute is none."""
    least_s, most_s = gain
    wall, unexplained = ledger.wall_s, max(0.0, ledger.share("rest"))
    low = min(max(0.01, 1 - most_s / wall - unexplained), 1 - 2 * LEAST_GAIN)
    high = min(1 - LEAST_GAIN, max(low, 1 - least_s / wall))
    remedy = remedy or Remedy()
    return Prediction("", 0, "", evidence, advice, stake, (low, high), remedy, places, why_not)


_BUILT_IN = {
    "code": (
        *("batch-loop", "float64", "item-in-loop", "needless-cast", "same-value"),
        *("small-copies", "strided-input"),
        *("graph-breaks", "layout-conversions", "recompiles", "unfused"),
    ),
    "hardware": (
        *("allocations", "device-copies", "idle-cores", "slow-precision", "synchronisation"),
        "thread-pool",
    ),
    "python": (
        *("data-loading", "files", "garbage-collection", "gil", "grad-in-inference", "locks"),
        *("network", "optimizer", "python-between-ops", "sleep"),
    ),
}
"""By module of this package; a finding's object has its name, with underscores."""
FINDINGS = Registry(
    "torchstone.findings",
    {
        name: f"torchstone.explain.findings.{module}:{name.replace('-', '_')}"
        for module, names in _BUILT_IN.items()
        for name in names
    },
)
MOST_FINDINGS = 5


def known_findings() -> list[FindingRule]:
    """Everything that is installed, by name."""
    return [cast("FindingRule", point.load()) for point in FINDINGS.all()]


NAMED_WEIGHS = 1.5
"""Times its stake: the loop that reads 256 values is why there are a thousand small ops, so it
comes before them although some of these are not its own."""


def _weight(one: Prediction, ledger: Ledger) -> float:
    if ledger.arm.threads is not None and one.remedy.threads > ledger.arm.threads:
        return 0.0  # somebody chose fewer, so what more would bring is said last
    return one.at_stake_s * (NAMED_WEIGHS if one.places else 1.0)


def with_findings(ledger: Ledger, rules: Sequence[FindingRule] | None = None) -> Ledger:
    """The ledger with at most five findings, the most time at stake first; a line of the user's
    code that most of it comes from goes before. Of findings with the same remedy only the larger
    one stays: it can be applied only once."""
    found = [rule.look(ledger) for rule in (known_findings() if rules is None else rules)]
    ordered = sorted(
        (one for one in found if one is not None), key=lambda one: (-_weight(one, ledger), one.name)
    )
    kept: list[Prediction] = []
    for one in ordered:
        again = one.remedy.applicable and any(one.remedy == other.remedy for other in kept)
        if not again:
            kept.append(one)
    return replace(ledger, findings=tuple(kept[:MOST_FINDINGS]))


# Whether a prediction held, from the comparison that put it to the test.


def verdict(prediction: Prediction, result: Result) -> Verification:
    """The measured interval against the range: it held where all of the interval is inside, and did
    not where all of it is outside. One that reaches over an edge decides nothing, and neither does
    a ratio without an interval.

    Of typical steps, because a ledger is of those: what comes now and then (pages that are mapped
    again, the collector) is not in the quickest.
    """
    low, high = prediction.time_ratio
    failed = [arm for arm in result.arms if arm.outcome is not Outcome.OK]
    if failed:
        arm = failed[-1]
        why = f"{arm.arm.name}: {arm.outcome.value}, {arm.detail.message}"
        return replace(_not_tested(prediction, why), result_id=result.id)
    comparison = result.comparisons[0] if result.comparisons else None
    if comparison is None or comparison.time_ratio is None:
        return _not_tested(prediction, "no comparison came out")
    typical = comparison.typical
    measured = typical.time_ratio if typical else comparison.time_ratio
    interval = _finite(typical.interval) if typical else comparison.interval
    held = _held(interval, low, high)
    words = {
        True: "The prediction held",
        None: "It cannot be told whether the prediction held",
        False: "The prediction did not hold",
    }
    ends = [math.inf if not end else 1 / end for end in interval or ()]
    spread = f" ({times(ends[1])} to {times(ends[0])})" if ends else ""
    sentence = (
        f"{words[held]}: predicted {faster_range(low, high)}, measured {times(1 / measured)}"
        f"{spread}{' by typical steps' if typical else ''}."
    )
    return Verification(prediction.name, (low, high), measured, interval, held, sentence, result.id)


def _finite(interval: tuple[float, float]) -> tuple[float, float] | None:
    """None for that of a single process, which has no ends."""
    return interval if math.isfinite(interval[1]) else None


def _held(interval: tuple[float, float] | None, low: float, high: float) -> bool | None:
    if interval is None:
        return None
    if low <= interval[0] and interval[1] <= high:
        return True
    return None if interval[0] <= high and interval[1] >= low else False


def untested(prediction: Prediction) -> Verification:
    """One that cannot be applied by itself."""
    return _not_tested(prediction, prediction.why_not or "no remedy can be applied by itself")


def _not_tested(prediction: Prediction, why: str) -> Verification:
    return Verification(prediction.name, prediction.time_ratio, sentence=f"Not tested: {why}.")


def apply_remedy(remedy: Remedy, arm: ArmSpec, name: str) -> ArmSpec:
    """The arm after the remedy: an arm like any other, which can be measured again by its name."""
    variant = remedy.variant or arm.variant
    if remedy.technique:
        variant = f"{variant}+{remedy.technique}"
    return replace(
        arm,
        name=name,
        variant=variant,
        threads=remedy.threads or arm.threads,
        allocator=remedy.allocator or arm.allocator,
    )
