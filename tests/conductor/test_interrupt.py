"""Ctrl-C ends workers at once, and a second one on its heels leaves none of them behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.targets.support import HONEST, alive, run_arms, settings
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.solo import solo_pass
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import WorkerProcess, patience
from torchstone.records import ArmSpec

SLEEPS = "import time\ndef fn():\n    time.sleep(600)\n"


@pytest.fixture
def busy(tmp_path: Path) -> ArmSpec:
    """An arm whose first call takes longer than anybody waits."""
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    return ArmSpec("busy", f"{tmp_path / 'sleeps.py'}:fn()")


@contextmanager
def pressed_after(seconds: float) -> Iterator[None]:
    """Ctrl-C while the body runs, which must be ended by it."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        timer.cancel()


def test_an_interrupt_while_a_worker_is_stopped_still_kills_it(
    tmp_path: Path, busy: ArmSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchstone.conductor.worker.STOP_GRACE_S", 60.0)
    folder = tmp_path / "case"
    folder.mkdir()
    worker = Launcher(folder).start(busy)
    worker.tell({"do": "start", "arm": busy, "loops": 1, "probe_bits": None})
    worker.wait(patience(settings()))
    worker.tell({"do": "turn", "arm": busy.name, "warm_up": True, "seed": 0, "limit_s": 1.0})
    with pressed_after(0.3):
        worker.stop()
    assert worker.ended
    assert not alive(worker.pid)


def test_an_interrupt_of_the_solo_pass_waits_for_nobody(
    tmp_path: Path, busy: ArmSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(WorkerProcess, "stop", lambda worker: asked.append(worker.phase) or 0)
    folder = tmp_path / "case"
    folder.mkdir()
    state = ArmState(busy)
    with pressed_after(2.0):
        solo_pass(CaseContext(Launcher(folder), settings()), state)
    assert asked == []  # it was killed, as the fixture of this folder sees to
    assert state.solo is None


def test_an_interrupt_between_two_workers_kills_the_other_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, killed = WorkerProcess.stop, list[int]()

    def interrupted(worker: WorkerProcess) -> int:
        if worker.phase != "turn":
            return stop(worker)
        monkeypatch.setattr(WorkerProcess, "kill", counted)
        raise KeyboardInterrupt

    kill = WorkerProcess.kill

    def counted(worker: WorkerProcess) -> int:
        killed.append(worker.pid)
        return kill(worker)

    monkeypatch.setattr(WorkerProcess, "stop", interrupted)
    case = run_arms(ArmSpec("one", HONEST), ArmSpec("two", HONEST))
    assert case.stopped_by == "interrupt"
    assert len(killed) == 2
    assert all(arm.turns for arm in case.arms)
