"""The doctor's own measurement and its calibration, evaluated from records with a known truth."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.validate.cases import arm, result
from torchstone.conductor.case import Silent
from torchstone.lab import bench
from torchstone.lab.doctor import (
    TARGET,
    DoctorRequest,
    calibrate,
    doctor,
    history,
    in_force,
    measure_identical,
    see,
)
from torchstone.lab.recording import Recorder
from torchstone.machine.calibrate import fingerprint
from torchstone.machine.hardware import ILLEGAL_REMEDY
from torchstone.records import (
    Calibration,
    CompileCost,
    Conditions,
    Estimate,
    Level,
    Measurement,
    Outcome,
    Peak,
    Result,
    UsageError,
)
from torchstone.store import open_store
from torchstone.workloads import load

TORCH = {"version": "2.13.0", "threads": "1"}
STEP = CompileCost(cold_ns=0, first_call_ns=5_000_000, steady_ns=5_000_000)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(str(tmp_path / "kept.db"))


def twins(twin_step: float = 5e-3, **changes: Any) -> Result:
    """Two quiet arms; the same program, unless the second one's step says otherwise."""
    base = arm("identical arm", compile=STEP)
    made = result(base, arm("its twin", twin_step, seed=2, compile=STEP))
    return replace(made, method=replace(made.method, margin=0.02, **changes))


def noisy(made: Result, spread: float) -> Result:
    """The second arm's processes differ from each other by that much."""
    base, twin = made.arms
    turns = tuple(
        replace(t, wall_ns=tuple(round(ns * (1 + spread * t.replicate)) for ns in t.wall_ns))
        for t in twin.turns
    )
    return result(base, replace(twin, turns=turns))


def known_floor(recorder: Recorder, measured: Measurement) -> float | None:
    assert measured.environment is not None
    return recorder.aa_floor(measured.environment.machine_id, bench.conditions(measured))


def test_identical_arms_on_a_quiet_machine_are_ok_and_remembered(recorder: Recorder) -> None:
    made = twins()
    seen = see(made, recorder)
    assert seen.finding.level is Level.OK
    assert seen.smallest is not None
    assert seen.smallest <= 0.02
    assert "(steps of 1-10 ms on one thread)" in seen.finding.message
    assert "cannot be seen in such steps here today" in seen.finding.message
    assert seen.estimate is not None
    assert known_floor(recorder, made.arms[0]) == pytest.approx(abs(seen.estimate.time_ratio - 1))


def test_the_history_is_told_by_threads_and_length_of_step(recorder: Recorder) -> None:
    nothing = history("m1", recorder)
    assert nothing.level is Level.NOTE
    assert "nothing is known" in nothing.message
    estimate = Estimate("floor", 1.06, (1.0, 1.1), 0.95, 4)
    for threads, allocator, step, value in (
        (1, "keep", "1-10 ms", 0.004),
        (2, "keep", "10-100 ms", 0.06),
        (2, "default", "10-100 ms", 0.02),
    ):
        recorder.remember_aa_floor("m1", Conditions(threads, allocator, step), value, estimate)
    recorder.remember_aa_floor("m2", Conditions(1, "keep", "1-10 ms"), 0.5, estimate)
    found = history("m1", recorder)
    assert found.level is Level.OK
    assert found.figures == {"1 thread, 1-10 ms": 0.004, "2 threads, 10-100 ms": 0.06}
    assert "2 threads, 10-100 ms 6.0 % (2 pairs)" in found.message
    assert history("m2", recorder).level is Level.WARN


def test_identical_arms_that_differ_are_a_fail(recorder: Recorder) -> None:
    made = twins(5.15e-3)
    seen = see(made, recorder)
    assert seen.finding.level is Level.FAIL
    assert seen.finding.message == "two identical programs differ by 3.0 % here"
    assert known_floor(recorder, made.arms[0]) == pytest.approx(0.03, abs=0.002)


def test_what_was_seen_before_counts_too(recorder: Recorder) -> None:
    see(twins(5.15e-3), recorder)
    again = see(twins(), recorder)
    assert again.smallest == pytest.approx(0.03, abs=0.002)
    assert again.finding.level is Level.WARN


def test_a_machine_on_which_nothing_can_be_seen_is_not_fit(recorder: Recorder) -> None:
    made = noisy(twins(), 0.2)
    seen = see(made, recorder)
    assert seen.finding.level is Level.FAIL
    assert seen.smallest is not None
    assert seen.smallest > 0.2
    # Such a run must not hold back verdicts on quiet days.
    assert known_floor(recorder, made.arms[0]) is None


def test_a_difference_of_some_percent_needs_care(recorder: Recorder) -> None:
    seen = see(noisy(twins(), 0.01), recorder)
    assert seen.finding.level is Level.WARN
    assert "--budget" in seen.finding.remedy


def test_an_arm_that_dies_is_not_called_quiet(recorder: Recorder) -> None:
    made = twins()
    dead = replace(made.arms[1], outcome=Outcome.CRASH, turns=())
    seen = see(result(made.arms[0], dead), recorder)
    assert seen.finding.level is Level.FAIL
    assert "ended as crash" in seen.finding.message


