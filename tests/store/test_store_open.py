"""Opening: where the file is found, and what is refused without touching it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_cases import make_result

from torchstone.records import Conditions, UsageError
from torchstone.store import StoreBusyError, check_store, engine, open_store, schema

ROOT = os.geteuid() == 0
NOBODY = 65534


def _snapshot(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()}


def _refused(path: Path | str, message: str, *, read_only: bool = False) -> UsageError:
    with pytest.raises(UsageError, match=message) as caught:
        open_store(str(path), read_only=read_only)
    assert caught.value.remedy
    assert caught.value.exit_code == 2
    return caught.value


def test_the_default_is_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHSTONE_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(UsageError, match="no database at"):
        open_store(create=False)
    assert not (tmp_path / "data").exists()
    with open_store() as store:
        assert store.location.path == tmp_path / "data" / "torchstone" / "torchstone.db"
    assert store.location.path.is_file()
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with open_store() as store:
        assert store.location.path == tmp_path / "home/.local/share/torchstone/torchstone.db"


def test_the_environment_names_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_DB", f"sqlite:///{tmp_path}/env.db")
    with open_store() as store:
        assert store.location.path == tmp_path / "env.db"
    with open_store(str(tmp_path / "given.db")) as store:
        assert store.location.path == tmp_path / "given.db"


@pytest.mark.parametrize("name", ["plain.db", "with space.db", "q?a=1&b%20#c.db", "ünï.db"])
def test_odd_file_names_work(tmp_path: Path, name: str) -> None:
    with open_store(str(tmp_path / name)) as store:
        store.save(make_result("aa11"))
    assert [p.name for p in tmp_path.iterdir()] == [name]
    with open_store(str(tmp_path / name), read_only=True) as store:
        assert store.load("aa11").id == "aa11"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://user:secret@host/db", "'mysql' are not known"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        (":memory:", "needs a file"),
        ("", "needs a file"),
        ("sqlite://host/x.db", "a path and nothing else"),
        ("sqlite:///x.db?mode=ro", "a path and nothing else"),
        ("a\0b", "null character"),
    ],
)
def test_urls_that_cannot_be_used(
    url: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "secret" not in str(_refused(url, message))
    assert not list(tmp_path.iterdir())


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    _refused(tmp_path / "no" / "such.db", "does not exist")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("x")
    _refused(tmp_path / "file" / "such.db", "does not exist")


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        b"not a database at all, but rather long text\n" * 200,
        b"x",
        b"SQLite format 3\0",
        b"SQLite format 3\0" + bytes(2000),
        b"SQLite format 3\0" + b"\xff" * 8176,
    ],
)
def test_another_kind_of_file_is_left_alone(db: Path, content: bytes, read_only: bool) -> None:
    db.write_bytes(content)
    _refused(db, "not a database|not one of Torchstone|is damaged", read_only=read_only)
    assert _snapshot(db.parent) == {db.name: content}


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_ours_and_cut_short_is_damaged_not_foreign(db: Path, read_only: bool) -> None:
    """So looks a file, too, while another program empties its log into it: page 1 comes first."""
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
    whole = db.read_bytes()
    db.write_bytes(whole[: len(whole) - 5 * 4096])
    _refused(db, "is damaged", read_only=read_only)


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("table", ["t (a)", "meta (key, value)", "meta (name, number)"])
def test_another_programs_database_is_left_alone(db: Path, wal: bool, table: str) -> None:
    raw = sqlite3.connect(db)
    if wal:
        raw.execute("PRAGMA journal_mode = WAL")
    raw.execute(f"CREATE TABLE {table}")
    raw.close()
    before = _snapshot(db.parent)
    for read_only in (False, True):
        _refused(db, "not one of Torchstone's", read_only=read_only)
    assert _snapshot(db.parent) == before


@pytest.mark.parametrize("pragma", [True, False])
def test_a_newer_database_is_left_alone(db: Path, pragma: bool) -> None:
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
    raw = sqlite3.connect(db)
    newer = schema.SCHEMA + 1
    raw.execute(f"UPDATE meta SET value = '{newer}' WHERE key = 'torchstone_schema'")
    if pragma:
        raw.execute(f"PRAGMA user_version = {newer}")
    raw.commit()
    raw.close()
    before = _snapshot(db.parent)
    for read_only in (False, True):
        error = _refused(db, "newer Torchstone", read_only=read_only)
        assert "pip install --upgrade torchstone" in error.remedy
    after = _snapshot(db.parent)
    assert after[db.name] == before[db.name]
    if pragma:  # known from the header alone: SQLite never opened it
        assert after == before


def test_a_directory_and_a_pipe_are_refused(tmp_path: Path) -> None:
    _refused(tmp_path, "is a directory")
    os.mkfifo(tmp_path / "pipe")
    _refused(tmp_path / "pipe", "not a regular file")


def test_an_empty_file_becomes_a_database(db: Path) -> None:
    db.touch()
    _refused(db, "is empty", read_only=True)
    assert db.read_bytes() == b""
    with open_store(str(db), create=False) as store:
        store.save(make_result("aa11"))
        assert store.load("last").id == "aa11"


def test_a_check_before_measuring_finds_what_saving_would(tmp_path: Path) -> None:
    db = tmp_path / "results.db"
    assert check_store(str(db)) is False
    assert not db.exists()
    db.touch()
    assert check_store(str(db)) is False  # nothing was ever stored in it
    assert db.read_bytes() == b""
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
    before = db.read_bytes()
    assert check_store(str(db)) is True
    assert db.read_bytes() == before
    (tmp_path / "text").write_text("not a database")
    for bad in (tmp_path, tmp_path / "text", tmp_path / "no" / "such.db"):
        with pytest.raises(UsageError):
            check_store(str(bad))


def test_reading_only_never_writes(db: Path) -> None:
    _refused(db, "no database at", read_only=True)
    assert not db.exists()
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
    before = db.read_bytes()
    with open_store(str(db), read_only=True) as store:
        assert store.load("aa11") == make_result("aa11")
        with pytest.raises(UsageError, match="reading only"):
            store.save(make_result("bb22"))
        with pytest.raises(UsageError, match="reading only"):
            store.remember_aa_floor("m", Conditions(1, "default", "ms"), 0.1, {})
    assert db.read_bytes() == before


def test_the_file_is_durable_and_shared(db: Path) -> None:
    with open_store(str(db)) as store, store._engine.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }


def test_a_database_held_for_too_long_is_told(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.2)
    with open_store(str(db)) as store:
        holder = sqlite3.connect(db, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match="held by another program"):
            store.save(make_result("aa11"))
        holder.execute("ROLLBACK")
        holder.close()
        store.save(make_result("aa11"))


@pytest.fixture
def guarded() -> Iterator[Path]:
    """A directory with a database that may be read but not written (also not by `nobody`).

    Not below pytest's own, which only its owner may enter.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_store(str(folder / "kept.db")) as store:
            store.save(make_result("aa11"))
        (folder / "kept.db").chmod(0o444)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


