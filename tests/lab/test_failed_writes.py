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
from torchstone.lab.bench import DUPLICATE, aa_floor, conditions, observe
from torchstone.lab.peaks import (
    evaluate_again,
    recalibrated,
    with_peaks,
    with_remeasurements,
)
from torchstone.lab.recording import Recorder
from torchstone.records import ArmSpec, Estimate, Peak, TorchstoneError
from torchstone.store import open_store
from torchstone.track.compare import DEFAULT_AA_FLOOR

ESTIMATE = Estimate("floor", 1.25, (1.2, 1.3), 0.95, 4)
FULL = "The database cannot grow: the disk is full."


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A recorder that was fine when it was looked at, and cannot be used any more."""
    path = str(tmp_path / "full.db")
    with open_store(path) as store:
        assert store.count() == 0

    def refuse(*_: object, **__: object) -> None:
        raise TorchstoneError(FULL, "Free some space.")

    monkeypatch.setattr("torchstone.lab.recording.open_store", refuse)
    return Recorder(path)


def test_what_identical_arms_differ_by(full: Recorder) -> None:
    base, twin = arm("eager"), arm(DUPLICATE, 5.1e-3, seed=2)
    case = CaseResult((base, arm("inductor", 4e-3, seed=3), twin), 4, (4,), 0.05, "budget", 1.0)
    assert len(observe(full, case).arms) == 2
    assert aa_floor(full, base) == DEFAULT_AA_FLOOR
    kept, looked_up = full.storage_warnings
    assert kept.message == f"What identical arms differ by was not kept: {FULL}"
    assert kept.remedy == "Free some space."
    assert "could not be looked up" in looked_up.message


def test_roofs_that_were_beaten(full: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    peak = Peak(1e9, 0.1, 50, dtype="fp32", threads=2)
    result = evaluate_again(pair(calibration=calibration(compute=(peak,))))
    assert validate.needs_recalibration(result)
    higher = calibration(id="again", compute=(replace(peak, value=9e14),))
    monkeypatch.setattr("torchstone.lab.peaks.run_calibration", lambda **_: higher)
    found = recalibrated(result, full, None)
    assert found.calibration is not None
    assert found.calibration.compute[0].value == 9e14  # evaluated by it all the same
    assert with_peaks(result, full) == result
    assert [one.message for one in full.storage_warnings] == [
        f"The peaks measured again were not kept: {FULL}",
        f"The machine's peaks could not be looked up: {FULL}",
    ]


def test_a_disk_that_is_full_when_roofs_are_measured_again(
    full: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchstone.lab.peaks.run_calibration", no_space)
    low = calibration(compute=(Peak(1e9, 0.1, 50, dtype="fp32", threads=2),))
    found = recalibrated(evaluate_again(pair(calibration=low)), full, None)
    assert found.calibration is not None
    assert "No space left on device" in found.calibration.notes[-1]


@pytest.mark.parametrize("error", [TorchstoneError("It is gone."), OSError("It is gone.")])
def test_a_second_look_that_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("torchstone.lab.peaks.run_case", fail)
    result = evaluate_again(pair(arm("inductor", 0.25e-3, seed=2, flops=None), arm(flops=None)))
    assert validate.needs_remeasuring(result)
    arms = [ArmSpec("eager", HONEST), ArmSpec("inductor", HONEST)]
    found = with_remeasurements(result, arms, settings(), None)
    assert found.arms == result.arms
    assert found.remeasurements[0].speedup is None
    (check,) = [one for one in found.checks if one.rule == "too-good"]
    assert check.level.value == "fail"  # twenty times as fast: held until it is confirmed
    assert "measuring again could not tell (it failed: It is gone)" in check.message


def test_ctrl_c_while_the_result_waits_for_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    recorder = Recorder(str(tmp_path / "kept.db"))
    monkeypatch.setattr(recorder, "save", pressed)
    monkeypatch.setattr(bench, "measure_unsaved", lambda *_: pair())
    found = bench.measure((), settings(), recorder, None, (), "bench")
    assert found.arms == pair().arms
    assert found.method.stopped_by == "interrupt"
    assert "may not be kept" in recorder.storage_warnings[0].message


@pytest.mark.parametrize("saves", [True, False])
def test_saving_changes_nothing_that_a_result_says(
    saves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The A/A floor and the calibration of the machine count, whether the result is kept or not."""
    base, new = arm("eager"), arm("inductor", 4.7e-3, seed=3)
    path = tmp_path / "machine.db"
    known = Recorder(str(path))
    assert base.environment is not None
    machine = base.environment.machine_id
    known.remember_aa_floor(machine, conditions(base), 0.25, ESTIMATE)
    known.save_calibration(calibration(machine_id=machine))
    before = path.read_bytes()
    monkeypatch.setattr("torchstone.lab.peaks.is_stale", lambda *_: False)
    case = CaseResult((base, new), 4, (4,), 0.05, "budget", 1.0)
    monkeypatch.setattr(bench, "run_case", lambda *_: case)
    specs = (base.arm, new.arm)
    made = bench.measure(specs, settings(), Recorder(str(path), saves=saves), None, (), "bench")
    assert made.comparisons[0].aa_floor == pytest.approx(0.25)
    assert not made.comparisons[0].verdict.different
    assert made.calibration is not None
    assert (path.read_bytes() == before) is not saves
    assert (made.signature == "") is not saves


def test_without_saving_a_database_that_cannot_be_used_is_not_spoken_of(tmp_path: Path) -> None:
    path = tmp_path / "junk.db"
    path.write_text("not a database, " * 100)
    recorder = Recorder(str(path), saves=False)
    assert aa_floor(recorder, arm("eager")) == DEFAULT_AA_FLOOR
    assert recorder.storage_warnings == []


def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    recorder = Recorder(str(path))
    assert aa_floor(recorder, arm("eager")) == DEFAULT_AA_FLOOR
    assert recorder.storage_warnings == []
