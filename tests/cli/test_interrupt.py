"""Ctrl-C keeps what was measured; `kill -9` leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.explain.synthetic import calibration
from tests.targets import support
from tests.targets.support import HONEST, ROOT, eventually, marked, target
from torchstone.machine import folders
from torchstone.machine.calibrate import fingerprint
from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.machine.software import machine_id
from torchstone.store import open_store

MANY_TURNS = ("--budget", "60s", "--replicates", "20")


def start(*words: str) -> subprocess.Popen[str]:
    """The command line, with Ctrl-C as a terminal would leave it."""
    return subprocess.Popen(
        [sys.executable, "-c", "from torchstone.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        # A run in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def workers(mark: str, parent: int) -> list[int]:
    return [pid for pid in marked(mark) if pid != parent]


def begin_turns(process: subprocess.Popen[str], mark: str) -> None:
    """Wait until both arms' measuring processes are there together."""
    assert eventually(lambda: len(workers(mark, process.pid)) >= 2, 240)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_an_interrupt_stores_what_there_is(
    tmp_path: Path,
    no_survivors: str,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
) -> None:
    db, temporary = tmp_path / "kept.db", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = start("bench", HONEST, target("honest", "make_slow"), *MANY_TURNS, "--db", str(db))
    assert process.stderr is not None
    assert any("provisional" in line and "(1 process)" in line for line in process.stderr)
    process.send_signal(number)
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, err
    assert list(temporary.iterdir()) == []
    assert "Traceback" not in err
    assert "make" in out
    with open_store(str(db)) as store:
        result = store.load("last")
    assert result.method.stopped_by == "interrupt"
    assert all(arm.outcome.value == "ok" for arm in result.arms)
    assert all(arm.turns for arm in result.arms)


def test_an_interrupt_while_nothing_is_measured_yet(tmp_path: Path, no_survivors: str) -> None:
    process = start("bench", HONEST, "--db", str(tmp_path / "kept.db"))
    assert eventually(lambda: bool(workers(no_survivors, process.pid)), 240)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Interrupted before a sample was taken." in out
    assert "torchstone show" not in out  # nothing was measured, so nothing is kept as `last`
    assert not (tmp_path / "kept.db").exists()


def test_an_interrupt_before_there_is_anything_to_draw(tmp_path: Path, no_survivors: str) -> None:
    db = str(tmp_path / "kept.db")
    ceilings = calibration(
        machine_id=machine_id(describe_cpu(), cache_sizes(), memory_bytes()),
        fingerprint=fingerprint("cpu"),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    with open_store(db) as store:
        store.save_calibration(ceilings)
    process = start("explain", HONEST, "--roofline", "--db", db)
    assert eventually(lambda: bool(workers(no_survivors, process.pid)), 240)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    with open_store(db) as store:
        assert store.count() == 0


def test_workers_die_with_a_conductor_that_is_killed_and_its_folders_with_the_next_start(
    tmp_path: Path, no_survivors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    process = start("bench", HONEST, target("honest", "make_slow"), *MANY_TURNS, "--no-save")
    begin_turns(process, no_survivors)
    process.kill()
    process.communicate(timeout=240)
    assert eventually(lambda: not support.marked(no_survivors), 120)
    left = set(temporary.glob("torchstone-*"))
    assert left  # nobody could remove them
    mine = temporary / "torchstone-mine"
    mine.mkdir()
    with folders.own_folder() as folder:
        assert set(temporary.glob("torchstone-*")) == {folder, mine}
