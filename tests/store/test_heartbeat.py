"""The sign of life: real processes that hold it, are killed, race each other, and lie."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchstone.store import heartbeat
from torchstone.store.heartbeat import Part, folder_of, progress, running_ids, start_heartbeat
from torchstone.store.location import Location

HOLD = """
import subprocess, sys
from pathlib import Path
from torchstone.store.heartbeat import start_heartbeat

db, run, shard, done = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
with start_heartbeat(db, run, shard) as sign:
    sign.now(f"toys/model{done}", done, 10)
    if "child" in sys.argv:
        child = subprocess.Popen(["sleep", "60"])
        print(child.pid, flush=True)
    print("held", flush=True)
    sys.stdin.readline()
"""

FLICKER = """
import sys
from pathlib import Path
from torchstone.store.heartbeat import start_heartbeat

with start_heartbeat(Path(sys.argv[1]), "run-1") as sign:
    print("held", flush=True)
    for number in range(int(sys.argv[2])):
        sign.now("x" * (number % 400), number, 10**6)
    print("done", flush=True)
    sys.stdin.readline()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(python_env: dict[str, str]) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def started(script: str, *words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=python_env,
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_go(process: subprocess.Popen[str]) -> None:
    process.communicate("go\n", timeout=240)
    assert process.returncode == 0


def files(db: Path) -> list[str]:
    return sorted(os.listdir(folder_of(db))) if folder_of(db).exists() else []


def test_a_killed_program_is_dead_at_once_and_the_next_one_cleans_up(
    db: Path, start: Start
) -> None:
    assert running_ids(db) == frozenset()
    holder = start(HOLD, db, "run-1", "", 3)
    assert said(holder) == "held"
    assert running_ids(db) == running_ids(Location(db)) == {"run-1"}
    seen = progress(db, "run-1")
    assert seen is not None
    (part,) = seen.parts
    assert (part.pid, part.case, part.shard) == (holder.pid, "toys/model3", "")
    assert (seen.done, seen.planned) == (3, 10)
    assert abs(time.time() - part.started_s) < 60
    assert part.started_s <= part.since_s <= time.time()
    assert progress(db, "run") is None

    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert len(files(db)) == 1
    assert running_ids(db) == frozenset()
    assert progress(db, "run-1") is None
    with start_heartbeat(db, "run-2"):
        assert running_ids(db) == {"run-2"}
        assert len(files(db)) == 1
    assert not folder_of(db).exists()


def test_shards_of_one_run_live_and_die_by_themselves(db: Path, start: Start) -> None:
    one, two = start(HOLD, db, "run-1", "1/2", 2), start(HOLD, db, "run-1", "2/2", 5)
    assert said(one) == said(two) == "held"
    seen = progress(db, "run-1")
    assert seen is not None
    assert {(part.pid, part.shard, part.done) for part in seen.parts} == {
        (one.pid, "1/2", 2),
        (two.pid, "2/2", 5),
    }
    assert (seen.done, seen.planned) == (7, 20)
    assert [part.started_s for part in seen.parts] == sorted(p.started_s for p in seen.parts)
    one.kill()
    one.wait()
    assert running_ids(db) == {"run-1"}
    left = progress(db, "run-1")
    assert left is not None
    assert [part.shard for part in left.parts] == ["2/2"]
    let_go(two)
    assert running_ids(db) == frozenset()


def test_what_a_killed_program_started_does_not_keep_it_alive(db: Path, start: Start) -> None:
    holder = start(HOLD, db, "run-1", "", 0, "child")
    child = int(said(holder))
    assert said(holder) == "held"
    holder.kill()
    holder.wait()
    try:
        os.kill(child, 0)  # it outlives its parent
        assert running_ids(db) == frozenset()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_change_is_never_seen_half_done_nor_swept_away(db: Path, start: Start) -> None:
    changes = 800
    writer = start(FLICKER, db, changes)
    assert said(writer) == "held"
    over = threading.Event()

    def sweep() -> None:
        while not over.is_set():
            heartbeat._sweep(folder_of(db))

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    looks, last = 0, -1
    try:
        while last < changes - 1:
            seen = progress(db, "run-1")
            assert seen is not None, f"dead at look {looks}, after change {last}"
            (part,) = seen.parts
            if part.planned:  # before the first change there is nothing to tell
                assert part.planned == 10**6
                assert part.done >= last
                assert len(part.case) == part.done % 400
                last = part.done
            looks += 1
    finally:
        over.set()
        sweeper.join()
    assert looks > 10
    let_go(writer)
    assert not folder_of(db).exists()


def put(db: Path, text: str | bytes, run: str = "run-1") -> int:
    """A file as a stranger would write it, locked."""
    folder_of(db).mkdir(exist_ok=True)
    path = folder_of(db) / f"{run}+1-2.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        "[1]",
        "[" * 5000,
        '{"case": "' + "x" * 10**6 + '"}',
        json.dumps({"pid": -1, "started_s": "now", "case": 3, "done": True, "planned": 10**30}),
        '{"since_s": NaN, "started_s": 1e400}',
    ],
)
def test_the_lock_is_believed_and_the_words_are_not(db: Path, text: str | bytes) -> None:
    handle = put(db, text)
    try:
        assert running_ids(db) == {"run-1"}
        seen = progress(db, "run-1")
        assert seen is not None
        assert seen.parts == (Part(),)
    finally:
        os.close(handle)
    assert running_ids(db) == frozenset()


