"""Killed, interrupted, or in a crowd: what was saved stays, and stays whole."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from store_cases import make_result

from torchstone.records import Conditions
from torchstone.store import open_store

SAMPLES = 30
NAMES = ("left", "middle", "right")
Writer = Callable[..., "subprocess.Popen[str]"]


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()


def _sound(db: Path) -> None:
    raw = sqlite3.connect(db)
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    raw.close()


def _seed_of(result_id: str) -> int:
    return int(result_id.rpartition("-")[2])


def _check_all(db: Path, told: set[str]) -> set[str]:
    """Everything listed loads and is what was saved; everything told is there."""
    _sound(db)
    with open_store(str(db)) as store:
        stored = {s.id for s in store.list(limit=100_000)}
        assert told <= stored
        for name in stored:
            assert store.load(name) == make_result(name, samples=SAMPLES, seed=_seed_of(name))
    return stored


def test_kill_dash_nine_loses_nothing_that_was_saved(db: Path, writer: Writer) -> None:
    rng = random.Random()
    told: set[str] = set()
    rounds = [writer(db, f"round{i}", 0, SAMPLES) for i in range(5)]
    for round_number, process in enumerate(rounds):
        assert process.stdout is not None
        _go(process)
        # Some rounds die while the file is being made, some after a few results.
        if round_number:
            for _ in range(rng.randrange(1, 5)):
                told.add(process.stdout.readline().strip())
        time.sleep(rng.random() * (0.02 if round_number else 0.1))
        process.kill()
        rest, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL
        told.update(line for line in rest.split("\n")[:-1] if line)
    assert len(told) >= 5
    stored = _check_all(db, told)
    # A kill between the commit and the print leaves at most one untold result a round.
    assert len(stored - told) <= 5


def test_a_kill_while_the_file_is_made_leaves_a_usable_path(
    tmp_path: Path, python_env: dict[str, str]
) -> None:
    """Stopped for certain at each step of making the file, then opened again."""
    code = """
import os, signal, sys
from torchstone.store import engine, open_store, schema
import sqlalchemy
steps = int(sys.argv[2])
def step(*_):
    global steps
    steps -= 1
    if steps < 0:
        os.kill(os.getpid(), signal.SIGKILL)
