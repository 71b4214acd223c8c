"""The `torchstone` fixture, in a real pytest run of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.targets.support import ROOT

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
