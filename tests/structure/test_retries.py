"""A test that measures for real is tried again, and one that is wrong is red all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.structure.places import ROOT

TESTS = """
import pytest

TRIES, MADE = [], []

@pytest.fixture(scope="module")
def made():
    MADE.append(1)
    return len(MADE)

def test_a_busy_second(made):
    TRIES.append(1)
    assert (len(TRIES), made) == (3, 3)

def test_what_comes_next(made):
    assert made == 3

def test_a_fault(made):
    assert made < 0
"""


def outcome(folder: Path) -> str:
    folder.mkdir()
    (folder / "test_one.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, "--rootdir", str(folder.parent), str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_only_folders_that_measure_for_real_are_tried_again(tmp_path: Path) -> None:
    hooks = "from tests.conftest import pytest_report_teststatus, pytest_runtest_protocol\n"
    (tmp_path / "conftest.py").write_text(hooks)
    assert outcome(tmp_path / "machine").startswith("1 failed, 1 passed, 1 retried in ")
    assert outcome(tmp_path / "records").startswith("3 failed in ")