def test_long_words_are_cut(db: Path) -> None:
    handle = put(db, json.dumps({"case": "x" * 3000, "done": 2, "other": 1}))
    try:
        seen = progress(db, "run-1")
        assert seen is not None
        assert seen.parts == (Part(case="x" * heartbeat.LONGEST, done=2),)
    finally:
        os.close(handle)


def test_what_is_no_file_is_passed_by_and_left_alone(db: Path, tmp_path: Path) -> None:
    folder = folder_of(db)
    folder.mkdir()
    os.mkfifo(folder / "run-1+1-1.json")  # opening it would wait forever
    (folder / "run-2+1-1.json").mkdir()
    kept = tmp_path / "kept"
    kept.write_text("{}")
    (folder / "run-3+1-1.json").symlink_to(kept)
    (folder / "notes.txt").write_text("mine")
    (folder / "no-mark.json").write_text("{}")  # dead by our rules, and named like ours
    with start_heartbeat(db, "run-4"):
        assert running_ids(db) == {"run-4"}
    assert kept.exists()
    assert files(db) == ["notes.txt", "run-1+1-1.json", "run-2+1-1.json", "run-3+1-1.json"]


def test_a_young_part_of_a_file_is_left_to_its_owner(db: Path) -> None:
    folder = folder_of(db)
    folder.mkdir()
    young, old = folder / ".part-young", folder / ".part-old"
    for path in (young, old):
        path.write_text("{")
    hour_ago = time.time() - 3600
    os.utime(old, (hour_ago, hour_ago))
    with start_heartbeat(db, "run-1"):
        assert young.exists()
        assert not old.exists()
        assert running_ids(db) == {"run-1"}


@pytest.mark.parametrize("run_id", ["01J-abc", "a+b/../c", "..", ".part-x", "ü 1", "%2B", "a" * 60])
def test_any_id_comes_back_as_it_is(db: Path, run_id: str) -> None:
    with start_heartbeat(db, run_id) as sign:
        sign.now("case")
        assert running_ids(db) == {run_id}
        assert progress(db, run_id) is not None
    assert [path.name for path in db.parent.iterdir()] == []


@pytest.mark.parametrize("kind", ["a file in its place", "no folder above", "a name too long"])
def test_without_a_place_there_is_no_sign_and_no_failure(tmp_path: Path, kind: str) -> None:
    db = tmp_path / "no" / "such.db" if kind == "no folder above" else tmp_path / "results.db"
    if kind == "a file in its place":
        folder_of(db).write_text("mine")
    with start_heartbeat(db, "x" * 400 if kind == "a name too long" else "run-1") as sign:
        sign.now("case", 1, 2)
        assert running_ids(db) == frozenset()
    if kind == "a file in its place":
        assert folder_of(db).read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_in_a_folder_that_may_not_be_written_there_is_no_sign(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with start_heartbeat(tmp_path / "results.db", "run-1") as sign:
            sign.now("case")
            assert running_ids(tmp_path / "results.db") == frozenset()
    finally:
        tmp_path.chmod(0o755)


def test_a_folder_that_vanishes_comes_back_with_the_next_change(db: Path) -> None:
    with start_heartbeat(db, "run-1") as sign:
        for path in folder_of(db).iterdir():
            path.unlink()
        folder_of(db).rmdir()
        assert running_ids(db) == frozenset()
        sign.now("case")
        assert running_ids(db) == {"run-1"}
