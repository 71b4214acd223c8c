"""Findings by name, through entry points, and the five that matter most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from torchstone.explain.findings.base import FindingRule
from torchstone.records import Ledger, Prediction
from torchstone.records.doors import all_of

ENTRY_POINTS = "torchstone.findings"
MOST_FINDINGS = 5


def known_findings() -> list[FindingRule]:
    """Everything that is installed, by name."""
    return [cast("FindingRule", point.load()) for point in all_of(ENTRY_POINTS)]


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
