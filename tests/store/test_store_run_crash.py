"""A run whose processes are killed, or race each other: every case whole, none twice."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from store_runs import make_case, make_run, wanted

from torchstone.stats import summarise
from torchstone.store import open_store

CASES = 60
Writer = Callable[..., "subprocess.Popen[str]"]


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()


def _check(db: Path, run_id: str) -> set[int]:
    """The file is sound and holds only whole cases, each once; which ones."""
    with closing(sqlite3.connect(db)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        rows = raw.execute("SELECT position, result FROM run_case").fetchall()
        figures = raw.execute("SELECT count(*) FROM case_fact").fetchone()[0]
    run = make_run(run_id, CASES)
    done = {position for position, _ in rows}
    results = [result for _, result in rows if result is not None]
    assert len(done) == len(rows) == figures
    assert len(set(results)) == len(results)
    with open_store(str(db)) as store:
        assert store.done_positions(run_id) == done
        assert store.count() == len(results)  # no result without its case
        assert store.run_view(run_id).cases == wanted(run, sorted(done))
        # What is derived went in with it.
        assert store.cases(run_id) == wanted(run, sorted(done))
        assert store.run_head(run_id).done == len(done)
        assert store.run_groups(run_id) == summarise(store.run_view(run_id).complete)
        for position in done:
            result, metrics_of = make_case(run, position)
            if result is not None:
                assert store.load(metrics_of.result_id) == result
    return done


def test_kill_dash_nine_in_a_loop_then_the_rest(db: Path, run_writer: Writer) -> None:
    rng = random.Random()
    rounds = [run_writer(db, "run-1", CASES, 0, 1) for _ in range(6)]
    last = run_writer(db, "run-1", CASES, 0, 1)
    told: set[int] = set()
    for number, process in enumerate(rounds):
        assert process.stdout is not None
        _go(process)
        if number:  # the first may die while it makes the file
            told.add(int(process.stdout.readline().split()[1]))
        time.sleep(rng.random() * 0.03)
        process.kill()
        rest, _ = process.communicate()
        if process.returncode == 0:
            break  # a quick machine
        assert process.returncode == -signal.SIGKILL
        told.update(int(line.split()[1]) for line in rest.split("\n")[:-1])
        if number:
            assert told <= _check(db, "run-1")
    assert len(told) >= 5
    _go(last)
    output, _ = last.communicate(timeout=240)
    assert last.returncode == 0
    finished = {int(line.split()[1]) for line in output.splitlines()}
    assert not finished & told  # nothing is done again
    assert _check(db, "run-1") == set(range(CASES))


@pytest.mark.slow
def test_two_writers_with_cases_of_their_own(db: Path, run_writer: Writer) -> None:
    # The file does not exist yet: they also race to make it and to begin the run.
    processes = [run_writer(db, "run-1", CASES, first, 2) for first in (0, 1)]
    for process in processes:
        _go(process)
    outputs = [process.communicate(timeout=240)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    for first, output in enumerate(outputs):
        assert output == [f"stored {i}" for i in range(first, CASES, 2)]
    assert _check(db, "run-1") == set(range(CASES))


def test_two_writers_with_the_same_cases(db: Path, run_writer: Writer) -> None:
    processes = [run_writer(db, "run-1", CASES, 0, 1) for _ in range(2)]
    for process in processes:
        _go(process)
    outputs = [process.communicate(timeout=240)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    words = [word for output in outputs for word in output[::2]]
    stored = [
        int(number)
        for output in outputs
        for word, number in zip(output[::2], output[1::2], strict=True)
        if word == "stored"
    ]
    assert sorted(stored) == list(range(CASES))  # each by one of them
    assert words.count("taken") <= CASES
    assert _check(db, "run-1") == set(range(CASES))