def _unprivileged(directory: Path, code: str, env: dict[str, str]) -> str:
    """Run code as a user whom permissions bind; root, who is not, becomes `nobody` first."""
    prepare = f"""
import os, tempfile
from torchstone.store import open_store
from torchstone.records import UsageError
DIR = {str(directory)!r}
with tempfile.TemporaryDirectory() as scratch:  # `nobody` may not be able to import modules
    with open_store(scratch + "/x.db") as store:
        store.list()
    open_store(scratch + "/x.db", read_only=True).close()
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""
    done = subprocess.run(
        [sys.executable, "-c", prepare + code], env=env, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_permissions_are_respected_and_told(guarded: Path, python_env: dict[str, str]) -> None:
    before = _snapshot(guarded)
    code = """
for name, read_only in (("kept.db", False), ("new.db", False), ("kept.db", True)):
    try:
        with open_store(DIR + "/" + name, read_only=read_only) as store:
            print(store.load("last").id)
    except UsageError as error:
        print("refused:", error.message.replace(DIR, "DIR"))
"""
    assert _unprivileged(guarded, code, python_env).splitlines() == [
        "refused: The database DIR/kept.db or its directory is not writable.",
        "refused: No database can be made in DIR: the directory is not writable.",
        "aa11",
    ]
    assert _snapshot(guarded) == before


def test_an_unreadable_file_is_told(guarded: Path, python_env: dict[str, str]) -> None:
    (guarded / "kept.db").chmod(0o000)
    code = """
try:
    open_store(DIR + "/kept.db", read_only=True)
except UsageError as error:
    print(error.message)
"""
    assert "cannot be opened: it may not be read" in _unprivileged(guarded, code, python_env)


OTHER = """
import sys
from torchstone.store import open_store
with open_store(sys.argv[1]) as store:
    store.count()
"""


def test_a_second_store_on_a_file_keeps_the_locks_of_the_first(
    db: Path, python_env: dict[str, str]
) -> None:
    """Else another program takes itself for the last one and removes the log under our feet."""
    with open_store(str(db)) as held:
        held.save(make_result("aa11"))
        with open_store(str(db), read_only=True) as second:
            assert second.count() == 1
        assert check_store(str(db))
        subprocess.run([sys.executable, "-c", OTHER, str(db)], env=python_env, check=True)
        assert db.with_name(db.name + "-wal").exists()
        held.save(make_result("bb22"))
        with open_store(str(db), read_only=True) as reader:
            assert reader.count() == 2
