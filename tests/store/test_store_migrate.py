"""Databases of older versions, as their programs left them: read as they are, or brought up to
date."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event
from store_cases import failed_result, make_result
from store_runs import (
    fill,
    make_figures,
    make_run,
    make_version_1,
    make_version_3,
    make_version_4,
    make_version_5,
    version_3,
    wanted,
)

from torchstone.records import (
    ArmSpec,
    CaseFigures,
    Conditions,
    Profile,
    Run,
    RunView,
    Selection,
    UsageError,
    to_data,
)
from torchstone.stats import summarise
from torchstone.store import check_store, open_store, schema

OPEN = """
import os, signal, sys
import sqlalchemy
from torchstone.store import Store, open_store
steps = int(sys.argv[2])
def step(*_):
    global steps
    steps -= 1
    if steps == 0:
        os.kill(os.getpid(), signal.SIGKILL)
sqlalchemy.event.listen(sqlalchemy.Engine, "after_cursor_execute", step)
print("ready", flush=True)
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    print(len(store.list_runs()), store.count())
"""


def tables(db: Path) -> list[tuple[str, str, str]]:
    """Everything that the file's own catalogue says, in one order; a table by its columns, whose
    order does not matter."""
    with closing(sqlite3.connect(db)) as raw:
        every = raw.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()
        columns = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)'
        columns += " WHERE name <> 'allocator_share'"  # no longer written
        return [
            (kind, name, str(sorted(raw.execute(columns, (name,)))) if kind == "table" else sql)
            for kind, name, sql in every
        ]


NEW = (str(schema.SCHEMA), schema.SCHEMA)


def versions(db: Path) -> tuple[str, int]:
    with closing(sqlite3.connect(db)) as raw:
        (text,) = raw.execute("SELECT value FROM meta").fetchone()
        return text, raw.execute("PRAGMA user_version").fetchone()[0]


def check_old_content(db: Path) -> None:
    with open_store(str(db), read_only=True) as store:
        assert [s.id for s in store.list()] == ["bb22", "aa11"]
        # What that program measured, read by this one; records may have gained fields.
        for wanted in (make_result("aa11", turns=2, samples=2), failed_result("bb22")):
            method = replace(wanted.method, definition=1)
            assert to_data(store.load(wanted.id)) == to_data(replace(wanted, method=method))
        assert store.aa_floor("m", Conditions(1, "default", "ms")) == 0.01


def test_the_fixture_is_of_version_1(db: Path) -> None:
    make_version_1(db)
    assert versions(db) == ("1", 1)
    assert "run" not in {name for _, name, _ in tables(db)}


@pytest.mark.parametrize("wal", [True, False])
def test_opening_for_writing_adds_the_tables(db: Path, wal: bool) -> None:
    make_version_1(db, wal=wal)
    run = make_run(cases=4)
    with open_store(str(db)) as store:
        assert store.list_runs() == []
        fill(store, run, range(4))
    assert versions(db) == (str(schema.SCHEMA), schema.SCHEMA)
    fresh = db.with_name("fresh.db")
    open_store(str(fresh)).close()
    assert tables(db) == tables(fresh)
    with open_store(str(db)) as store:
        assert store.run_view(run.id).cases == wanted(run, range(4))
        assert store.count() == 5
    with closing(sqlite3.connect(db)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_the_old_content_stays(db: Path) -> None:
    make_version_1(db)
    open_store(str(db)).close()
    check_old_content(db)


def test_reading_only_leaves_it_as_it_is_and_shows_no_runs(db: Path) -> None:
    make_version_1(db)
    before = db.read_bytes()
    assert check_store(str(db)) is True
    check_old_content(db)
    with open_store(str(db), read_only=True) as store:
        assert store.list_runs() == []
        assert store.find("last") == store.load("bb22")
        for ask in (store.load_run, store.run_view, store.done_positions):
            with pytest.raises(UsageError, match="No run is stored yet"):
                ask("last")
    assert db.read_bytes() == before


def test_a_reader_sees_the_runs_once_another_program_has_brought_it_up_to_date(db: Path) -> None:
    make_version_1(db)
    with open_store(str(db), read_only=True) as reader:
        assert reader.list_runs() == []
        with open_store(str(db)) as store:
            store.begin_run(make_run())
        assert [run.id for run in reader.list_runs()] == ["run-1"]
        assert reader.load_run("last") == make_run()


def test_a_fault_at_any_statement_leaves_version_1(db: Path) -> None:
    make_version_1(db)
    counted = 0

    def count(*_: Any) -> None:
        nonlocal counted
        counted += 1

    def opened_while(listener: Any) -> None:
        event.listen(sqlalchemy.Engine, "after_cursor_execute", listener)
        try:
            open_store(str(db)).close()
        finally:
            event.remove(sqlalchemy.Engine, "after_cursor_execute", listener)

    spare = db.read_bytes()
    opened_while(count)
    assert counted > 15
    assert versions(db) == NEW
    db.write_bytes(spare)
    for at in range(counted):
        left = at

        def fail(*_: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            opened_while(fail)
        assert versions(db) == ("1", 1)
    opened_while(count)
    assert versions(db) == NEW
    check_old_content(db)


def _start(db: Path, env: dict[str, str], step: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPEN, str(db), str(step)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def test_kill_dash_nine_on_the_way(tmp_path: Path, python_env: dict[str, str]) -> None:
    for step in (6, 12, 20):
        db = tmp_path / f"step{step}.db"
        make_version_1(db)
        process = _start(db, python_env, step)
        process.communicate("go\n", timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert versions(db) == ("1", 1)
        check_old_content(db)
        open_store(str(db)).close()
        assert versions(db) == NEW
        check_old_content(db)


def test_several_programs_bring_it_up_to_date_at_once(db: Path, python_env: dict[str, str]) -> None:
    make_version_1(db)
    processes = [_start(db, python_env, 0) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert outputs == ["0 2\n"] * 3
    assert versions(db) == NEW
    check_old_content(db)
    fresh = db.with_name("fresh.db")
    open_store(str(fresh)).close()
    assert tables(db) == tables(fresh)


def figures_1(run: Run, positions: Sequence[int]) -> tuple[CaseFigures, ...]:
    """Of definition 1, which knew nothing of tensors."""
    return tuple(
        replace(
            one,
            definition=1,
            base_tensor_bytes=None,
            new_tensor_bytes=None,
            base_overhead_bytes=None,
            new_overhead_bytes=None,
        )
        for one in wanted(run, positions)
    )


def refused(db: Path) -> None:
    """Its columns are not today's, and reading only may not change them."""
    before = db.read_bytes()
    with pytest.raises(UsageError, match="db rebuild"):
        open_store(str(db), read_only=True)
    assert db.read_bytes() == before


