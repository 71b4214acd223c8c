"""What a finding is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, cast

from torchstone.records import Ledger, Prediction
from torchstone.records.plugins import Registry


class FindingRule(Protocol):
    """Looks at one ledger. Says nothing where less than its own least share is at stake."""

    @property
    def name(self) -> str:
        """The same in every ledger."""

    def look(self, ledger: Ledger) -> Prediction | None:
        """A prediction that can be tested, or None."""


LEAST_GAIN = 0.01
"""Of the step: a remedy that may bring nothing at all would be right whatever is measured."""


def ratio(ledger: Ledger, most_s: float, least_s: float) -> tuple[float, float]:
    """The time after as a share of the time before, if between `least_s` and `most_s` go. What the
    ledger could not explain may go with it. It never reaches the time before: a prediction that
    nothing can refute is none."""
    wall = ledger.wall_s
    unexplained = max(0.0, ledger.share("rest"))
    low = min(max(0.01, 1 - most_s / wall - unexplained), 1 - 2 * LEAST_GAIN)
    return low, min(1 - LEAST_GAIN, max(low, 1 - least_s / wall))


NOT_PREDICTED = (1.0, 1.0)
"""Of a finding whose remedy changes nothing in a steady step: the gain is elsewhere."""


def percent(share: float) -> str:
    """`42 %`."""
    return f"{share:.0%}".replace("%", " %")


def is_eager(ledger: Ledger) -> bool:
    """Whether there is a compiler still to be tried."""
    return ledger.arm.variant.split("+")[0] == "eager"


# Findings by name, through entry points, and the five that matter most.


FINDINGS = Registry(
    "torchstone.findings",
    {
        "allocations": "torchstone.explain.findings.hardware:ALLOCATIONS",
        "data-loading": "torchstone.explain.findings.waiting:LOADING",
        "device-copies": "torchstone.explain.findings.hardware:DEVICE_COPIES",
        "files": "torchstone.explain.findings.waiting:FILES",
        "garbage-collection": "torchstone.explain.findings.python:COLLECTOR",
        "gil": "torchstone.explain.findings.waiting:GIL",
        "grad-in-inference": "torchstone.explain.findings.python:GRAD_IN_INFERENCE",
        "graph-breaks": "torchstone.explain.findings.compiler:GRAPH_BREAKS",
        "idle-cores": "torchstone.explain.findings.hardware:IDLE_CORES",
        "layout-conversions": "torchstone.explain.findings.compiler:LAYOUT",
        "locks": "torchstone.explain.findings.waiting:LOCKS",
        "network": "torchstone.explain.findings.waiting:NETWORK",
        "optimizer": "torchstone.explain.findings.python:OPTIMIZER",
        "python-between-ops": "torchstone.explain.findings.python:PYTHON_BETWEEN_OPS",
        "recompiles": "torchstone.explain.findings.compiler:RECOMPILES",
        "sleep": "torchstone.explain.findings.waiting:SLEEP",
        "synchronisation": "torchstone.explain.findings.hardware:SYNCHRONISATION",
        "thread-pool": "torchstone.explain.findings.hardware:DEAR_POOL",
        "unfused": "torchstone.explain.findings.compiler:UNFUSED",
    },
)
MOST_FINDINGS = 5


def known_findings() -> list[FindingRule]:
    """Everything that is installed, by name."""
    return [cast("FindingRule", point.load()) for point in FINDINGS.all()]


def with_findings(ledger: Ledger, rules: Sequence[FindingRule] | None = None) -> Ledger:
    """The ledger with at most five findings, the most time at stake first.

    Of findings with the same remedy only the larger one stays: it can be applied only once.
    """
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
