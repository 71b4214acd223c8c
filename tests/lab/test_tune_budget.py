"""A tuning whose cases take all the time they may: its whole wall time stays within the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from torchstone.conductor import Settings
from torchstone.conductor.run import OUT_OF_TIME
from torchstone.lab import tune as lab
from torchstone.lab.recording import Recorder
from torchstone.lab.request import BenchRequest, method_of
from torchstone.records import (
    ArmSpec,
    Decision,
    Measurement,
    Outcome,
    OutcomeDetail,
    Result,
    TorchstoneError,
    Tuning,
)
from torchstone.show.tune import final, headline
from torchstone.tuning.decide import NO_TIME
from torchstone.tuning.plan import Clock

BUDGET_S = 60.0


def tuned(monkeypatch: pytest.MonkeyPatch) -> tuple[Tuning, list[Settings]]:
    """With a ledger and cases that all end because their time is over."""
    now, asked = [0.0], list[Settings]()

    def explain_target(request: Any, *_: Any) -> None:
        now[0] += request.bench.settings.total_s
        raise TorchstoneError("that takes longer")

    def measure(arms: Sequence[ArmSpec], settings: Settings, *_: Any) -> Result:
        asked.append(settings)
        now[0] += settings.total_s or 1e9
        said = OutcomeDetail("The time of --total was over before a sample was taken.")
        rows = tuple(Measurement(arm, outcome=Outcome.NOT_RUN, detail=said) for arm in arms)
        method = replace(method_of(settings), stopped_by=OUT_OF_TIME)
        return Result("r", "", (), rows, (), (), method)

    monkeypatch.setattr(lab, "explain_target", explain_target)
    monkeypatch.setattr(lab, "measure", measure)
    clock = Clock(BUDGET_S, 0.0, lambda: now[0])
    monkeypatch.setattr("torchstone.tuning.plan.Clock", lambda budget_s, began: clock)
    request = lab.TuneRequest(BenchRequest(("tests/targets/busy.py:make",)), budget_s=BUDGET_S)
    return lab.tune(request, Recorder(saves=False)), asked


def test_cases_that_take_all_they_may_stay_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked = tuned(monkeypatch)
    assert asked
    assert found.elapsed_s <= BUDGET_S
    assert all(one.total_s and one.budget_s < one.total_s for one in asked)
    assert found.state == "out of time"
    assert "not tried" in headline(found)
    # Nothing was promising, so all of them screen, which claims nothing.
    assert all(one.screening and one.replicates == 3 for one in asked)


def test_what_was_not_reached_says_so_and_names_no_option_of_bench(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [one for one in final(tuned(monkeypatch)[0]) if one.decision is Decision.NOT_RUN]
    assert {one.reason for one in rows} == {lab.UNREACHED, NO_TIME}
