"""The `torchstone` fixture, in a real pytest run of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import HONEST, ROOT, target
from torchstone.lab.api import compare
from torchstone.lab.pytest_plugin import SpeedAssertions
from torchstone.records import UsageError

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


def test_another_arm_does_not_come_between_the_two() -> None:
    fixture = SpeedAssertions()
    slow = target("honest", "make_slow")
    options = {"budget": 0.2, "replicates": 2, "arms": ["name=other allocator=keep"]}
    with pytest.raises(pytest.fail.Exception, match="make_slow takes"):
        fixture.assert_not_slower(slow, HONEST, margin=0.03, on_doubt="fail", **options)


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
    assert "cannot be imported by a worker" in out
