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
OF_FILES = (
    *("test_heartbeat", "test_store_crash", "test_store_migrate", "test_store_open"),
    *("test_store_plans", "test_store_run_crash", "test_store_samples", "test_store_size"),
)
"""Modules that look into the file or into what is beside it; `test_postgres` has their like."""
sys.path.insert(0, str(HERE))  # for `store_cases` and `store_runs`


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of the `db` run on both kinds of database, but for those that look into the file."""
    of_file = metafunc.module.__name__.rpartition(".")[2] in OF_FILES
    of_file = of_file or metafunc.definition.get_closest_marker("sqlite_only") is not None
    if "db" in metafunc.fixturenames and not of_file:
        metafunc.parametrize("db", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A database with nothing stored in it; `str` of it is its address."""
    if getattr(request, "param", "sqlite") == "postgresql":
        server = request.getfixturevalue("postgres")
        return str(server.database())
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