def test_an_interrupt_before_the_first_sample(recorder: Recorder) -> None:
    made = twins(stopped_by="interrupt")
    unrun = replace(made.arms[1], outcome=Outcome.NOT_RUN, turns=())
    seen = see(replace(made, arms=(made.arms[0], unrun), comparisons=()), recorder)
    assert seen.interrupted
    assert seen.finding.level is Level.NOTE
    assert seen.estimate is None


def test_a_function_that_fails_is_said(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def run():\n    raise OSError('out of order')\n")
    seen = measure_identical(recorder, target=f"{tmp_path / 'bad.py'}:run()", budget_s=0.1)
    assert seen.finding.level is Level.FAIL
    assert "could not be measured" in seen.finding.message
    assert "out of order" in seen.finding.message


def test_the_yardstick_always_does_the_same() -> None:
    assert load.run() == load.run()
    assert f"{load.__name__}:run()" == TARGET


def calibration(**changes: Any) -> Calibration:
    made = Calibration(
        id="c1",
        machine_id="m-1",
        fingerprint=fingerprint("cpu"),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        compute=(
            Peak(93.3e9, dtype="float32", threads=1),
            Peak(999e9, dtype="int8", threads=1, sparse=True),
        ),
        bandwidth=(Peak(69e9, level="L2", threads=1), Peak(20.9e9, level="DRAM", threads=1)),
        clock=Peak(3.23e9),
    )
    return replace(made, **changes)


def test_a_calibration_is_kept_and_then_in_force(recorder: Recorder) -> None:
    none, told = in_force("m-1", "cpu", recorder)
    assert none is None
    assert told.level is Level.NOTE
    assert "torchstone doctor --calibrate" in told.remedy
    asked: list[Any] = []

    def run(device: str, say: Any) -> Calibration:
        asked.append((device, say))
        say("peaks")
        return calibration()

    made, found = calibrate("cpu", recorder, Silent(), run)
    assert made == calibration(created=made.created if made else "")
    assert found.level is Level.OK
    assert "float32 93.3 GFLOP/s on 1 thread, memory 20.9 GB/s" in found.message
    assert "999" not in found.message
    assert asked[0][0] == "cpu"
    known, again = in_force("m-1", "cpu", recorder)
    assert known == made
    assert again.level is Level.OK
    assert again.message.startswith("made just now: ")


def test_an_old_calibration_or_one_of_another_machine_is_stale(recorder: Recorder) -> None:
    old = datetime.now(timezone.utc) - timedelta(days=400)
    for changes in ({"created": old.isoformat()}, {"fingerprint": "another"}):
        recorder.save_calibration(calibration(id=str(changes), **changes))
        known, found = in_force("m-1", "cpu", recorder)
        assert known is not None
        assert found.level is Level.NOTE
        assert found.message.startswith("stale, made ")
    assert in_force("m-2", "cpu", recorder)[0] is None


def test_types_that_end_a_program_here_are_a_warning_with_the_remedy(recorder: Recorder) -> None:
    notes = ("L4: not there", f"bf16, int8: not measured; It died. {ILLEGAL_REMEDY}")
    _, found = calibrate("cpu", recorder, Silent(), lambda **_: calibration(notes=notes))
    assert (found.level, found.remedy) == (Level.WARN, ILLEGAL_REMEDY)
    assert found.message.endswith("; bf16, int8: not measured: an illegal instruction")
    assert in_force("m-1", "cpu", recorder)[1].level is Level.WARN


def test_a_calibration_that_fails_costs_no_report(recorder: Recorder) -> None:
    def run(device: str, say: Any) -> Calibration:
        raise UsageError("There is no torch here.", "Install it.")

    made, found = calibrate("cpu", recorder, Silent(), run)
    assert made is None
    assert (found.level, found.remedy) == (Level.WARN, "Install it.")
    assert "There is no torch here." in found.message


def test_a_device_that_cannot_be_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    db = tmp_path / "none.db"
    with pytest.raises(UsageError, match="There is no device 'GPU 0'"):
        doctor(DoctorRequest(device="GPU 0"), Recorder(str(db)))
    assert not db.exists()


def test_the_report_names_the_calibration_it_made(recorder: Recorder) -> None:
    request = DoctorRequest(identical=False, calibrate=True)
    visit = doctor(request, recorder, None, lambda device, say: calibration(), TORCH)
    assert visit.report.calibration == "c1"
    assert visit.report.findings[-1].name == "calibration"
    with open_store(recorder.url) as store:
        assert store.doctor_reports(visit.report.machine_id) == [visit.report]
        kept = store.calibration("m-1")
    assert kept is not None
    assert kept.id == "c1"


def test_an_interrupt_keeps_what_was_found(recorder: Recorder) -> None:
    def run(device: str, say: Any) -> Calibration:
        raise KeyboardInterrupt

    request = DoctorRequest(identical=False, calibrate=True)
    visit = doctor(request, recorder, None, run, TORCH)
    assert visit.interrupted
    assert len(visit.report.findings) > 20
    with open_store(recorder.url) as store:
        assert store.doctor_reports() == [visit.report]
