"""What is kept of a run: figures that can be derived again, rows that cannot be changed."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import make_result
from store_runs import derive, fill, make_case, make_figures, make_run, statements, wanted

from torchstone.records import METRICS_DEFINITION, RUN_SCHEMA, RunView, UsageError
from torchstone.store import CorruptRunError, Store, open_store

NEXT = METRICS_DEFINITION + 1


def test_figures_are_derived_and_can_be_rebuilt(db: Path) -> None:
    run, other = make_run("one", cases=6), make_run("two", cases=3)
    with open_store(str(db)) as store:
        fill(store, run, [0, 1, 3, 5])
        fill(store, other, [0])
        assert store.rebuild(derive, every=True).figures == 4
        cases = store.run_view("one").cases
        told = [case.reason for case in cases[:3]]
        assert told == [f"one.{i} inductor" for i in (0, 1, 3)]
        assert cases[3] == make_figures(run, 5)  # without a result: as it was
        assert store.run_view("two").cases[0].reason == "two.0 inductor"
        with pytest.raises(ValueError, match="speak of"):
            store.rebuild(lambda *_: make_figures(run, 5), every=True)


@pytest.mark.sqlite_only
def test_a_lost_figure_is_named_and_rebuilt(db: Path) -> None:
    run = make_run()
    with open_store(str(db)) as store:
        fill(store, run, [0, 1])
        with closing(sqlite3.connect(db)) as raw, raw:
            raw.execute("DELETE FROM case_fact WHERE position = 1")
        with pytest.raises(CorruptRunError, match="case 1 has no figures"):
            store.run_view(run.id)
        assert store.rebuild(derive, every=True).figures == 2
        assert len(store.run_view(run.id).cases) == 2


@pytest.mark.sqlite_only
def test_the_newest_definition_known_here_is_shown(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchstone.store import case_rows as module

    run = make_run()
    with open_store(str(db)) as store:
        fill(store, run, [0, 5])
        store.rebuild(lambda r, p, a: replace(derive(r, p, a), definition=NEXT), every=True)
        assert store.run_view(run.id).cases[0] == make_case(run, 0)[1]  # it knows one less
        monkeypatch.setattr(module, "METRICS_DEFINITION", NEXT)
        assert store.run_view(run.id).cases[0].definition == NEXT
        assert store.run_view(run.id).cases[1].definition == METRICS_DEFINITION
        monkeypatch.undo()
        with closing(sqlite3.connect(db)) as raw, raw:
            raw.execute(f"DELETE FROM case_fact WHERE definition < {NEXT}")
        with pytest.raises(UsageError, match=rf"newer Torchstone \(figures of definition {NEXT}"):
            store.run_view(run.id)


def test_an_imported_run_carries_its_origin(db: Path) -> None:
    run = make_run("up", cases=5)
    cases = [make_figures(run, i) for i in (3, 0)]
    with open_store(str(db)) as store:
        made = store.import_run(run, cases, "inductor_timm.csv")
        assert made.origin == "inductor_timm.csv"
        assert store.run_view("up") == RunView(made, (cases[1], cases[0]))
        assert store.list_runs()[0].origin == "inductor_timm.csv"
        with pytest.raises(UsageError, match="A run up is already stored"):
            store.import_run(run, cases, "again.csv")
        for origin in ("", "here", "a\x1b[2J"):
            with pytest.raises(UsageError, match="cannot be an origin"):
                store.import_run(make_run("x"), [], origin)
        with pytest.raises(ValueError, match="plan"):
            store.import_run(make_run("y", cases=3), cases, "x.csv")
        with pytest.raises(UsageError, match="not printable"):
            store.import_run(make_run("z", label="\x07"), [], "x.csv")
        assert len(store.list_runs()) == 1


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE run SET label = 'x'",
        "DELETE FROM run",
        "INSERT OR REPLACE INTO run SELECT * FROM run",
        "UPDATE run_case SET outcome = 'ok'",
        "DELETE FROM run_case",
        "INSERT OR REPLACE INTO run_case SELECT * FROM run_case",
        "INSERT INTO run_case SELECT NULL, run, position, key, NULL, '', 'ok', '' FROM run_case",
    ],
)
def test_the_file_itself_refuses_changes_of_runs(db: Path, change: str) -> None:
    run = make_run()
    with open_store(str(db)) as store:
        fill(store, run, [0])
    refused = pytest.raises(sqlite3.IntegrityError, match=r"torchstone: .* is append-only")
    with closing(sqlite3.connect(db)) as raw, refused:
        raw.execute(change)
    with open_store(str(db)) as store:
        assert store.run_view(run.id) == RunView(run, wanted(run, [0]))


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    ("table", "change", "reason"),
    [
        ("run", "UPDATE run SET document = x'0178' WHERE id = 'bad'", "not those that were saved"),
        ("run", "UPDATE run SET document = 7 WHERE id = 'bad'", ""),
        (
            "run",
            "UPDATE run SET (document, digest) = (SELECT document, digest FROM run"
            " WHERE id = 'good') WHERE id = 'bad'",
            "its id is 'good'",
        ),
        ("run_case", "UPDATE case_fact SET outcome = 'well' WHERE run = 2", "case 0"),
        ("run_case", "UPDATE case_fact SET speedup = '<b>' WHERE run = 2", "case 0"),
        ("run_case", "UPDATE case_fact SET level = NULL WHERE run = 2", "case 0"),
        ("run_case", "UPDATE case_fact SET detail = 99 WHERE run = 2", "case 0"),
        ("run_case", "UPDATE case_fact SET series = 2 WHERE run = 2", "they speak of"),
        ("run_case", "UPDATE run_case SET position = 1 WHERE run = 2", "case 1 has no figures"),
        ("run_case", "UPDATE run_case SET position = 99 WHERE run = 2", "case 99"),
    ],
)
def test_a_damaged_run_is_named_and_the_others_are_readable(
    db: Path, table: str, change: str, reason: str
) -> None:
    good, bad = make_run("good"), make_run("bad")
    with open_store(str(db)) as store:
        fill(store, good, [0, 1])
        fill(store, bad, [0])
    with closing(sqlite3.connect(db)) as raw, raw:
        for trigger in ("no_update", "no_delete", "no_replace"):
            raw.execute(f"DROP TRIGGER {table}_{trigger}")
        raw.execute(change)
    with open_store(str(db)) as store:
        with pytest.raises(CorruptRunError, match="run bad is damaged") as caught:
            store.run_view("bad")
        assert reason in caught.value.message
        assert caught.value.exit_code == 2
        assert store.run_view("good") == RunView(good, wanted(good, [0, 1]))
        assert [run.id for run in store.list_runs()] == ["bad", "good"]


def test_a_run_of_a_newer_program_is_told(db: Path) -> None:
    with open_store(str(db)) as store:
        store.begin_run(replace(make_run(), schema=RUN_SCHEMA + 1))
        with pytest.raises(UsageError, match=rf"newer Torchstone \(schema {RUN_SCHEMA + 1}"):
            store.run_view("run-1")


def test_reading_only_refuses_to_write_runs(db: Path) -> None:
    run = make_run()
    with open_store(str(db)) as store:
        fill(store, run, [0])
        spare = open_store(str(db), read_only=True)
    calls: list[Callable[[Store], object]] = [
        lambda s: s.begin_run(run),
        lambda s: s.add_cases(run.id, None, [(1, make_figures(run, 1))]),
        lambda s: s.rebuild(derive),
        lambda s: s.import_run(make_run("x"), [], "x.csv"),
        lambda s: s.merge_run(spare, run.id),
    ]
    with open_store(str(db), read_only=True) as store, spare:
        for call in calls:
            with pytest.raises(UsageError, match="reading only"):
                call(store)


@pytest.mark.sqlite_only
def test_bytes_of_a_case(db: Path) -> None:
    """Run with `-s` to see the figures."""
    run = make_run(cases=60)
    with open_store(str(db)) as store:
        store.begin_run(run)
    before = db.stat().st_size
    told = alone = 0
    with open_store(str(db)) as store:
        for i in range(50):
            result = make_result(f"r{i}", replicates=4, turns=40, samples=12, seed=i)
            figures = replace(make_figures(run, i), result_id=result.id)
            told += store.add_cases(run.id, result, [(i, figures)])
    grown = db.stat().st_size - before
    with open_store(str(db.with_name("alone.db"))) as store:
        for i in range(50):
            alone += store.save(make_result(f"r{i}", replicates=4, turns=40, samples=12, seed=i))
    print(
        f"\na case takes {told / 50:.0f} bytes ({alone / 50:.0f} of them its result); "
        f"the file grew by {grown / 50:.0f} each"
    )
    assert told <= grown < 1.6 * told
    assert told - alone < 50 * 2_500  # figures and row: little beside the samples


def test_a_large_run_is_read_at_once(db: Path) -> None:
    """A thousand cases take a handful of queries, whatever their samples weigh."""
    run = make_run(cases=1000)
    order = list(range(1000))
    random.Random(1).shuffle(order)
    made = replace(run, origin="elsewhere")
    with open_store(str(db)) as store:
        store.import_run(run, [make_figures(run, i) for i in order], "elsewhere")
        seen = statements(store)
        cases = tuple(make_figures(run, i) for i in range(1000))
        assert store.run_view(run.id) == RunView(made, cases)
        assert len(seen) < 8