sqlalchemy.event.listen(sqlalchemy.Engine, "after_cursor_execute", step)
open_store(sys.argv[1])
"""
    for step in (0, 3, 12):
        db = tmp_path / f"step{step}.db"
        done = subprocess.run([sys.executable, "-c", code, str(db), str(step)], env=python_env)
        assert done.returncode == -signal.SIGKILL
        with open_store(str(db)) as store:
            store.save(make_result("aa11"))
        _sound(db)


def test_a_kill_without_the_log_is_undone(db: Path, tmp_path: Path) -> None:
    """Where the file system allows no write-ahead log, a kill leaves a journal to roll back."""
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
    raw = sqlite3.connect(db, isolation_level=None)
    assert raw.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    raw.execute("PRAGMA cache_size = 2")  # so that half-done pages reach the file
    raw.execute("BEGIN IMMEDIATE")
    for i in range(200):
        raw.execute(
            "INSERT INTO aa_floor VALUES (NULL, 'm', 1, 'default', 'ms', 0.5, ?)", (f"{i:0500}",)
        )
    dead = tmp_path / "dead.db"
    for ending in ("", "-journal"):  # what a kill at this moment leaves
        shutil.copy(f"{db}{ending}", f"{dead}{ending}")
    raw.close()
    assert dead.stat().st_size > 100_000
    with open_store(str(dead)) as store:
        assert store.aa_floor("m", Conditions(1, "default", "ms")) is None
        assert store.load("last") == make_result("aa11")
    _sound(dead)


def test_writers_at_once_lose_nothing(db: Path, writer: Writer) -> None:
    # The file does not exist yet, so they also race to make it.
    processes = [writer(db, name, 12, SAMPLES) for name in NAMES]
    for process in processes:
        _go(process)
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    told = {line for output in outputs for line in output.split()}
    assert told == {f"{name}-{i}" for name in NAMES for i in range(12)}
    assert _check_all(db, told) == told


@pytest.mark.parametrize("read_only", [True, False])
def test_a_reader_is_not_held_up_by_a_writer(db: Path, read_only: bool) -> None:
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
    holder = sqlite3.connect(db, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    holder.execute("INSERT INTO aa_floor VALUES (1, 'm', 1, 'default', 'ms', 0.5, '{}')")
    with open_store(str(db), read_only=read_only) as store:
        assert store.load("last") == make_result("aa11")
        assert store.aa_floor("m", Conditions(1, "default", "ms")) is None  # not committed yet
        holder.execute("COMMIT")
        assert store.aa_floor("m", Conditions(1, "default", "ms")) == 0.5
    holder.close()


def test_reading_while_another_process_saves(db: Path, writer: Writer) -> None:
    with open_store(str(db)) as store:
        process = writer(db, "live", 30, SAMPLES)
        assert process.stdout is not None
        _go(process)
        seen = 0
        for line in process.stdout:
            name = line.strip()
            assert store.load(name) == make_result(name, samples=SAMPLES, seed=_seed_of(name))
            assert len(store.list(limit=1000)) > seen
            seen += 1
        assert process.wait(timeout=240) == 0
        assert seen == 30


def _statements_of_a_save(db: Path) -> int:
    count = 0

    def counted(*_: Any) -> None:
        nonlocal count
        count += 1

    with open_store(str(db)) as store:
        event.listen(store._engine, "before_cursor_execute", counted)
        store.save(make_result("counted"))
    return count


def test_an_interrupt_at_any_statement_leaves_all_or_nothing(db: Path) -> None:
    statements = _statements_of_a_save(db)
    assert statements >= 4
    kept: list[object] = []
    with open_store(str(db)) as store:
        for at in range(statements):
            left = at

            def interrupt(*_: Any) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt

            event.listen(store._engine, "after_cursor_execute", interrupt)
            with pytest.raises(KeyboardInterrupt) as caught:
                store.save(make_result(f"cut-{at}"))
            kept.append(caught)  # who saves while an interrupt is handled has its traceback alive
            event.remove(store._engine, "after_cursor_execute", interrupt)
            assert [s.id for s in store.list()] == ["counted"]
        store.save(make_result("after"))
        assert store.load("last") == make_result("after")
    _sound(db)


def test_ctrl_c_waits_until_a_save_is_done(db: Path) -> None:
    """The interrupt comes, but between saves: never inside a library that does not expect it."""

    def press(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with open_store(str(db)) as store:
        event.listen(store._engine, "after_cursor_execute", press)
        with pytest.raises(KeyboardInterrupt):
            store.save(make_result("whole"))
        assert signal.getsignal(signal.SIGINT) is handler
        event.remove(store._engine, "after_cursor_execute", press)
        assert store.load("last") == make_result("whole")


def test_saving_from_another_thread(db: Path) -> None:
    with open_store(str(db)) as store, ThreadPoolExecutor(4) as pool:
        list(pool.map(store.save, [make_result(f"t{i}") for i in range(12)]))
        assert len(store.list()) == 12


def test_real_interrupts_leave_the_store_usable(db: Path, python_env: dict[str, str]) -> None:
    code = """
import signal, sys
from store_cases import make_result
from torchstone.store import open_store
case = [make_result(f"r-{i}", samples=int(sys.argv[2]), seed=i) for i in range(40)]
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
with open_store(sys.argv[1]) as store:
    for i, result in enumerate(case):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + i * 0.0004)
            store.save(result)
            signal.setitimer(signal.ITIMER_REAL, 0)
            print("saved", result.id)
        except KeyboardInterrupt:
            print("cut", result.id)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(db), str(SAMPLES)],
        env=python_env,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 40
    assert any(word == "cut" for word, _ in lines)
    told = {name for word, name in lines if word == "saved"}
    _check_all(db, told)
