"""Real processes for the machine's tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import torchstone

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(torchstone.__file__)))


def clean_env(**more: str) -> dict[str, str]:
    """The environment with the package on the path, and `more`."""
    return {**os.environ, "PYTHONPATH": SOURCE, **more}


def run(code: str, env: Mapping[str, str] | None = None, *start: str) -> str:
    """What a fresh interpreter prints for this code; its death fails the test.

    `start` is another interpreter and its flags.
    """
    done = subprocess.run(
        [*(start or (sys.executable,)), "-c", code],
        env=env or clean_env(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def eventually(condition: Callable[[], bool], limit_s: float = 60.0) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
