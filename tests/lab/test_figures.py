"""From a result of several arms to the figures of one case: which checks are the case's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.validate.cases import arm, result
from torchstone.lab.metrics import metrics_of
from torchstone.lab.peaks import evaluate_again
from torchstone.records import (
    CaseKey,
    CaseMetrics,
    Check,
    Level,
    Measurement,
    PlannedCase,
    Result,
    Verdict,
)
from torchstone.validate import withhold


def few(made: Measurement, processes: int) -> Measurement:
    return replace(made, turns=tuple(t for t in made.turns if t.replicate < processes))


def three(base: int = 4, first: int = 4, second: int = 4) -> Result:
    """A baseline and two arms, with so many processes."""
    return result(
        few(arm("eager"), base),
        few(arm("A", 4e-3, seed=2), first),
        few(arm("B", 3e-3, seed=3), second),
    )


def case(made: Result, name: str) -> CaseMetrics:
    key = CaseKey("suite", "model", "", "inference", "fp32", name)
    return metrics_of(made, PlannedCase(key, "model.py:make"), name, ())


def test_a_warning_about_all_arms_is_every_cases() -> None:
    evaluated = evaluate_again(three(2, 2, 2))
    assert ("eager", "A", "B") in [c.arms for c in evaluated.checks if c.rule == "replicates"]
    for name in ("A", "B"):
        assert "replicates" in case(evaluated, name).checks
        assert case(evaluated, name).worst_check is Level.WARN


def test_a_baseline_with_few_processes_is_every_cases_too() -> None:
    evaluated = evaluate_again(three(2, 4, 2))
    assert "replicates" in case(evaluated, "A").checks
    assert "replicates" in case(evaluated, "B").checks
    short = evaluate_again(three(4, 4, 2))
    assert "replicates" not in case(short, "A").checks
    assert "replicates" in case(short, "B").checks


@pytest.mark.parametrize(
    ("arms", "level", "of_a"),
    [
        ((), Level.WARN, True),
        (("eager",), Level.WARN, True),
        (("A",), Level.WARN, True),
        (("eager", "A"), Level.WARN, True),
        (("eager", "A", "B"), Level.WARN, True),
        (("A", "B"), Level.WARN, True),
        (("B",), Level.WARN, False),
        (("eager", "B"), Level.WARN, False),  # what B is like beside its baseline
        (("B",), Level.FAIL, False),
        (("eager", "B"), Level.FAIL, True),  # a failed baseline takes all with it
        (("eager", "A", "B"), Level.FAIL, True),
    ],
)
def test_whose_a_check_is(arms: tuple[str, ...], level: Level, of_a: bool) -> None:
    made = three()
    check = Check("x", level, "So so.", {}, arms)
    held = replace(made, checks=(check,), comparisons=withhold(made.comparisons, [check]))
    found = case(held, "A")
    assert (found.worst_check, found.checks) == ((level, ("x",)) if of_a else (Level.OK, ()))
    withheld = held.comparisons[0].verdict is Verdict.CANNOT_TELL
    assert withheld == (level is Level.FAIL and of_a)
    assert (found.base_ns is None, found.new_ns is None) == (withheld, withheld)
