"""How a case ended: the runner's words, and our outcomes."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from torchstone.interop.files import positive
from torchstone.interop.names import ACCURACY, PERFORMANCE
from torchstone.records import CaseFigures, Outcome

PASSING = ("pass", "pass_due_to_skip", "eager_variation")
"""What the dashboard counts as passing."""
SKIPPED = "pass_due_to_skip"
_REASON = 200
"""Characters of a cell that a reason repeats; the cell itself is kept whole."""
NOT_RUN = "not_run"
"""Ours: the runner has no word for a case that was planned and never started."""

_OUTCOMES = {
    **dict.fromkeys(PASSING, Outcome.OK),
    "fail_accuracy": Outcome.WRONG_ANSWER,
    "not_bitwise_equivalent": Outcome.WRONG_ANSWER,
    "eager_two_runs_differ": Outcome.NONDETERMINISTIC,
    "timeout": Outcome.TIMEOUT,
    "OOM": Outcome.OOM,
    "eager_1st_run_OOM": Outcome.OOM,
    "eager_2nd_run_OOM": Outcome.OOM,
    NOT_RUN: Outcome.NOT_RUN,
}
_FAILURES = (
    "fail_to_run",
    "model_fail_to_load",
    "eager_fail_to_run",
    "eager_1st_run_fail",
    "eager_2nd_run_fail",
    "warmup_failed",
    "infra_error",
)
KNOWN = frozenset((*_OUTCOMES, *_FAILURES))

_WORDS = {
    Outcome.OK: "pass",
    Outcome.WRONG_ANSWER: "fail_accuracy",
    Outcome.NONDETERMINISTIC: "eager_two_runs_differ",
    Outcome.ERROR: "fail_to_run",
    # The runner leaves no row of a process that died; this is its word for a run that failed.
    Outcome.CRASH: "fail_to_run",
    Outcome.OOM: "OOM",
    Outcome.TIMEOUT: "timeout",
    # Its word for a model that refuses the mode or device (`NotImplementedError`).
    Outcome.NOT_SUPPORTED: "model_fail_to_load",
    Outcome.NOT_RUN: NOT_RUN,
}
_BASELINE_WORDS = {
    Outcome.ERROR: "eager_1st_run_fail",
    Outcome.CRASH: "eager_1st_run_fail",
    Outcome.OOM: "eager_1st_run_OOM",
}


class Ending(NamedTuple):
    """How a case ended, why, and which arm it was."""

    outcome: Outcome
    reason: str = ""
    failed_arm: str = ""


def outcome_of(status: str) -> Outcome:
    """The outcome that a status means; one that is not known is an error."""
    return _OUTCOMES.get(status, Outcome.ERROR)


def status_of(case: CaseFigures) -> str:
    """The runner's word for how a case of ours ended."""
    baseline_failed = case.failed_arm != "" and case.failed_arm != case.key.variant
    words = {**_WORDS, **_BASELINE_WORDS} if baseline_failed else _WORDS
    return words[case.outcome]


def judge(
    status: str | None,
    speedup: str | None,
    seen: Collection[str],
    expected: Collection[str],
    variant: str,
) -> Ending:
    """How a case ended by its rows.

    `status` is the cell of the accuracy table and `speedup` that of the performance table. `seen`
    are the tables with a row of this case, `expected` those with a row of any case like it: a row
    that is missing from one of them is a failure, because the runner leaves none when a process
    dies.
    """
    if ACCURACY in seen:
        outcome = outcome_of(status or "")
        if outcome is not Outcome.OK:
            arm = "eager" if (status or "").startswith("eager_") else variant
            return Ending(outcome, (status or "the accuracy cell is empty")[:_REASON], arm)
        if status == SKIPPED:
            return Ending(Outcome.OK, f"{SKIPPED}: the answer was not checked")
    elif ACCURACY in expected:
        return Ending(Outcome.ERROR, "no accuracy row: its process may have died", variant)
    if PERFORMANCE in seen and positive(speedup) is None:
        shown = (speedup or "empty")[:_REASON]
        return Ending(Outcome.ERROR, f"performance failed: speedup {shown}", variant)
    if PERFORMANCE in expected and PERFORMANCE not in seen:
        return Ending(Outcome.ERROR, "no performance row: its process may have died", variant)
    return Ending(Outcome.OK, "" if status in (None, "pass") else str(status))
