"""From what was seen at two revisions to one answer, without measuring anything."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from torchstone import stats
from torchstone.records import CheckReport, Outcome, Revision, Status
from torchstone.track import check
from torchstone.track.check import Seen

MARGIN = 0.03


def seen(
    ratio: float, error: float = 0.004, name: str = "a.py:f()", same_code: bool = False
) -> Seen:
    change = stats.Change(-math.log(ratio), stats.Error(error, 8.0))
    return Seen(name, Outcome.OK, Outcome.OK, change, floor=0.005, same_code=same_code)


def status(one: Seen, again: Seen | None = None, kernels: tuple[Seen, ...] = ()) -> Status:
    rows, _, _ = check.evaluate([one], [again], kernels, MARGIN)
    return rows[0].status


def report(*several: Seen, on_unknown: str = "") -> CheckReport:
    rows, shift, suite = check.evaluate(several, [None] * len(several), (), MARGIN)
    sides = Revision("a" * 40), Revision("b" * 40)
    return CheckReport(
        *sides, MARGIN, tuple(rows), control_shift=shift, suite_shift=suite, on_unknown=on_unknown
    )


def code(*several: Seen, on_unknown: str = "") -> int:
    return check.exit_code(report(*several, on_unknown=on_unknown))


@pytest.mark.parametrize(
    ("ratio", "error", "wanted"),
    [
        (1.00, 0.004, Status.NOT_SLOWER),
        (1.02, 0.003, Status.NOT_SLOWER),  # surely slower, surely by less than the margin
        (1.025, 0.004, Status.CANNOT_TELL),  # surely slower, perhaps by more than the margin
        (1.05, 0.006, Status.SLOWER),
        (1.05, 0.04, Status.CANNOT_TELL),
        (0.90, 0.004, Status.FASTER),
        (1.00, 0.03, Status.CANNOT_TELL),
    ],
)
def test_the_margin_decides(ratio: float, error: float, wanted: Status) -> None:
    assert status(seen(ratio, error)) is wanted


def test_a_slow_down_that_does_not_repeat_is_not_called_one() -> None:
    assert status(seen(1.05, 0.006), seen(1.05, 0.006)) is Status.SLOWER
    assert status(seen(1.08, 0.006), seen(1.001, 0.006)) is Status.CANNOT_TELL


def test_what_looks_slower_or_may_soon_be_known_is_measured_again() -> None:
    several = [
        seen(1.0, name="not slower"),
        seen(1.1, name="slower"),
        seen(1.0, name="the same code", same_code=True),
        seen(1.0, 0.02, "perhaps"),
        seen(1.0, 0.2, "anything"),
    ]
    assert check.unsettled(several, MARGIN) == ["slower", "perhaps"]


def test_two_measurements_together_can_tell() -> None:
    assert status(seen(1.0, 0.015)) is Status.CANNOT_TELL
    assert status(seen(1.0, 0.015), seen(1.0, 0.015)) is Status.NOT_SLOWER


def test_the_same_code_is_never_slower() -> None:
    assert status(seen(1.10, same_code=True)) is Status.SAME_CODE
    assert code(seen(1.10, same_code=True)) == 0


def test_what_the_controls_share_is_not_the_change() -> None:
    kernel = seen(1.06, 0.004, "kernel")
    assert status(seen(1.06), kernels=(kernel,)) is Status.CANNOT_TELL
    assert status(seen(1.15), kernels=(kernel,)) is Status.SLOWER
    assert status(seen(1.06), kernels=(seen(1.001, 0.004, "kernel"),)) is Status.SLOWER


def test_many_comparisons_are_corrected_for() -> None:
    """One of fifty at p = 0.04 is chance; by itself it would be a difference."""
    error = 0.0165
    alone = seen(1.041, error)
    assert status(alone) is Status.SLOWER
    rows, _, _ = check.evaluate(
        [alone, *(seen(1.0, error, f"{i}") for i in range(49))], [None] * 50, (), MARGIN
    )
    assert rows[0].status is Status.CANNOT_TELL


def test_many_small_slow_downs_are_one_of_the_suite() -> None:
    several = [seen(1.045, 0.025, f"{i}") for i in range(20)]
    made = report(*several)
    assert not any(row.status is Status.SLOWER for row in made.targets)
    assert check.exit_code(made) == 1
    assert check.suite_is_slower(made)


def test_failures() -> None:
    wrong = Seen("a", Outcome.OK, Outcome.WRONG_ANSWER, why="output differs")
    fails = Seen("a", Outcome.OK, Outcome.ERROR, why="ValueError")
    fixed = Seen("a", Outcome.ERROR, Outcome.OK, why="ValueError")
    assert status(wrong) is Status.WRONG_ANSWER
    assert status(fails) is Status.FAILS
    assert status(fixed) is Status.NOT_COMPARED
    assert status(replace(fails, same_code=True)) is Status.NOT_COMPARED
    assert (code(wrong), code(fails), code(fixed)) == (1, 1, 4)


def test_exit_codes_mean_one_thing() -> None:
    slower, fine, unknown = seen(1.1, name="a"), seen(1.0, name="b"), seen(1.0, 0.05, name="c")
    broken = Seen("d", Outcome.ERROR, Outcome.ERROR)
    assert code(fine) == 0
    assert code(fine, slower) == 1
    assert code(fine, unknown) == 3
    assert code(fine, unknown, on_unknown="pass") == 0
    assert code(fine, unknown, on_unknown="fail") == 1
    assert code(fine, broken) == 4
    assert code(slower, broken) == 1
    assert code() == 4
