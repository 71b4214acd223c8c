"""Writes and looks beside a measurement that fail: the measurement is whole, and it is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.targets.support import HONEST, settings
from tests.validate.cases import arm, calibration, pair
from torchstone import validate
from torchstone.conductor import CaseResult
from torchstone.lab import bench
from torchstone.lab.identical import DUPLICATE, aa_floor, observe
from torchstone.lab.keeping import Keeper
from torchstone.lab.roofs import judge_again, recalibrated, with_roofs
from torchstone.records import ArmSpec, Peak, TorchstoneError
from torchstone.store import open_store
from torchstone.track.compare import DEFAULT_AA_FLOOR

FULL = "The database cannot grow: the disk is full."


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """A keeper that was fine when it was looked at, and cannot be used any more."""
    path = str(tmp_path / "full.db")
    with open_store(path) as store:
        assert store.count() == 0

    def refuse(*_: object, **__: object) -> None:
        raise TorchstoneError(FULL, "Free some space.")

    monkeypatch.setattr("torchstone.lab.keeping.open_store", refuse)
    return Keeper(path)


def test_what_identical_arms_differ_by(full: Keeper) -> None:
    base, twin = arm("eager"), arm(DUPLICATE, 5.1e-3, seed=2)
    case = CaseResult((base, arm("inductor", 4e-3, seed=3), twin), 4, (4,), 0.05, "budget", 1.0)
    assert len(observe(full, case).arms) == 2
    assert aa_floor(full, base) == DEFAULT_AA_FLOOR
    kept, looked_up = full.troubles
    assert kept.message == f"What identical arms differ by was not kept: {FULL}"
    assert kept.remedy == "Free some space."
    assert "could not be looked up" in looked_up.message


def test_roofs_that_were_beaten(full: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    peak = Peak(1e9, 0.1, 50, dtype="fp32", threads=2)
    result = judge_again(pair(calibration=calibration(compute=(peak,))))
    assert validate.needs_recalibration(result)
    higher = calibration(id="again", compute=(replace(peak, value=9e14),))
    monkeypatch.setattr("torchstone.lab.roofs.run_calibration", lambda **_: higher)
    found = recalibrated(result, full, None)
    assert found.calibration is not None
    assert found.calibration.compute[0].value == 9e14  # judged by it all the same
    assert with_roofs(result, full) == result
    assert [one.message for one in full.troubles] == [
        f"The roofs measured again were not kept: {FULL}",
        f"The machine's roofs could not be looked up: {FULL}",
    ]


def test_a_disk_that_is_full_when_roofs_are_measured_again(
    full: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchstone.lab.roofs.run_calibration", no_space)
    low = calibration(compute=(Peak(1e9, 0.1, 50, dtype="fp32", threads=2),))
    found = recalibrated(judge_again(pair(calibration=low)), full, None)
    assert found.calibration is not None
    assert "No space left on device" in found.calibration.notes[-1]


@pytest.mark.parametrize("error", [TorchstoneError("It is gone."), OSError("It is gone.")])
def test_a_second_look_that_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("torchstone.lab.roofs.run_case", fail)
    result = judge_again(pair(arm("inductor", 0.25e-3, seed=2, flops=None), arm(flops=None)))
    assert validate.wants_second_look(result)
    arms = [ArmSpec("eager", HONEST), ArmSpec("inductor", HONEST)]
    found = bench._looked_at_again(result, arms, settings(), None, None)
    assert found.arms == result.arms
    assert found.second_looks[0].speedup is None
    (check,) = [one for one in found.checks if one.rule == "too-good"]
    assert check.level.value == "fail"  # twenty times as fast: held until it is confirmed
    assert "a second look could not tell (it failed: It is gone)" in check.message


def test_ctrl_c_while_the_result_waits_for_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    keeper = Keeper(str(tmp_path / "kept.db"))
    monkeypatch.setattr(keeper, "save", pressed)
    monkeypatch.setattr(bench, "measure_unkept", lambda *_: pair())
    found = bench.measure((), settings(), keeper, None, (), "bench")
    assert found.arms == pair().arms
    assert found.method.stopped_by == "interrupt"
    assert "may not be kept" in keeper.troubles[0].message
