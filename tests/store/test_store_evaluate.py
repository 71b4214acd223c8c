"""What is known of machines, and what later rules say of a result: added to, never changed."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import make_result
from store_runs import derive, fill, make_case, make_run

from torchstone.records import (
    Calibration,
    Check,
    DoctorReport,
    Evaluation,
    Finding,
    Level,
    Peak,
    Result,
    UsageError,
    Verdict,
)
from torchstone.store import open_store


def calibration(number: int, machine: str = "m-1", device: str = "cpu") -> Calibration:
    return Calibration(
        f"c-{number}",
        machine,
        "f" * 16,
        f"2026-11-{number:02}T00:00:00+00:00",
        device,
        compute=(Peak(9e10 + number, 0.1, 400, "fp32", 1),),
        costs={"timer": Peak(3e-8, 0.2, 1000)},
    )


def doubted(result: Result) -> Evaluation:
    """A later word on it: a failed check, and so no verdict."""
    withheld = tuple(
        replace(c, verdict=Verdict.CANNOT_TELL, time_ratio=None, interval=None, reason="Withheld.")
        for c in result.comparisons
    )
    check = Check("new-rule", Level.FAIL, "It is not to be believed.", {"x": 1.0}, ("inductor",))
    return Evaluation("2026-12-01T00:00:00+00:00", "9.9", (check,), withheld)


def test_the_newest_calibration_of_a_device_of_a_machine(db: Path) -> None:
    with open_store(str(db)) as store:
        assert store.calibration("m-1") is None
        for one in (
            calibration(1),
            calibration(2),
            calibration(3, "m-2"),
            calibration(4, device="cuda"),
        ):
            store.save_calibration(one)
        assert store.calibration("m-1") == calibration(2)
        assert store.calibration("m-1", "cuda") == calibration(4, device="cuda")
        assert store.calibration("m-3") is None
        assert [c.id for c in store.calibrations("m-1")] == ["c-4", "c-2", "c-1"]
        assert [c.id for c in store.calibrations(limit=1)] == ["c-4"]


def test_reports_of_the_doctor_come_back_equal(db: Path) -> None:
    findings = (Finding("load", Level.WARN, "1.7 of 2 cores are busy.", {"load": 1.7}, "Wait."),)
    reports = [DoctorReport(f"d-{i}", "m-1", f"2026-11-1{i}", findings) for i in range(3)]
    with open_store(str(db)) as store:
        for report in reports:
            store.save_doctor(report)
        assert store.doctor_reports("m-1", limit=2) == [reports[2], reports[1]]
        assert store.doctor_reports("m-2") == []


@pytest.mark.sqlite_only
@pytest.mark.parametrize("table", ["calibration", "doctor", "evaluation"])
def test_rows_never_change(db: Path, table: str) -> None:
    result = make_result()
    with open_store(str(db)) as store:
        store.save(result)
        store.save_calibration(calibration(1))
        store.save_doctor(DoctorReport("d-1", "m-1", "2026-11-11", ()))
        store.add_evaluation(result, doubted(result), derive)
    with sqlite3.connect(db) as raw:
        for statement in (f"UPDATE {table} SET created = ''", f"DELETE FROM {table}"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                raw.execute(statement)


def test_the_newest_judgement_is_what_is_shown(db: Path) -> None:
    result = make_result()
    evaluation = doubted(result)
    with open_store(str(db)) as store:
        store.save(result)
        assert "faster" in store.list()[0].headline
        store.add_evaluation(result, replace(evaluation, checks=()), derive)
        store.add_evaluation(result, evaluation, derive)
    with open_store(str(db), read_only=True) as store:
        shown = store.load(result.id)
        assert shown.checks == evaluation.checks
        assert shown.comparisons == evaluation.comparisons
        assert shown.arms == result.arms
        assert "cannot tell" in store.list()[0].headline


def test_the_figures_of_a_runs_case_follow_and_keep_their_command(db: Path) -> None:
    run = make_run(cases=6)
    with open_store(str(db)) as store:
        fill(store, run, [0, 4])
        ids = store.result_ids(run.id)
        assert len(ids) == 2
        result, before = make_case(run, 0)
        assert result is not None
        assert before.command
        store.add_evaluation(result, doubted(result), derive)
        after = next(c for c in store.run_view(run.id).cases if c.key == before.key)
    assert after.command == before.command
    assert after.reason == f"{result.id} inductor"  # derived again, from the evaluated result


def test_a_judgement_of_nothing_is_refused(db: Path) -> None:
    result = make_result()
    with open_store(str(db)) as store, pytest.raises(UsageError, match="There is no result"):
        store.add_evaluation(result, doubted(result), derive)
