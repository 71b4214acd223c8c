"""A real `torchstone run` shows that it lives, what it measures, and that it is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.targets.support import HERE as TARGETS
from tests.targets.support import ROOT, eventually
from torchstone.store import open_store
from torchstone.store.heartbeat import Progress, folder_of, progress, running_ids

MAIN = "from torchstone.cli import main; main()"
MODELS = ("one", "two", "three", "four")
FAST = ("--variants", "eager", "--budget-per-case", "0.3s", "--replicates", "2")
PATIENCE_S = 120.0
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    models = "\n".join(
        f'[[model]]\nname = "{name}"\ntarget = "{TARGETS}/honest.py:make"\n' for name in MODELS
    )
    (tmp_path / "toys.toml").write_text(f'name = "toys"\n{models}')
    return tmp_path


@pytest.fixture
def start(here: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[bytes]] = []

    def started(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", *words, "--db", "kept.db"],
            cwd=here,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def parts(db: Path, run_id: str) -> dict[str, str]:
    """The case that each living shard measures."""
    seen = progress(db, run_id)
    return {part.shard: part.case for part in seen.parts if part.case} if seen else {}


def watched(db: Path, run_id: str, until: Callable[[Progress], bool]) -> Progress:
    found: list[Progress] = []

    def look() -> bool:
        seen = progress(db, run_id)
        if seen is not None and until(seen):
            found.append(seen)
        return bool(found)

    assert eventually(look, PATIENCE_S)
    return found[0]


@pytest.mark.slow
def test_a_run_lives_until_it_is_killed_and_again_when_it_is_resumed(
    here: Path, start: Start
) -> None:
    db = here / "kept.db"
    process = start("toys.toml", *FAST)
    assert eventually(lambda: bool(running_ids(db)), PATIENCE_S)
    (run_id,) = running_ids(db)
    seen = watched(db, run_id, lambda seen: seen.done >= 1)
    (part,) = seen.parts
    assert part.pid == process.pid
    assert (part.planned, part.shard) == (len(MODELS), "")
    assert part.case == f"toys/{MODELS[part.done]} inference fp32 eager"
    with open_store(str(db), read_only=True) as store:
        assert store.load_run("last").id == run_id
        assert len(store.done_positions(run_id)) >= part.done
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert running_ids(db) == frozenset()

    again = start("--resume", "last")
    seen = watched(db, run_id, lambda seen: bool(seen.parts[0].case))
    assert seen.parts[0].planned < len(MODELS)
    assert again.wait(PATIENCE_S) == 0
    assert running_ids(db) == frozenset()
    assert not folder_of(db).exists()


@pytest.mark.slow
def test_two_shards_at_once_are_one_living_run(here: Path, start: Start) -> None:
    db = here / "kept.db"
    one, two = (
        start("toys.toml", *FAST, "--label", "whole", "--shard", part) for part in ("1/2", "2/2")
    )
    assert eventually(lambda: bool(running_ids(db)), PATIENCE_S)
    (run_id,) = running_ids(db)
    seen = watched(db, run_id, lambda seen: {part.shard for part in seen.parts} == {"1/2", "2/2"})
    assert running_ids(db) == {run_id}
    assert {part.pid for part in seen.parts} == {one.pid, two.pid}
    os.killpg(one.pid, signal.SIGKILL)
    one.wait()
    if two.poll() is None:  # a quick machine may be through
        assert set(parts(db, run_id)) <= {"2/2"}
    assert two.wait(PATIENCE_S) == 0
    assert running_ids(db) == frozenset()


def test_an_interrupt_takes_the_sign_away(here: Path, start: Start) -> None:
    db = here / "kept.db"
    process = start("toys.toml", *FAST)
    assert eventually(lambda: bool(running_ids(db)), PATIENCE_S)
    (run_id,) = running_ids(db)
    watched(db, run_id, lambda seen: bool(seen.parts[0].case))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert not folder_of(db).exists()