def check_runs(db: Path, *, read_only: bool = True) -> None:
    with open_store(str(db), read_only=read_only) as store:
        for run, positions in version_3():
            assert store.run_view(run.id) == RunView(run, figures_1(run, positions))
            assert store.load_run(run.id) == run
        assert [(run.id, run.done) for run in store.list_runs()] == [("half", 1), ("night-1", 4)]
        assert store.load("night-1.0").id == "night-1.0"


def test_version_3_is_read_as_it_is(db: Path) -> None:
    make_version_3(db)
    before = db.read_bytes()
    assert versions(db) == ("3", 3)
    check_runs(db)
    assert db.read_bytes() == before


def test_version_3_gets_its_facts(db: Path) -> None:
    make_version_3(db)
    open_store(str(db)).close()
    assert versions(db) == NEW
    fresh = db.with_name("fresh.db")
    open_store(str(fresh)).close()
    assert tables(db) == tables(fresh)
    check_runs(db)
    with open_store(str(db)) as store:
        for run, positions in version_3():
            assert store.cases(run.id) == figures_1(run, positions)
            view = store.run_view(run.id)
            assert store.run_groups(run.id) == summarise(view.complete)
            head = store.run_head(run.id)
            assert (head.done, head.commit) == (len(positions), "c0ffee" * 6)
        assert len(store.group_points(Selection())) == 4
        assert len(store.case_points(make_run().plan[0].key, Selection())) == 2
        fill(store, make_run("new"), [0])
    with closing(sqlite3.connect(db)) as raw:
        assert raw.execute("SELECT count(*) FROM case_figure").fetchone() == (5,)
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    with open_store(str(db)) as store:
        assert store.rebuild().documents == 5
        assert store.rebuild().documents == 0
    check_runs_again(db)


