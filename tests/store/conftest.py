"""Real files and real processes for the store's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "src"
sys.path.insert(0, str(HERE))  # for `store_cases`


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def python_env() -> dict[str, str]:
    """The environment of a child process that can import the package."""
    path = os.pathsep.join([str(SOURCES), str(HERE)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


Writer = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def writer(python_env: dict[str, str]) -> Iterator[Writer]:
    """Start a process that saves results; it says `ready` and waits for a line on stdin."""

    started: list[subprocess.Popen[str]] = []

    def start(db: Path, name: str, count: int, samples: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "store_cases.py"), str(db), name, str(count), str(samples)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=python_env,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()  # does nothing to one that has ended
        process.communicate()
