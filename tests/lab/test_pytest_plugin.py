"""The `torchstone` fixture, in a real pytest run of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.show import synthetic_result
from tests.targets.support import HONEST, ROOT, target
from torchstone.lab.api import compare
from torchstone.lab.pytest_plugin import SpeedAssertions, TorchstoneWarning
from torchstone.records import Result, UsageError, Verdict

SPEED = """
import pytest

def base():
    return sum(i * i for i in range(3000))

def same():
    return sum(i * i for i in range(3000))

def slow():
    return (sum(i * i for i in range(3000)) + sum(i * i for i in range(3000))) // 2

def wrong():
    return 7

OPTIONS = {"budget": 0.5, "replicates": 4}
SHORT = {"budget": 0.2, "replicates": 2}

def test_same(torchstone):
    torchstone.assert_not_slower(same, base, margin=0.5, on_doubt="pass", **SHORT)

def test_slow(torchstone):
    torchstone.assert_not_slower(slow, base, margin=0.03, **OPTIONS)

def test_wrong(torchstone):
    torchstone.assert_not_slower(wrong, base, **SHORT)

def test_lambda(torchstone):
    torchstone.assert_not_slower(lambda: 1, base, **OPTIONS)
"""


@pytest.mark.parametrize("options", [{"vs": ["aot_eager"]}, {"vs": ("inductor", "aot_eager")}])
def test_variants_are_refused_where_the_first_comparison_would_not_be_the_one_asked_for(
    options: dict[str, Any],
) -> None:
    fixture = SpeedAssertions()
    with pytest.raises(UsageError, match="takes no vs"):
        fixture.assert_not_slower(HONEST, target("honest", "make_slow"), **options)
    with pytest.raises(UsageError, match="takes no vs"):
        compare(HONEST, target("honest", "make_slow"), **options)


@pytest.mark.slow
def test_another_arm_does_not_come_between_the_two() -> None:
    fixture = SpeedAssertions()
    slow = target("honest", "make_slow")
    options = {"budget": 0.2, "replicates": 2, "arms": ["name=other allocator=keep"]}
    with pytest.raises(pytest.fail.Exception, match="make_slow takes"):
        fixture.assert_not_slower(slow, HONEST, margin=0.03, on_doubt="fail", **options)


def test_a_suite_is_measured_fast_unless_the_margin_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    def note(*targets: object, **options: Any) -> Result:
        asked.append(options)
        return Told(Verdict.SAME, 0.99, 1.01).result

    monkeypatch.setattr("torchstone.lab.api.compare", note)
    fixture = SpeedAssertions()
    fixture.assert_not_slower("new", "base")
    fixture.assert_not_slower("new", "base", margin=0.01)
    fixture.assert_not_slower("new", "base", effort="rigorous", budget=9)
    assert [one.get("effort") for one in asked] == ["fast", None, "rigorous"]
    assert [one["margin"] for one in asked] == [0.03, 0.01, 0.03]
    assert [one["budget"] for one in asked] == [5.0, 5.0, 9]
    assert asked[0]["within"] == 0.01
    assert {one["until"] for one in asked} == {"decided"}


class Told(SpeedAssertions):
    """The fixture over a comparison that is known beforehand."""

    def __init__(self, verdict: Verdict, low: float, high: float) -> None:
        made = synthetic_result.cannot_tell()
        (found,) = made.comparisons
        ratio = (low * high) ** 0.5
        found = replace(found, verdict=verdict, time_ratio=ratio, interval=(low, high))
        found = replace(found, margin=0.03, deciding_budget_s=45.0)
        self.result = replace(made, comparisons=(found,))

    def compare(self, base: Any, new: Any, **options: Any) -> Result:
        return self.result


@pytest.mark.parametrize(
    ("verdict", "low", "high"),
    [
        (Verdict.FASTER, 0.8, 0.9),
        (Verdict.SAME, 0.99, 1.01),
        (Verdict.NOT_SLOWER, 0.9, 1.02),
        (Verdict.SLOWER, 1.01, 1.025),  # slower, by less than was allowed
    ],
)
def test_what_excludes_slower_passes(verdict: Verdict, low: float, high: float) -> None:
    Told(verdict, low, high).assert_not_slower("new", "base", on_doubt="fail")


@pytest.mark.parametrize(
    ("verdict", "low", "high", "said"),
    [
        (Verdict.CANNOT_TELL, 0.9, 1.1, "]: cannot tell whether"),
        (Verdict.NOT_FASTER, 0.99, 1.1, "]: not faster, but cannot tell whether"),
        (Verdict.SLOWER, 1.01, 1.1, "]: slower, but cannot tell whether"),
        (Verdict.CANNOT_TELL, 0.9, 0.95, "]: cannot tell whether"),  # floor and typical contradict
    ],
)
def test_what_does_not_is_in_doubt_and_names_a_budget(
    verdict: Verdict, low: float, high: float, said: str
) -> None:
    told = Told(verdict, low, high)
    with pytest.raises(pytest.fail.Exception) as failed:
        told.assert_not_slower("new", "base", on_doubt="fail")
    assert said in str(failed.value)
    assert "more than 3.0%. budget=45 would probably tell 3 %." in str(failed.value)
    with pytest.warns(TorchstoneWarning, match="cannot tell"):
        told.assert_not_slower("new", "base")
    told.assert_not_slower("new", "base", on_doubt="pass")


def test_proven_slower_fails_whatever_doubt_means() -> None:
    with pytest.raises(pytest.fail.Exception, match="slower by more than"):
        Told(Verdict.SLOWER, 1.05, 1.1).assert_not_slower("new", "base", on_doubt="pass")


@pytest.mark.slow
def test_the_fixture_passes_fails_and_explains(tmp_path: Path) -> None:
    (tmp_path / "test_speed.py").write_text(SPEED)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_speed.py", "-rA"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    out = done.stdout
    assert "PASSED test_speed.py::test_same" in out, out
    assert "FAILED test_speed.py::test_slow" in out, out
    assert "slow() takes" in out
    assert "slower by more than 3.0%" in out
    assert "wrong(): wrong_answer: output: " in out
    assert "FAILED test_speed.py::test_lambda" in out
    assert "wrong_answer" in out
    assert "= torchstone =" in out  # the table at the end
    table = out[out.index("= torchstone =") :]
    assert "test_speed.py::test_slow  slow() / base()" in " ".join(table.split("  "))


BASELINE = """
import os