def test_version_4_is_refused_for_reading_and_gets_its_ledgers_and_allocators(db: Path) -> None:
    make_version_4(db)
    assert versions(db) == ("4", 4)
    refused(db)
    with open_store(str(db)) as store:
        assert store.list_ledgers() == []
        points = store.group_points(Selection())
        assert [point.summary.allocator for point in points] == ["default"] * 4
        assert store.choices().allocators == ("default",)
        assert store.group_points(Selection(allocator="keep")) == []
    assert versions(db) == NEW
    fresh = db.with_name("fresh.db")
    open_store(str(fresh)).close()
    assert tables(db) == tables(fresh)
    check_runs(db)


def test_version_5_is_refused_for_reading_and_its_profiles_may_have_arms(db: Path) -> None:
    make_version_5(db)
    assert versions(db) == ("5", 5)
    refused(db)
    arm = ArmSpec("eager", "hf:Model@small")
    with open_store(str(db)) as store:
        (one,) = store.list_profiles()
        assert (one.id, one.target, one.variant) == ("p-1", "", "")
        assert store.profiles_of("nobody", [(arm, "m-1")]) == []
        assert store.list_ledgers()[0].id == "l-1"
    with open_store(str(db)) as store:
        assert store.list_profiles() == [one]
        new = Profile("p-2", "", "count", "cProfile", machine_id="m-1", arm=arm)
        store.save_profile(new)
        assert [found.id for found in store.profiles_of("nobody", [(arm, "m-1")])] == ["p-2"]
    assert versions(db) == NEW
    fresh = db.with_name("fresh.db")
    open_store(str(fresh)).close()
    assert tables(db) == tables(fresh)
    check_runs(db)


def check_runs_again(db: Path) -> None:
    with open_store(str(db), read_only=True) as store:
        for run, positions in version_3():
            assert store.run_view(run.id) == RunView(run, figures_1(run, positions))


def test_what_an_older_program_wrote_meanwhile_is_shown_and_taken_in(db: Path) -> None:
    make_version_3(db)
    open_store(str(db)).close()
    run = make_run("night-1", 6, label="night")
    document = json.dumps(to_data(make_figures(run, 2)))
    with closing(sqlite3.connect(db)) as raw, raw:  # as that program would
        raw.execute("INSERT INTO run_case VALUES (77, 1, 2, 'x', NULL, '', 'ok', '')")
        raw.execute("INSERT INTO case_figure VALUES (77, 1, ?)", (document,))
    with open_store(str(db)) as store:
        assert store.run_view("night-1").cases[2] == make_figures(run, 2)
        assert len(store.cases("night-1")) == 4
        store.rebuild()
        assert store.cases("night-1")[2] == make_figures(run, 2)
        assert store.run_head("night-1").done == 5


def test_a_damaged_run_does_not_keep_the_others_from_being_brought_up_to_date(db: Path) -> None:
    make_version_3(db)
    with closing(sqlite3.connect(db)) as raw, raw:
        raw.execute("DROP TRIGGER run_no_update")
        raw.execute("UPDATE run SET document = x'00' WHERE id = 'night-1'")
        raw.execute("UPDATE case_figure SET document = '{}' WHERE run_case = 5")
        raw.execute(
            "CREATE TRIGGER run_no_update BEFORE UPDATE ON run  BEGIN SELECT "
            "RAISE(ABORT, 'torchstone: run is append-only, rows never change'); END"
        )
    with open_store(str(db)) as store:
        assert [head.id for head in store.run_heads()] == ["half", "night-1"]
        assert store.run_head("night-1").done == 4
        assert store.run_head("half").done == 0
        assert store.run_groups("night-1") == []
        with pytest.raises(UsageError, match="night-1 is damaged"):
            store.run_view("night-1")
        with pytest.raises(UsageError, match="half is damaged"):
            store.run_view("half")


def test_a_fault_at_any_statement_leaves_version_3(db: Path) -> None:
    make_version_3(db)
    left = 0

    def fail(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    event.listen(sqlalchemy.Engine, "after_cursor_execute", fail)
    try:
        for at in range(3, 400, 7):
            left = at
            try:
                open_store(str(db)).close()
            except KeyboardInterrupt:
                assert versions(db) == ("3", 3)
                continue
            break
        else:
            pytest.fail("it never got through")
        assert at > 60
    finally:
        event.remove(sqlalchemy.Engine, "after_cursor_execute", fail)
    assert versions(db) == NEW
    check_runs(db)
