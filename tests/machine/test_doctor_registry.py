"""The door of the checkups, what happens to broken ones, and the second that is truly watched."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.doctor_tree import empty_view, view
from torchstone.machine.doctor import CHECKUPS as REGISTRY
from torchstone.machine.doctor import (
    FunctionCheckup,
    View,
    allowed_cores,
    examine,
    ok,
    run_checkups,
    watch,
)
from torchstone.machine.doctor import processors as core_checkups
from torchstone.machine.doctor.base import cores
from torchstone.machine.hardware import read_cores
from torchstone.records import Finding, Level

CHECKUPS = {
    *("accelerator", "address-layout", "affinity", "allocator", "boost", "clock", "core"),
    *("core-speed", "cpu-quota", "governor", "heat", "huge-pages", "load", "memory"),
    *("perf-events", "power", "pressure", "processes", "smt", "steal", "swap", "threads"),
    *("throttling", "variables", "virtual"),
}
SPIN = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"

linux = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no /proc here")


def test_built_in_checkups_come_through_the_door_under_their_own_names() -> None:
    found = {point.name: point.load() for point in REGISTRY.all()}
    assert set(found) >= CHECKUPS
    for name in CHECKUPS:
        assert found[name].name == name
        assert found[name].source


def test_a_clean_machine_has_no_warning(tmp_path: Path) -> None:
    found = examine(view(tmp_path))
    assert len(found) >= len(CHECKUPS)
    assert [f for f in found if f.level in (Level.WARN, Level.FAIL)] == []


def test_a_system_that_says_nothing_is_no_failure(tmp_path: Path) -> None:
    for finding in examine(empty_view(tmp_path)):
        assert finding.level in (Level.NOTE, Level.OK)
        assert "Error" not in finding.message


def _breaks(seen: View) -> Iterator[Finding]:
    yield ok("half", "fine so far")
    raise RuntimeError("no\nway")


def _babbles(seen: View) -> Iterator[Finding]:
    yield "all well"  # type: ignore[misc]


def test_a_broken_checkup_is_a_warning_and_the_rest_goes_on() -> None:
    checkups = [
        FunctionCheckup("half", "here", _breaks),
        FunctionCheckup("babble", "here", _babbles),
        FunctionCheckup("good", "here", lambda _: [ok("good", "fine")]),
    ]
    found = run_checkups(checkups, View())
    assert [(f.name, f.level.value) for f in found] == [
        ("half", "ok"),
        ("half", "warn"),
        ("babble", "warn"),
        ("good", "ok"),
    ]
    assert "RuntimeError: no way" in found[1].message
    assert "gave a str instead of a Finding" in found[2].message


@linux
def test_a_real_second_names_a_busy_process() -> None:
    rival = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        time.sleep(0.2)  # Python has started by then, or takes CPU time to do so
        seen = watch(0.6)
    finally:
        rival.kill()
        rival.wait()
    uses = {use.pid: use for use in seen.uses()}
    assert rival.pid in uses
    assert os.getpid() not in uses
    assert uses[rival.pid].name.startswith("python")
    assert 0 < uses[rival.pid].cores < 1.5
    found = run_checkups([core_checkups.PROCESSES], View(window=seen, cores=allowed_cores()))
    assert found[0].level in (Level.NOTE, Level.WARN)


@linux
def test_the_window_has_figures_of_this_machine() -> None:
    seen = watch(0.2)
    assert seen.seconds >= 0.2
    assert seen.probes_ns
    assert min(seen.probes_ns) > 0
    assert seen.noise is not None
    assert 0 < seen.noise.cpu_ns <= seen.noise.wall_ns * 1.1
    busy = seen.busy_cores()
    assert busy is not None
    assert 0 < busy <= (os.cpu_count() or 1)
    assert all(0 <= share <= 1 for share in seen.steal().values())


@linux
def test_this_machine_is_examined_without_a_crash() -> None:
    seen = View(env=dict(os.environ), cores=allowed_cores(), window=watch(0.1))
    found = examine(seen)
    assert {f.name for f in found} >= CHECKUPS - {"pressure"}
    for finding in found:
        assert "this checkup" not in finding.message, finding
        assert all(math.isfinite(value) for value in finding.figures.values())


def test_words() -> None:
    assert cores({5, 0, 1, 2, 7}) == "0-2,5,7"
    assert read_cores("0-2,5, x,7-") == {0, 1, 2, 5}
    assert read_cores("") == frozenset()
