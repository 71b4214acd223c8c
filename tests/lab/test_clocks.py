"""An arm that changes the clock it is timed with is caught, however it does it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.targets.support import ROOT, settings, target
from torchstone.lab.bench import measure
from torchstone.records import ArmSpec, Level, Outcome, Result, Statement, Verdict

QUICK = ["slow", "jumps", "in_its_call", "by_walk"]
MORE = ["a_little_slow", "fast", "stops"]
RULE = "second-clock"
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    static long long began;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, t);
    if (failed || clock != CLOCK_MONOTONIC) return failed;
    long long now = t->tv_sec * 1000000000LL + t->tv_nsec;
    if (!began) began = now;
    now = began + (now - began) / 4;
    t->tv_sec = now / 1000000000LL;
    t->tv_nsec = now % 1000000000LL;
    return 0;
}
"""


def arm(name: str) -> ArmSpec:
    return ArmSpec(name, target("clocks", name))


HONEST = ArmSpec("honest", target("cheats", "honest"))


def bench(*arms: ArmSpec, together: bool = False) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        return measure(arms, settings(together=together), None, None, (), "bench")


def failed(result: Result) -> dict[str, str]:
    """Arms whose clock is not believed, with what is said."""
    found = [c for c in result.checks if c.rule == RULE and c.level is Level.FAIL]
    return {name: check.message for check in found for name in check.arms}


def caught(result: Result, name: str) -> None:
    """Named, and nothing compared with it."""
    assert "clock" in failed(result)[name]
    comparison = next(c for c in result.comparisons if c.new == name)
    assert comparison.verdict is Verdict.CANNOT_TELL
    assert comparison.time_ratio is None


@pytest.fixture(scope="module")
def quick() -> Result:
    return bench(HONEST, *map(arm, QUICK))


@pytest.mark.parametrize("name", QUICK)
def test_a_changed_clock_is_named_and_nothing_is_compared(quick: Result, name: str) -> None:
    caught(quick, name)


@pytest.mark.slow
def test_more_forms_and_the_direction() -> None:
    result = bench(HONEST, *map(arm, MORE))
    for name in MORE:
        caught(result, name)
    said = failed(result)
    assert "honest" not in said
    assert "runs fast" in said["fast"]
    assert "runs slow" in said["a_little_slow"]


def test_the_honest_arm_beside_them_is_believed(quick: Result) -> None:
    assert "honest" not in failed(quick)
    turns = quick.arms[0].turns
    assert turns
    assert all(turn.clocks is not None for turn in turns)


@pytest.mark.slow
def test_a_clock_that_is_changed_in_one_sample_of_fifty() -> None:
    result = bench(ArmSpec("few", target("clocks", "in_few_samples"), threads=1))
    assert "more CPU time" in failed(result)["few"]


def test_a_clock_that_takes_from_one_sample_for_the_next() -> None:
    result = bench(HONEST, ArmSpec("moved", target("clocks", "gives_to_others"), threads=1))
    assert "clock" in failed(result)["moved"]
    assert "honest" not in failed(result)


@pytest.mark.slow
def test_an_arm_that_closes_the_socket_for_marks_has_no_figure() -> None:
    result = bench(arm("without_marks"))
    assert result.arms[0].outcome is Outcome.CRASH
    assert "control pipe" in result.arms[0].detail.message


@pytest.mark.slow
def test_cpu_time_of_a_statement() -> None:
    setup = "from tests.targets import clocks; clocks.once(clocks.cpu_slow)"
    spec = ArmSpec("cpu", statement=Statement("sum(range(1000))", setup, "cpu"))
    assert "CPU time" in failed(bench(spec))["cpu"]
    honest = ArmSpec("cpu", statement=Statement("sum(range(1000))", clock="cpu"))
    assert not failed(bench(honest))


@pytest.mark.slow
def test_wall_time_of_a_statement_with_a_setup() -> None:
    setup = "from tests.targets import clocks; clocks.once(clocks.slow)"
    spec = ArmSpec("wall", statement=Statement("sum(range(1000))", setup))
    assert "runs slow" in failed(bench(spec))["wall"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_library_in_the_place_of_clock_gettime(tmp_path: Path) -> None:
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    env = (("LD_PRELOAD", str(library)),)
    result = bench(HONEST, ArmSpec("shim", HONEST.target, env=env))
    assert failed(result).keys() == {"shim"}


@pytest.mark.slow
def test_in_one_process_both_arms_lose_the_clock_that_one_has_changed() -> None:
    """Which of the two did it cannot be told; neither is believed."""
    result = bench(HONEST, arm("slow"), together=True)
    assert failed(result).keys() == {"honest", "slow"}
    assert "an arm in the same process" in failed(result)["honest"]


def test_in_one_process_a_clock_that_is_changed_for_one_arm_alone() -> None:
    """Its neighbour's turns see the clock jump back, so neither is believed."""
    found = failed(bench(HONEST, arm("in_its_call"), together=True))
    assert "in_its_call" in found
    assert all("an arm in the same process" in said for said in found.values())
