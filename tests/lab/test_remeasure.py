"""A second look evaluates arms as the first one does."""

from __future__ import annotations

import pytest

from tests.targets.support import ROOT, settings, target
from torchstone.lab.peaks import look_again
from torchstone.records import ArmSpec, Comparison, Remeasurement, Verdict


def again(name: str, other: str, monkeypatch: pytest.MonkeyPatch) -> Remeasurement:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("torchstone.lab.peaks.SHORTEST_S", 0.1)
    monkeypatch.setattr("torchstone.lab.peaks.REPLICATES", 2)
    base, new = (ArmSpec(one, target("outputs", one)) for one in (name, other))
    first = Comparison(base.name, new.name, Verdict.FASTER, "floor", 0.01, (0.009, 0.011))
    return look_again(base, new, first, settings(), None)


def test_a_model_without_a_fixed_answer_is_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    look = again("random_output", "counts_its_calls", monkeypatch)
    assert look.outcome == "ok"
    assert look.speedup is not None
    assert look.interval is not None


def test_a_wrong_answer_is_one_in_the_second_look_too(monkeypatch: pytest.MonkeyPatch) -> None:
    look = again("base", "wrong_values", monkeypatch)
    assert look.outcome == "wrong_answer"
    assert look.speedup is None
