"""The budget is the wall time of everything, whatever single cases take."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from torchstone.records import Decision, Experiment, Stage
from torchstone.tuning import plan


@dataclass
class FakeTime:
    """Time that passes only when told to."""

    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


def tuned(budget_s: float, cases: int, takes_s: float, tests: int) -> tuple[float, dict[str, int]]:
    """A tuning whose cases all take as long as they like, or as they may: when it ended, and how
    many cases each stage had."""
    now = FakeTime()
    clock = plan.Clock(budget_s, now.at, now)
    now.at += plan.LEDGER_SHARE * budget_s
    seen: list[Experiment] = []
    made = {"screen": 0, "select": 0, "confirm": 0}
    for stage, number in ((Stage.SCREEN, cases), (Stage.SELECT, tests), (Stage.CONFIRM, 1)):
        for index in range(number):
            allowed = plan.allow(clock, stage, number - index, 1, seen)
            if allowed is None:
                break
            assert 0 < allowed.turns_s < allowed.total_s
            spent = min(takes_s, allowed.total_s)
            now.at += spent
            made[stage.value] += 1
            seen.append(Experiment(stage, "x", Decision.PROMISING, seconds=spent))
    return clock.spent_s, made


@pytest.mark.parametrize("budget_s", [1.0, 20.0, 60.0, 600.0])
@pytest.mark.parametrize("takes_s", [0.5, 12.0, 1e6])
@pytest.mark.parametrize("cases", [1, 20])
def test_no_case_goes_beyond_the_budget(budget_s: float, takes_s: float, cases: int) -> None:
    spent, _ = tuned(budget_s, cases, takes_s, 4)
    assert spent <= budget_s + 1e-6


@pytest.mark.parametrize("takes_s", [12.0, 1e6])
def test_every_stage_has_its_time(takes_s: float) -> None:
    _, made = tuned(60.0, 20, takes_s, 4)
    assert all(made.values()), made


def test_what_took_long_is_given_as_long_in_the_confirmation() -> None:
    now = FakeTime()
    clock = plan.Clock(100.0, now.at, now)
    test = Experiment(Stage.SELECT, "compile", Decision.ADOPTED, seconds=20.0)
    before, after = (plan.allow(clock, Stage.SELECT, 1, 1, seen) for seen in ((), (test,)))
    assert before is not None
    assert after is not None
    assert after.total_s == pytest.approx(100 - 20 * plan.REPEATED)
    assert before.total_s == pytest.approx(85)


def test_less_is_kept_for_the_selection_while_there_is_nothing_to_select() -> None:
    now = FakeTime()
    clock = plan.Clock(100.0, now.at, now)
    gain = Experiment(Stage.SCREEN, "compile", Decision.PROMISING, seconds=5.0)
    before, after = (plan.allow(clock, Stage.SCREEN, 1, 1, seen) for seen in ((), (gain,)))
    assert before is not None
    assert after is not None
    assert before.total_s == pytest.approx(70)
    assert after.total_s == pytest.approx(55)


def test_nothing_starts_that_cannot_come_to_a_sample() -> None:
    now = FakeTime()
    clock = plan.Clock(60.0, now.at, now)
    now.at += 60 - plan.LEAST_CASE_S / 2
    assert plan.allow(clock, Stage.CONFIRM, 1, 1, ()) is None
    now.at += 100
    assert clock.left_s == 0
