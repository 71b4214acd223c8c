"""Real files and real processes for the store's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "src"
sys.path.insert(0, str(HERE))  # for `store_cases` and `store_runs`


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
def started(python_env: dict[str, str]) -> Iterator[Writer]:
    """Start one of the scripts here; it says `ready` and waits for a line on stdin."""

    processes: list[subprocess.Popen[str]] = []

    def start(script: str, *words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(HERE / script), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=python_env,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()  # does nothing to one that has ended
        process.communicate()


@pytest.fixture
def writer(started: Writer) -> Writer:
    """Start a process that saves results: database, name, count, samples."""
    return partial(started, "store_cases.py")


@pytest.fixture
def run_writer(started: Writer) -> Writer:
    """Start a process that stores cases of a run: database, run, cases, first, step."""
    return partial(started, "store_runs.py")
