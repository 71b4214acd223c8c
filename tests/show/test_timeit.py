"""`torchstone timeit` answers in timeit's words first."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

from torchstone.show.terminal import passed_checks, report, timeit_report

from . import synthetic_result as made

ANSWER = re.compile(r"^\d+ loops?, best of \d+: [\d.e+-]+ (nsec|usec|msec|sec) per loop$")


def test_first_line_has_the_form_of_the_standard_library() -> None:
    command = [sys.executable, "-m", "timeit", "-n", "50", "-r", "3", "pass"]
    theirs = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    ours = timeit_report(made.statement()).splitlines()[0]
    assert ANSWER.match(theirs)
    assert ANSWER.match(ours)
    assert ours == "50 loops, best of 288: 8.2 usec per loop"


def test_interval_typical_checks_and_id_follow() -> None:
    text = timeit_report(made.statement())
    assert re.search(r"^  floor    8\.2\d* usec  \(8\.\d+ to 8\.\d+, 95 %\)$", text, re.M)
    assert re.search(r"^  typical  8\.5\d+ usec  \(8\.\d+ to 8\.\d+, 95 %\)$", text, re.M)
    assert "  3 checks ok" in text
    assert "torchstone show r7k2m9" in text
    assert "\x1b" not in text


def test_unit_and_precision_can_be_set() -> None:
    first = timeit_report(made.statement(), unit="nsec", precision=5).splitlines()[0]
    assert re.search(r"best of 288: 8\d{3}(\.\d)? nsec per loop", first)


def test_cpu_time_is_called_that() -> None:
    result = made.statement()
    arm = result.arms[0]
    assert arm.arm.statement is not None
    statement = replace(arm.arm.statement, clock="cpu")
    cpu = replace(result, arms=(replace(arm, arm=replace(arm.arm, statement=statement)),))
    assert timeit_report(cpu).splitlines()[0].endswith("usec per loop, CPU time")
    assert "CPU time" in report(cpu).splitlines()[0]
    assert "CPU time" not in timeit_report(result) + report(result)


def test_passed_checks_can_be_told_one_by_one() -> None:
    lines = passed_checks(made.statement(), 80).splitlines()
    assert lines == [f"  ok R{i:02d}: fine" for i in range(3)]


def test_one_process_says_that_it_has_no_interval() -> None:
    arm = replace(made.statement().arms[0], turns=made.turns(5e-9, seed=1, processes=1), loops=1)
    text = timeit_report(made.result((arm,)))
    assert text.startswith("1 loop, best of 96: 5 nsec per loop")
    assert "(one process: no interval)" in text


def test_a_failed_statement_shows_its_evidence() -> None:
    text = timeit_report(made.no_samples())
    assert "per loop" not in text
    assert "✗ eager  not run (warm-up): interrupted before the first turn" in text
