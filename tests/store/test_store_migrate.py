"""A database of an older schema: brought up to date when it is opened for writing, in one piece.

No second schema exists yet, so the step here is one of the test's own.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Connection, event, text
from store_cases import make_result

from torchstone.records import UsageError
from torchstone.store import engine, open_store, schema

OLD, NEW = schema.SCHEMA, schema.SCHEMA + 1

STEP = """
import os, signal, sys
from sqlalchemy import text
from torchstone.store import engine, open_store, schema
from torchstone.store.database import Store
def step(connection):
    connection.execute(text("CREATE TABLE added (name TEXT)"))
    if "die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
schema.SCHEMA += 1
engine.STEPS = {schema.SCHEMA: step}
print("ready", flush=True)
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    print(store.count())
"""


def add_table(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE added (name TEXT)"))
    connection.execute(text("INSERT INTO added VALUES ('one')"))


@pytest.fixture
def old(db: Path) -> Path:
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
    return db


@pytest.fixture
def newer(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This program knows one schema more than the one that made the database."""
    monkeypatch.setattr(schema, "SCHEMA", NEW)
    monkeypatch.setattr(engine, "STEPS", {NEW: add_table})


def versions(db: Path) -> tuple[str, int]:
    with closing(sqlite3.connect(db)) as raw:
        (found,) = raw.execute("SELECT value FROM meta").fetchone()
        return found, raw.execute("PRAGMA user_version").fetchone()[0]


def check(db: Path, version: int) -> None:
    """The version, the tables that belong to it, and the result that was there before."""
    assert versions(db) == (str(version), version)
    with closing(sqlite3.connect(db)) as raw:
        names = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
        assert ("added" in names) == (version == NEW)
        assert raw.execute("SELECT id FROM result").fetchall() == [("aa11",)]
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.usefixtures("newer")
def test_opening_for_writing_brings_it_up_to_date(old: Path) -> None:
    check(old, OLD)
    with open_store(str(old)) as store:
        assert store.load("aa11") == make_result("aa11")
        store.save(make_result("bb22"))
    with open_store(str(old), read_only=True) as store:
        assert store.count() == 2
    assert versions(old) == (str(NEW), NEW)


@pytest.mark.usefixtures("newer")
def test_reading_only_is_refused_and_leaves_it_as_it_is(old: Path) -> None:
    before = old.read_bytes()
    with pytest.raises(UsageError, match=f"older Torchstone .schema {OLD}") as caught:
        open_store(str(old), read_only=True)
    assert "db rebuild" in caught.value.remedy
    assert old.read_bytes() == before


@pytest.mark.usefixtures("newer")
def test_a_fault_at_any_statement_leaves_the_old_schema(old: Path) -> None:
    for after in range(100):
        try:
            with interrupted(after):
                open_store(str(old)).close()
        except KeyboardInterrupt:
            check(old, OLD)
        else:
            break
    assert after > 5
    check(old, NEW)


@contextmanager
def interrupted(after: int) -> Iterator[None]:
    """Interrupt what is done in the block after so many statements."""
    left = after

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    event.listen(sqlalchemy.Engine, "after_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(sqlalchemy.Engine, "after_cursor_execute", count)


def test_kill_dash_nine_on_the_way_leaves_the_old_schema(
    old: Path, python_env: dict[str, str]
) -> None:
    process = _start(old, python_env, "die")
    process.communicate("go\n", timeout=240)
    assert process.returncode == -signal.SIGKILL
    check(old, OLD)


def test_several_programs_bring_it_up_to_date_at_once(
    old: Path, python_env: dict[str, str]
) -> None:
    processes = [_start(old, python_env) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=240)[0] for process in processes] == ["1\n"] * 3
    check(old, NEW)


def _start(db: Path, env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STEP, str(db), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def test_a_database_of_the_first_schema_gets_every_table_of_this_one(old: Path) -> None:
    """Whoever adds a table must add it to the step as well."""
    with closing(sqlite3.connect(old)) as raw:
        wanted = set(raw.execute("SELECT type, name FROM sqlite_master"))
        columns = _columns(raw)
        for name in schema.SINCE_3:
            raw.execute(f"ALTER TABLE group_fact DROP COLUMN {name}")
            raw.execute(f"ALTER TABLE group_fact DROP COLUMN {name}_n")
        raw.execute("PRAGMA foreign_keys = OFF")
        for table in schema.SINCE_2:
            raw.execute(f"DROP TABLE {table.name}")
        raw.execute("UPDATE meta SET value = '1' WHERE key = 'torchstone_schema'")
        raw.execute("PRAGMA user_version = 1")
        raw.commit()
    with open_store(str(old)) as store:
        assert store.load("aa11") == make_result("aa11")
    with closing(sqlite3.connect(old)) as raw:
        assert set(raw.execute("SELECT type, name FROM sqlite_master")) == wanted
        assert _columns(raw) == columns
    assert versions(old) == (str(OLD), OLD)


def _columns(raw: sqlite3.Connection) -> set[str]:
    return {row[1] for row in raw.execute("PRAGMA table_info(group_fact)")}
