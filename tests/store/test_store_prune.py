"""Old samples removed: the record says so, everything else stays, and nothing else can change."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import make_result
from store_history import DAY_S, FIRST_S, night_run
from store_runs import derive, fill, make_case, make_run, wanted

from torchstone.records import Evaluation, Result, UsageError, from_data, to_data
from torchstone.store import CorruptResultError, PruneReport, Store, open_store
from torchstone.store.results import bare

COMMAND = ("torchstone", "db", "prune", "--older-than", "90d")
CREATED_S = 1_794_772_800.0  # 2026-11-15T20:00:00, of `make_run`
LATER = CREATED_S + DAY_S


def prune(store: Store, before_s: float = LATER, **more: int) -> PruneReport:
    return store.prune(before_s, COMMAND, "0.1", **more)


@pytest.fixture
def filled(db: Path) -> Path:
    with open_store(str(db)) as store:
        fill(store, make_run(cases=6), range(6))
        store.save(make_result("alone"))
    return db


def test_a_thinned_result_says_so_and_keeps_the_rest(filled: Path) -> None:
    run = make_run(cases=6)
    with open_store(str(filled)) as store:
        whole = {i: store.load(f"run-1.{i}") for i in (0, 1, 2, 3, 4)}
        groups, view = store.run_groups(run.id), store.run_view(run.id)
        report = prune(store)
        assert (report.runs, report.results, report.trial) == (1, 5, False)
        assert report.damaged == ()
        for i, before in whole.items():
            after = store.load(f"run-1.{i}")
            assert after.pruned is not None
            assert after.pruned.command == COMMAND
            assert after.pruned.version == "0.1"
            assert after.pruned.created[:2] == "20"
            assert after.pruned.samples > 0
            assert to_data(replace(after, pruned=None)) == to_data(bare(before))
            assert not any(arm.turns for arm in after.arms)
            assert after.comparisons == before.comparisons
            assert after.checks == before.checks
        assert store.run_view(run.id) == view
        assert store.run_view(run.id).cases == wanted(run, range(6))
        assert store.run_groups(run.id) == groups
        # A result that belongs to no run is somebody's own.
        assert store.load("alone") == make_result("alone")


@pytest.mark.sqlite_only
def test_the_number_of_samples_and_bytes_is_true(filled: Path) -> None:
    with open_store(str(filled)) as store:
        count = sum(
            len(part)
            for i in (0, 1, 2, 3, 4)
            for arm in store.load(f"run-1.{i}").arms
            for part in (
                *(turn.wall_ns for turn in arm.turns),
                *(turn.cpu_ns for turn in arm.turns),
                *(turn.probe_ns for turn in arm.turns),
                *(one.warm_up.wall_ns for one in arm.replicates),
            )
        )
        before = _content(filled)
        report = prune(store)
        assert report.samples == count
        assert report.bytes == before - _content(filled) > 0
        assert sum(store.load(f"run-1.{i}").pruned.samples for i in range(5)) == count  # type: ignore[union-attr]


def _content(db: Path) -> int:
    with closing(sqlite3.connect(db)) as raw:
        (documents,) = raw.execute("SELECT sum(length(document)) FROM result").fetchone()
        (samples,) = raw.execute("SELECT sum(length(samples)) FROM measurement").fetchone()
        return int(documents + samples)


def test_a_trial_changes_nothing_and_doing_it_again_adds_nothing(filled: Path) -> None:
    with open_store(str(filled)) as store:
        trial = prune(store, trial=True)
        assert (trial.runs, trial.results, trial.trial) == (1, 5, True)
        assert store.load("run-1.0") == make_case(make_run(), 0)[0]
        done = prune(store)
        assert done.bytes >= trial.bytes > 0
        told = store.load("run-1.0").pruned
        again = prune(store)
        assert (again.runs, again.results, again.bytes) == (0, 0, 0)
        assert store.load("run-1.0").pruned == told


def test_only_old_runs_are_thinned_and_one_in_so_many_stays(db: Path) -> None:
    with open_store(str(db)) as store:
        for night in (3, 0, 1, 2, 4, 5):
            _with_result(store, night, "main")
        _with_result(store, 0, "fix")
        undated = replace(make_run("undated", 2), created="some day")
        fill(store, undated, [0])
        report = prune(store, FIRST_S + 5 * DAY_S, keep_every=3)
        gone = [i for i in range(6) if store.load(f"r-main-{i}").pruned]
        assert gone == [1, 2, 4]  # of each branch the first, the fourth, ...; night 5 is too new
        assert store.load("r-fix-0").pruned is None
        assert (report.runs, report.kept_runs) == (3, 3)
        assert store.load("undated.0").pruned is None  # its age is not known
        _with_result(store, 6, "main")
        prune(store, FIRST_S + 9 * DAY_S, keep_every=3)  # later it is still the same ones that stay
        left = [i for i in range(7) if not store.load(f"r-main-{i}").pruned]
        assert left == [0, 3, 6]


def _with_result(store: Store, night: int, branch: str) -> None:
    run = night_run(night, branch)
    run = replace(run, plan=run.plan[:1])
    _, figures = make_case(make_run(), 0)
    store.begin_run(run)
    result = make_result(f"r-{branch}-{night}")
    store.add_cases(run.id, result, [(0, replace(figures, key=run.plan[0].key))])


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE measurement SET samples = x'00'",
        "UPDATE result SET document = x'00'",
        "UPDATE result SET label = 'x'",
        "UPDATE result SET document = x'00', label = 'x' WHERE seq = 1",
        "UPDATE measurement SET samples = x'00', arm = 'x' WHERE result = 1",
        "UPDATE measurement SET samples = x'00' WHERE result = 2",
        "UPDATE measurement SET samples = zeroblob(100000) WHERE result = 1",
        "UPDATE result SET document = zeroblob(5) WHERE seq = 1",
        "DELETE FROM result",
        "DELETE FROM measurement",
        "UPDATE pruned SET command = '[]'",
        "DELETE FROM pruned",
        "INSERT OR REPLACE INTO pruned SELECT * FROM pruned",
    ],
)
def test_the_file_itself_refuses_every_other_change(db: Path, change: str) -> None:
    with open_store(str(db)) as store:
        fill(store, make_run(), [0, 1])
        prune(store, FIRST_S)  # nothing is that old
    with closing(sqlite3.connect(db)) as raw, raw:
        _announce(raw)  # the first result may go, but only as was announced
    refused = pytest.raises(sqlite3.IntegrityError, match=r"torchstone: .* is append-only")
    with closing(sqlite3.connect(db)) as raw, refused:
        raw.execute(change)


def _announce(raw: sqlite3.Connection) -> None:
    raw.execute("INSERT INTO pruned VALUES (1, '', '[]', '', 0, 0, 1, '')")


@pytest.mark.sqlite_only
def test_what_is_left_is_guarded_too(filled: Path) -> None:
    with open_store(str(filled)) as store:
        prune(store)
    once = pytest.raises(sqlite3.IntegrityError, match="append-only")
    with closing(sqlite3.connect(filled)) as raw, once:
        raw.execute("UPDATE result SET document = zeroblob(length(document)) WHERE seq = 1")
    with closing(sqlite3.connect(filled)) as raw, raw:
        raw.execute("UPDATE measurement SET samples = x'00' WHERE result = 1")  # it is smaller
    with open_store(str(filled)) as store:
        with pytest.raises(CorruptResultError, match="not those that were saved"):
            store.load("run-1.0")
        assert store.load("run-1.1").pruned is not None


@pytest.mark.sqlite_only
def test_a_damaged_result_is_left_as_it_is_and_named(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as raw, raw:
        (trigger,) = raw.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'measurement_no_update'"
        ).fetchone()
        raw.execute("DROP TRIGGER measurement_no_update")
        raw.execute("UPDATE measurement SET samples = x'0178' WHERE result = 2")
        raw.execute(trigger)
    with open_store(str(filled)) as store:
        report = prune(store)
        assert report.damaged == ("run-1.1",)
        assert report.results == 4
        assert store.load("run-1.0").pruned is not None


def test_a_thinned_result_is_neither_judged_nor_derived_anew(filled: Path) -> None:
    run = make_run(cases=6)
    with open_store(str(filled)) as store:
        prune(store)
        before = store.run_view(run.id)
        result = store.load("run-1.0")
        evaluation = Evaluation("2027-01-01", "0.2", (), ())
        with pytest.raises(UsageError, match="cannot be evaluated again"):
            store.add_evaluation(result, evaluation, derive)
        rebuilt = store.rebuild(derive, every=True)
        assert (rebuilt.figures, rebuilt.summaries) == (0, 1)  # `alone` has its samples
        assert store.run_view(run.id) == before
        assert store.load("run-1.0") == result


def test_a_thinned_result_moves_to_another_database(filled: Path, tmp_path: Path) -> None:
    with open_store(str(filled)) as store:
        whole = store.load("run-1.0")
        prune(store)
        pruned = store.load("run-1.0")
        assert from_data(Result, to_data(pruned)) == pruned
        with open_store(str(tmp_path / "copy.db")) as copy:
            assert copy.merge_run(store, "run-1") == 6
            moved = copy.load("run-1.0")
            assert moved.pruned == pruned.pruned
            assert copy.merge_run(store, "run-1") == 0
        with open_store(str(tmp_path / "other.db")) as other:  # it has the whole one already
            other.save(whole)
            assert other.merge_run(store, "run-1") == 6
            assert other.load("run-1.0") == whole
        with open_store(str(tmp_path / "third.db")) as third:
            third.save(replace(make_result("run-1.0", seed=5), label="another"))
            with pytest.raises(UsageError, match="Another result"):
                third.merge_run(store, "run-1")


@pytest.mark.sqlite_only
def test_the_file_can_be_made_smaller(db: Path) -> None:
    run = make_run(cases=30)
    with open_store(str(db)) as store:
        store.begin_run(run)
        for i in range(29):
            result = make_result(f"run-1.{i}", turns=40, samples=30, seed=i)
            figures = replace(make_case(run, 0)[1], key=run.plan[i].key)
            store.add_cases(run.id, result, [(i, figures)])
        report = prune(store)
        freed = store.size().free_bytes
        assert freed > report.bytes / 2
        assert store.compact() > report.bytes / 2
        assert store.size().free_bytes == 0
        assert store.load("run-1.3").pruned is not None
    with closing(sqlite3.connect(db)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_reading_only_refuses(filled: Path) -> None:
    with open_store(str(filled), read_only=True) as store:
        for call in (lambda: prune(store), store.compact, lambda: store.rebuild(derive)):
            with pytest.raises(UsageError, match="reading only"):
                call()