TIMES = int(os.environ["TIMES"])

def test_sum(torchstone):
    def work():
        return [sum(range(2000)) for _ in range(TIMES)][0]

    torchstone.assert_no_regression(work, margin=0.5, on_doubt="pass", budget=0.4)

def test_local(torchstone):
    new, base = lambda: sum(range(2000)), lambda: sum(list(range(2000)))
    torchstone.assert_not_slower(new, base, margin=3, budget=0.2)
"""


def run_baseline(folder: Path, times: int, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "test_it.py", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TIMES": str(times)},
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_stored_baseline_of_this_machine_is_compared_with(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "test_it.py").write_text(BASELINE)
    # Where no settings say what pytest's root is, a path that exists moves it up, and every id.
    database = ("--torchstone-db", str(tmp_path / "speed.db"))
    first = run_baseline(folder, 3, *database, "--torchstone-save")
    assert "no stored baseline of this test on this machine" in first, first
    assert "PASSED test_it.py::test_local" in first, first
    table = " ".join(first[first.index("= torchstone =") :].split())
    assert "test_it.py::test_local lambda #2 / lambda" in table
    again = run_baseline(folder, 3, *database, "-k", "sum")
    assert "PASSED test_it.py::test_sum" in again, again
    slower = run_baseline(folder, 30, *database, "-k", "sum")
    assert "FAILED test_it.py::test_sum" in slower, slower
    assert "now takes" in slower
    assert "of stored " in slower
