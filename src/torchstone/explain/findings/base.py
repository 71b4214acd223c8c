"""What a finding is, where findings are listed, and the five of a ledger that matter most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from torchstone.records import Ledger, Prediction, Remedy, SourceLine
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


def is_eager(ledger: Ledger) -> bool:
    """Whether there is a compiler still to be tried."""
    return ledger.arm.variant.split("+")[0] == "eager"


_BUILT_IN = {
    "code": (
        *("batch-loop", "float64", "item-in-loop", "needless-cast", "same-value"),
        *("small-copies", "strided-input"),
    ),
    "compiler": ("graph-breaks", "layout-conversions", "recompiles", "unfused"),
    "hardware": (
        *("allocations", "device-copies", "idle-cores", "slow-precision", "synchronisation"),
        "thread-pool",
    ),
    "python": ("garbage-collection", "grad-in-inference", "optimizer", "python-between-ops"),
    "waiting": ("data-loading", "files", "gil", "locks", "network", "sleep"),
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


def with_findings(ledger: Ledger, rules: Sequence[FindingRule] | None = None) -> Ledger:
    """The ledger with at most five findings, the most time at stake first. Of findings with the
    same remedy only the larger one stays: it can be applied only once."""
    found = [rule.look(ledger) for rule in (known_findings() if rules is None else rules)]
    ordered = sorted(
        (one for one in found if one is not None), key=lambda one: (-one.at_stake_s, one.name)
    )
    kept: list[Prediction] = []
    for one in ordered:
        again = one.remedy.applicable and any(one.remedy == other.remedy for other in kept)
        if not again:
            kept.append(one)
    return replace(ledger, findings=tuple(kept[:MOST_FINDINGS]))
