"""The tests of `tensors_alone.py`, in a process of their own: every object of a process is looked
at for tensors, and beside the whole test suite each look takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ALONE = Path(__file__).with_name("tensors_alone.py")
TESTS = 9
"""How many it holds: a file that collects none must not pass."""


def test_tensors_at_a_peak_in_a_process_of_their_own() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run([*words, str(ALONE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TESTS} passed" in done.stdout
