"""Two programs at one run or one database: nothing is measured twice, nothing measured is lost."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.test_run import COMMAND, Quiet, begun
from tests.targets.support import HONEST
from torchstone.conductor import Settings
from torchstone.lab import engines, recording
from torchstone.lab.metrics import unmeasured
from torchstone.lab.recording import Recorder
from torchstone.lab.run import describe_run, resume_run, start_run
from torchstone.lab.run_plan import RunRequest, make_plan
from torchstone.machine.processes import usable_cores
from torchstone.records import Conditions, Estimate, Outcome, Run, UsageError
from torchstone.store import StoreBusyError, engine, open_store
from torchstone.store.heartbeat import running_ids, start_heartbeat
from torchstone.store.location import locate

HELD_S = 1.0
BUSY_S = 0.1
ESTIMATE = Estimate("floor", 1.01, (1.0, 1.02), 0.95, 4)


class Told(Quiet):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def asked(tmp_path: Path) -> RunRequest:
    suite = tmp_path / "toys.toml"
    models = "".join(f'[[model]]\nname = "{n}"\ntarget = "{HONEST}"\n' for n in ("one", "two"))
    suite.write_text(f'name = "toys"\n{models}')
    settings = Settings(budget_s=0.2, replicates=1)
    return RunRequest((str(suite),), variants=("eager",), label="night", settings=settings)


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "kept.db")


def done(db: str, run: Run) -> set[int]:
    with open_store(db, read_only=True) as store:
        return store.done_positions(run.id)


# Somebody else at it


def test_a_run_that_is_being_measured_is_not_gone_on_with(asked: RunRequest, db: str) -> None:
    run = begun(asked, db)
    with start_heartbeat(locate(db), run.id):
        with pytest.raises(UsageError, match=f"is being measured now, by process {os.getpid()}"):
            resume_run(run.id, db, Quiet(), total_budget_s=0.0)
        assert running_ids(locate(db)) == {run.id}  # the sign of the other is left alone
    assert resume_run(run.id, db, Quiet(), total_budget_s=0.0).stopped_by == "total budget"


@pytest.mark.parametrize(
    ("living", "wanted", "joins"),
    [
        ("1/2", (2, 2), True),
        ("1/2", (1, 2), False),
        ("1/2", (2, 3), False),
        ("1/2", None, False),
        ("", (1, 2), False),
    ],
)
def test_only_another_shard_of_as_many_joins(
    asked: RunRequest, db: str, living: str, wanted: tuple[int, int] | None, joins: bool
) -> None:
    run = begun(asked, db)
    with start_heartbeat(locate(db), run.id, living):
        if joins:
            end = resume_run(run.id, db, Quiet(), wanted, total_budget_s=0.0)
            assert end.stopped_by == "total budget"
            return
        with pytest.raises(UsageError, match="is being measured now"):
            resume_run(run.id, db, Quiet(), wanted, total_budget_s=0.0)


def test_a_shard_is_not_started_twice(asked: RunRequest, db: str) -> None:
    run = describe_run(asked, make_plan(asked, usable_cores()), COMMAND, (1, 2))
    with start_heartbeat(locate(db), run.id, "1/2"):
        with pytest.raises(UsageError, match=f"{run.id} is being measured now"):
            start_run(asked, COMMAND, db, Quiet(), (1, 2), total_budget_s=0.0)
        assert not Path(db).exists()
        end = start_run(asked, COMMAND, db, Quiet(), (2, 2), total_budget_s=0.0)
    assert end.view.run.id == run.id


def test_a_case_that_another_program_stored_is_told(asked: RunRequest, db: str) -> None:
    run, told = begun(asked, db), Told()
    rows = [
        (at, unmeasured(case, Outcome.ERROR, "it broke", ())) for at, case in enumerate(run.plan)
    ]
    recorder = Recorder(db, events=told)
    assert len(recorder.add_cases(run.id, None, rows[:1])) == 1
    assert recorder.add_cases(run.id, None, rows) == []
    assert told.notes == [
        f"Another process has stored {run.plan[0].key.name} meanwhile; what was measured here is "
        "not kept."
    ]
    assert done(db, run) == {0}


# A database that is held


@contextmanager
def held(db: str, seconds: float | None) -> Iterator[None]:
    """Another program holds the database, for so long or to the end of the block."""
    taken, give_up = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(db, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            taken.set()
            give_up.wait(seconds)
            other.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(120)
    try:
        yield
    finally:
        give_up.set()
        thread.join()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", BUSY_S)
    monkeypatch.setattr(recording, "PAUSE_S", 0.01)


@pytest.mark.usefixtures("hasty")
@pytest.mark.slow
def test_a_measured_case_waits_for_a_database_that_is_held(
    asked: RunRequest, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, told = begun(asked, db), Told()
    measure = engines.measure_group
    with ExitStack() as stack:

        def measured(*words: Any) -> Any:
            found = measure(*words)
            stack.enter_context(held(db, HELD_S))
            return found

        monkeypatch.setattr(engines, "measure_group", measured)
        end = resume_run(run.id, db, told)
    assert end.stopped_by == "done"
    assert [case.outcome.value for case in end.view.complete] == ["ok", "ok"]
    assert len(told.notes) == 2
    assert all("is held by another program. Trying again" in note for note in told.notes)


@pytest.mark.usefixtures("hasty")
def test_what_is_known_of_the_machine_is_waited_for_as_well(asked: RunRequest, db: str) -> None:
    begun(asked, db)
    told = Told()
    recorder = Recorder(db, events=told)
    with held(db, HELD_S):
        recorder.remember_aa_floor("machine", Conditions(1, "keep", "ms"), 0.01, ESTIMATE)
    assert recorder.aa_floor("machine", Conditions(1, "keep", "ms")) is not None
    assert len(told.notes) == 1


def test_what_could_not_be_remembered_of_the_machine_is_told(tmp_path: Path) -> None:
    told = Told()
    recorder = Recorder(str(tmp_path / "none.db"), events=told)
    with recorder.collect_errors("The floor was not kept"):
        raise OSError("No space left on device")
    with recorder.collect_errors("The peaks were not kept"):
        pass
    assert told.notes == ["The floor was not kept: No space left on device."]


@pytest.mark.usefixtures("hasty")
def test_waiting_has_an_end(asked: RunRequest, db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, told = begun(asked, db), Told()
    monkeypatch.setattr(recording, "PATIENCE_S", 0.5)
    row = unmeasured(run.plan[0], Outcome.ERROR, "it broke", ())
    with held(db, None), pytest.raises(StoreBusyError):
        Recorder(db, events=told).add_cases(run.id, None, [(0, row)])
    assert len(told.notes) == 1
    assert done(db, run) == set()
