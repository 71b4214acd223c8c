"""A worker's process by itself: what keeps it from starting, how long it is waited for, its end."""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchstone.conductor import worker as worker_module
from torchstone.conductor.worker import ArmEnded, Spawn, WorkerProcess
from torchstone.records import ArmSpec, Outcome, TorchstoneError, UsageError

ANSWER = """
import json, os, struct, sys, time
time.sleep({seconds})
body = json.dumps({{"reply": 5}}).encode()
os.write(int(sys.argv[2]), struct.pack("!I", len(body)) + body)
time.sleep(600)
"""
DESCRIPTORS = Path("/proc/self/fd")


def started(folder: Path, *command: str) -> WorkerProcess:
    return WorkerProcess(ArmSpec("a", "nowhere.py:make"), Spawn(command), dict(os.environ), folder)


@contextmanager
def running(folder: Path, code: str) -> Iterator[WorkerProcess]:
    worker = started(folder, sys.executable, "-c", code)
    try:
        yield worker
    finally:
        worker.kill()


@contextmanager
def room_for_descriptors(count: int) -> Iterator[None]:
    """Nobody can open more than that many files."""
    free = [os.dup(0) for _ in range(count + 1)]
    for descriptor in free:
        os.close(descriptor)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="other systems do not list them")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6])
def test_a_machine_that_has_nothing_left_is_no_fault_of_the_arm(tmp_path: Path, count: int) -> None:
    """A `UsageError` would be kept as the model's own error, and never be tried again."""
    before = sorted(os.listdir(DESCRIPTORS))
    with room_for_descriptors(count), pytest.raises(TorchstoneError) as caught:
        started(tmp_path, sys.executable, "-c", "pass")
    assert not isinstance(caught.value, UsageError)
    assert caught.value.message == "No further process can be started: Too many open files."
    assert sorted(os.listdir(DESCRIPTORS)) == before


@pytest.mark.parametrize("kind", ["missing", "below a file", "not executable", "not a program"])
def test_an_interpreter_that_is_none_is_the_users_mistake(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "python"
    if kind != "missing":
        file.write_bytes(b"\x00\x01 nothing that could run")
        file.chmod(0o644 if kind == "not executable" else 0o755)
    command = file / "python" if kind == "below a file" else file
    before = len(os.listdir(DESCRIPTORS)) if DESCRIPTORS.exists() else 0
    with pytest.raises(UsageError, match=r"The interpreter .* cannot be started"):
        started(tmp_path, str(command))
    assert before == (len(os.listdir(DESCRIPTORS)) if DESCRIPTORS.exists() else 0)


@pytest.mark.parametrize("patience_s", [1000 * 3600.0, 1e300, math.inf])
def test_patience_may_be_longer_than_the_system_can_count(
    tmp_path: Path, patience_s: float
) -> None:
    with running(tmp_path, ANSWER.format(seconds=0)) as worker:
        assert worker.wait(lambda phase: patience_s) == 5


def test_long_patience_is_asked_for_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LONGEST_POLL_S", 0.01)
    with running(tmp_path, ANSWER.format(seconds=0.3)) as worker:
        assert worker.wait(lambda phase: 60.0) == 5
    with running(tmp_path, ANSWER.format(seconds=600)) as worker, pytest.raises(ArmEnded) as caught:
        worker.wait(lambda phase: 0.1)
    assert caught.value.outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(("number", "name"), [(11, "SIGSEGV"), (40, "signal 40")])
def test_every_signal_that_kills_is_an_end_with_a_name(
    tmp_path: Path, number: int, name: str
) -> None:
    """Real-time signals have none, but a program may die of them."""
    code = f"import os; os.kill(os.getpid(), {number})"
    with running(tmp_path, code) as worker, pytest.raises(ArmEnded) as caught:
        worker.wait(lambda phase: 60.0)
    assert caught.value.outcome is Outcome.CRASH
    assert caught.value.detail.signal == name
    assert caught.value.detail.message == f"killed by {name}"
