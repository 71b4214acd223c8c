"""What PostgreSQL does otherwise than SQLite, each on a real server; and one into the other."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select, text
from store_cases import make_result
from store_runs import fill, make_case, make_figures, make_run, wanted
from tests.postgres import Server

from torchstone.records import CaseKey, GitState, Selection, TorchstoneError, UsageError
from torchstone.store import AlreadyStored, StoreBusyError, check_store, engine, open_store, schema
from torchstone.store import postgres as own
from torchstone.store.copying import copy
from torchstone.store.heartbeat import start_heartbeat
from torchstone.store.location import Location, locate, redact


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "results.db")
    return str(request.getfixturevalue("url"))


@contextmanager
def raw(url: str) -> Iterator[object]:
    """A connection beside the store's own."""
    made = create_engine(url)
    try:
        with made.connect() as connection:
            yield connection
    finally:
        made.dispose()


# Opening.


def test_tables_are_made_in_an_empty_database_alone(postgres: Server) -> None:
    url = postgres.empty()
    assert not check_store(url)
    for create in (True, False):
        with pytest.raises(UsageError, match="is empty"):
            open_store(url, create=create, read_only=create)
    with open_store(url) as store:
        store.save(make_result("aa11"))
    assert check_store(url)
    with open_store(url, create=False, read_only=True) as store:
        assert store.load("aa11") == make_result("aa11")
        with pytest.raises(UsageError, match="for reading only"):
            store.save(make_result("bb22"))


def test_a_database_of_another_program_is_left_as_it_is(postgres: Server) -> None:
    url = postgres.empty()
    postgres.execute("CREATE TABLE orders (number integer)", url)
    with pytest.raises(UsageError, match="not one of Torchstone's"):
        open_store(url)
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    assert postgres.execute(tables, url) == [("orders",)]


def test_a_newer_database_is_refused(postgres: Server) -> None:
    url = postgres.empty()
    open_store(url).close()
    postgres.execute("UPDATE meta SET value = '99' WHERE key = 'torchstone_schema'", url)
    with pytest.raises(UsageError, match=r"newer Torchstone .schema 99"):
        open_store(url)


def test_an_encoding_that_cannot_hold_every_text_is_refused(postgres: Server) -> None:
    postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(UsageError, match="encoding LATIN1"):
        open_store(postgres.url("latin"))
    assert not check_store(postgres.url("latin"))  # nothing of it was made


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+psycopg://me:{0}@/none?host={1}", 'database "none" does not exist'),
        ("postgresql://me:{0}@/postgres?host=/nowhere", "cannot be reached"),
        ("postgresql://me:{0}@localhost:1/db", "cannot be reached"),
        ("postgresql://me:{0}@localhost:port/db", "address of the database cannot be read"),
        ("postgres://localhost:1/db?password={0}", "cannot be reached"),
        ("postgresql+asyncpg://me:{0}@host/db", "'postgresql\\+asyncpg' are not known"),
        ("mysql://me:{0}@host/db", "'mysql' are not known"),
    ],
)
def test_a_password_is_never_shown(postgres: Server, url: str, message: str) -> None:
    postgres.execute("DO $$ BEGIN CREATE ROLE me LOGIN; EXCEPTION WHEN OTHERS THEN END $$")
    for password in ("sesame", "open%20sesame", "open sesame%2F"):
        with pytest.raises((UsageError, StoreBusyError), match=message) as caught:
            open_store(url.format(password, postgres.folder))
        told = f"{caught.value!r} {caught.value.message} {caught.value.remedy}"
        assert "sesame" not in told
        assert caught.value.__cause__ is None  # a traceback would tell


def test_a_location_shows_no_password() -> None:
    for url in ("postgresql://me:sesame@host:5432/db", "postgresql+psycopg://me:s@same/x@host/db"):
        found = locate(url)
        assert "same" not in f"{found} {found!r} {found.name}"
        assert str(found).startswith("postgresql+psycopg://me:***@host")
    assert locate("postgres://host/a%20db").name == "a db"
    assert redact("postgresql://host:5432/db") == "postgresql://host:5432/db"
    assert locate("postgresql://host/db") == Location(url="postgresql+psycopg://host/db")


def test_without_the_driver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match="needs the package psycopg") as caught:
        open_store("postgresql://host/db")
    assert "torchstone[postgres]" in caught.value.remedy


# Values.


def test_nul_and_bytes_that_are_no_text_can_be_stored(url: str) -> None:
    run = make_run(cases=3, git=GitState("c0ffee", "a\0b\udcff", False))
    said = replace(make_figures(run, 0), reason="killed\0\udcff")
    with open_store(url) as store:
        odd = replace(make_result("odd"), label="a\0b\udcff")
        store.save(odd)
        assert store.load("odd") == odd
        assert [one.label for one in store.list(label="a\0b\udcff")] == ["a\\x00b\\udcff"]
        store.begin_run(run)
        store.add_cases(run.id, None, [(0, said)])
        assert store.cases(run.id) == (said,)
        assert store.run_heads()[0].branch == "a\\x00b\\udcff"
        assert store.imported_count("\0") == 0  # also what is looked for


def test_what_the_driver_refuses_is_no_lost_connection(url: str) -> None:
    """That would be tried again for a quarter of an hour."""
    nul = text("SELECT CAST(:x AS text)").bindparams(x="\0")
    with open_store(url) as store:
        for asked in (nul, text("SELECT CAST(:x AS bigint)").bindparams(x=2**70)):
            with pytest.raises(TorchstoneError) as caught, store._reading() as connection:
                connection.execute(asked)
            assert not isinstance(caught.value, StoreBusyError)


def test_large_and_odd_numbers_come_back(url: str) -> None:
    run = make_run(cases=3)
    odd = replace(
        make_figures(run, 0),
        compile_cold_ns=2**63 - 1,
        compile_warm_ns=2**80,
        base_tensor_bytes=-(2**63),
        speedup=math.inf,
        error_ratio=-0.0,
        base_ns=5e-324,
    )
    nan = replace(make_figures(run, 1), speedup=math.nan, interval=(math.nan, 1.0))
    with open_store(url) as store:
        store.begin_run(run)
        store.add_cases(run.id, None, [(0, odd), (1, nan)])
        found = store.cases(run.id)
        assert found[0] == odd
        assert str(found[0].error_ratio) == "-0.0"
        assert repr(found[1]) == repr(nan)  # NaN is not equal to itself


def test_not_a_number_is_null_as_it_is_in_sqlite(url: str) -> None:
    values = {"machine_id": "m", "branch": "b"}
    with open_store(url) as store, store._writing() as connection:
        connection.execute(schema.machine_branch.insert().values(**values))
        query = select(text("CAST(:x AS float8)")).params(x=math.nan)
        assert math.isnan(connection.scalar(query))  # the server would keep it
        bound = schema.REAL.dialect_impl(connection.dialect).bind_processor(connection.dialect)
        assert bound is not None
        assert bound(math.nan) is None
        assert bound(0.5) == 0.5


def test_every_number_has_64_bits(postgres: Server, url: str) -> None:
    small = "SELECT table_name, column_name FROM information_schema.columns WHERE data_type = '{}'"
    wanted = " AND table_schema = 'public'"
    for kind in ("integer", "smallint", "real", "numeric"):
        assert postgres.execute(small.format(kind) + wanted, url) == []
    assert postgres.execute(small.format("bigint") + wanted, url)


def test_stretches_are_cut_and_not_rounded(url: str) -> None:
    """A cast rounds there: half of each week would count to the next."""
    week = 7 * 86_400.0
    with open_store(url) as store:
        for day in ("2026-11-02T01:00:00+00:00", "2026-11-08T23:00:00+00:00"):  # one week
            store.begin_run(replace(make_run(f"run-{day[8:10]}", cases=3), created=day))
        found = store.group_points(Selection(suite="timm"), every_s=week)
    assert [point.run.id for point in found] == ["run-08"]


# Transactions.


def test_nothing_is_left_in_a_session_that_a_pool_may_give_to_another(url: str) -> None:
    with open_store(url) as store:
        for name in ("aa11", "bb22"):
            store.save(make_result(name))
        with store.snapshot(), store._reading() as connection:
            for _ in range(10):  # the driver prepares what it has seen five times
                store.list()
            assert connection.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0
            locks = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            assert connection.scalar(locks) == 0
            assert connection.scalar(text("SHOW lock_timeout")) == "0"


def test_rows_never_change(postgres: Server, url: str) -> None:
    import psycopg

    with open_store(url) as store:
        fill(store, make_run(), [0])
    for statement in (
        "UPDATE result SET label = 'x'",
        "UPDATE result SET document = ''",
        "UPDATE measurement SET samples = ''",
        "DELETE FROM run_case",
        "TRUNCATE run CASCADE",
        "INSERT INTO run SELECT * FROM run ON CONFLICT (seq) DO UPDATE SET label = 'x'",
    ):
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            postgres.execute(statement, url)
    with open_store(url) as store:
        with pytest.raises(UsageError, match="append-only"), store._writing() as connection:
            connection.execute(schema.run.update().values(label="x"))
        assert store.run_view("run-1").cases == wanted(make_run(), [0])


def test_a_failed_statement_leaves_nothing_behind_and_the_store_goes_on(url: str) -> None:
    with open_store(url) as store:
        store.save(make_result("aa11"))
        with pytest.raises(UsageError, match="already stored"):
            store.save(make_result("aa11"))
        twice = [{"key": "mine", "value": value} for value in "12"]
        with (
            pytest.raises(TorchstoneError, match="refused the change"),
            store._writing() as connection,
        ):
            connection.execute(schema.meta.insert(), twice)
        store.save(make_result("bb22"))
        assert store.count() == 2
        with store._reading() as connection:
            assert connection.scalar(select(schema.meta).filter_by(key="mine")) is None


def test_a_writer_waits_for_another_and_gives_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(url) as store, open_store(url) as other:
        with store._writing():
            monkeypatch.setattr(own, "_LOCK", own._LOCK.bindparams(wait="100ms"))
            with pytest.raises(StoreBusyError, match="held by another program"):
                other.save(make_result("aa11"))
            monkeypatch.undo()
            saving = threading.Thread(target=other.save, args=(make_result("bb22"),))
            saving.start()
            saving.join(0.3)
            assert saving.is_alive()
            with open_store(url, read_only=True) as reader:  # who reads never waits
                assert reader.count() == 0
        saving.join(60)
        assert store.count() == 1


def test_writers_at_once_store_each_case_once(url: str) -> None:
    run, writers = make_run(cases=24), 6
    stored: list[int] = []
    failed: list[BaseException] = []

    def write(first: int) -> None:
        try:
            with open_store(url) as store:
                store.begin_run(run)
                for position in sorted(range(24), key=lambda at: (at + first) % 24):
                    result, figures = make_case(run, position)
                    with suppress(AlreadyStored):
                        store.add_cases(run.id, result, [(position, figures)])
                        stored.append(position)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(4 * i,)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(stored) == list(range(24))
    with open_store(url, read_only=True) as store:
        assert store.run_view(run.id).cases == wanted(run, range(24))
        assert store.run_heads()[0].done == 24


def test_a_case_is_known_by_its_attempt(either: str) -> None:
    run = make_run(cases=6)
    result, figures = make_case(run, 0)
    assert result is not None
    with open_store(either) as store:
        fill(store, run, [0, 5])
        for given, position in (((result, figures), 0), (make_case(run, 5), 5)):
            with pytest.raises(AlreadyStored) as caught:
                store.add_cases(run.id, given[0], [(position, given[1])])
            assert caught.value.same
        again = replace(result, id="another-attempt")
        with pytest.raises(AlreadyStored) as caught:
            store.add_cases(run.id, again, [(0, replace(figures, result_id=again.id))])
        assert not caught.value.same
        assert store.count() == 1


def test_a_lost_connection_is_made_again(postgres: Server, url: str) -> None:
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'"
    with open_store(url) as store:
        store.save(make_result("aa11"))
        postgres.execute(end.format("torchstone"), url)
        assert store.count() == 1  # one that lay idle
        with pytest.raises(StoreBusyError, match="cannot be reached"), store._writing():
            postgres.execute(end.format("torchstone"), url)
        store.save(make_result("bb22"))
        assert store.count() == 2


def test_a_reader_goes_on_after_its_connections_were_lost(postgres: Server, url: str) -> None:
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'"
    with open_store(url) as store, open_store(url, read_only=True) as reader:
        store.save(make_result("aa11"))
        before = reader.version()
        with reader.snapshot():
            assert reader.count() == 1
        postgres.execute(end.format("torchstone"), url)
        with reader.snapshot():  # as a page is made: no connection was pinged before
            assert reader.count() == 1
        postgres.execute(end.format("torchstone"), url)
        assert reader.version() == before
        assert reader.running_ids() == frozenset()


def test_every_commit_changes_the_number_that_pages_are_kept_by(url: str) -> None:
    with open_store(url) as store, open_store(url, read_only=True) as reader:
        seen = [reader.version()]
        for name in ("aa11", "bb22"):
            store.save(make_result(name))
            seen.append(reader.version())
            assert reader.version() == seen[-1]
        assert len(set(seen)) == 3


# Heartbeats.

HOLD = """
import sys
from torchstone.store.heartbeat import start_heartbeat
from torchstone.store.location import locate

with start_heartbeat(locate(sys.argv[1]), "run-1", sys.argv[2]) as sign:
    sign.now("toys/model", 1, 10)
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_run_of_another_program_is_seen_until_it_dies(
    url: str, python_env: dict[str, str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, url, "1/2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=python_env,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with open_store(url) as store:
            fill(store, make_run(), [0])
            assert store.running_ids() == {"run-1"}
            assert store.run_head("run-1").state == "running"
            with start_heartbeat(locate(url), "run-1", "2/2") as sign:
                sign.now("toys/other", 2, 10)
                (other,) = sign.others()
                assert (other.shard, other.case, other.pid) == ("1/2", "toys/model", process.pid)
                assert other.host
                found = store.progress("run-1")
                assert found is not None
                assert (found.done, found.planned, len(found.parts)) == (3, 20, 2)
            process.kill()
            process.wait()
            assert store.running_ids() == frozenset()  # of our own machine that is known at once
            assert store.run_head("run-1").state == "interrupted"
            assert store.progress("run-1") is None
    finally:
        process.kill()
        process.communicate()


def test_a_run_on_another_machine_is_seen_until_it_is_silent(postgres: Server, url: str) -> None:
    with open_store(url) as store:
        fill(store, make_run(), [0])
        for silent_s, state in ((45, "running"), (75, "interrupted")):
            postgres.execute(
                "DELETE FROM heartbeat; INSERT INTO heartbeat (token, run_id, document, seen) "
                """SELECT 'x', 'run-1', '{"pid": 4194305, "host": "elsewhere"}', """
                f"extract(epoch FROM clock_timestamp()) - {silent_s}",
                url,
            )
            assert store.run_head("run-1").state == state


def test_a_heart_beats_while_a_case_is_measured(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "BEAT_S", 0.05)
    seen = text("SELECT seen FROM heartbeat")
    with open_store(url) as store, start_heartbeat(locate(url), "run-1"):
        with store._reading() as connection:
            first = connection.scalar(seen)
        deadline, later = time.monotonic() + 60, first
        while later == first and time.monotonic() < deadline:
            with store._reading() as connection:
                later = connection.scalar(seen)
        assert later > first
    with open_store(url) as store, store._reading() as connection:
        assert connection.scalar(seen) is None  # taken away at its end


# Older tables.


@pytest.fixture
def old(postgres: Server) -> str:
    """As the first version made them, with a run in them."""
    url = postgres.empty()
    with open_store(url) as store:
        fill(store, make_run(), [0, 1])
    for table in reversed(schema.SINCE_2):
        postgres.execute(f"DROP TABLE {table.name}", url)
    for name in schema.SINCE_3:
        postgres.execute(f"ALTER TABLE group_fact DROP {name}, DROP {name}_n", url)
    postgres.execute("UPDATE meta SET value = '1' WHERE key = 'torchstone_schema'", url)
    return url


def test_older_tables_are_brought_up_to_date_with_what_is_in_them(old: str) -> None:
    with pytest.raises(UsageError, match=r"older Torchstone .schema 1"):
        open_store(old, read_only=True)
    with open_store(old) as store:
        assert store.imported_count() == 0
    with open_store(old, read_only=True) as store:
        assert store.run_view("run-1").cases == wanted(make_run(), [0, 1])


def test_a_step_that_fails_changes_nothing(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(connection: object) -> None:
        engine._add_imported(connection)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "STEPS", {**engine.STEPS, 2: fails})
    with pytest.raises(KeyboardInterrupt):
        open_store(old)
    monkeypatch.undo()
    with raw(old) as connection:
        assert schema.check_version(connection) == 1  # type: ignore[arg-type]
    with open_store(old) as store:
        assert store.imported_count() == 0


# One into the other.


def silent(what: str, done: int, total: int) -> None:
    """Nobody asked."""


def test_a_copy_holds_all_that_was_there(postgres: Server, url: str, tmp_path: Path) -> None:
    from test_store_profiles import profile

    there, back = str(tmp_path / "there.db"), str(tmp_path / "back.db")
    with open_store(there) as store:
        fill(store, make_run(), [4, 0, 5, 3])
        store.save(make_result("alone"))
        store.save_profile(profile())
        store.add_change_note("c1", "mute", "known", "", {"a": 1})
    for source, target in ((there, url), (url, back)):
        with open_store(source, read_only=True) as one, open_store(target) as other:
            report = copy(one, other, silent)
            assert (report.tables["run_case"], report.files, report.missing_files) == (4, 1, ())
            assert other.run_view("run-1") == one.run_view("run-1")
            assert other.load("alone") == one.load("alone")
            assert other.load_profile("p-1") == one.load_profile("p-1")
            assert other.change_notes() == one.change_notes()
            assert other.run_heads() == one.run_heads()
            assert other.choices() == one.choices()
            with pytest.raises(UsageError, match="is not empty"):
                copy(one, other, silent)
    for target in (url, back):  # the numbers of rows go on
        with open_store(target) as store:
            fill(store, make_run(), [1])
            assert store.run_view("run-1").cases == wanted(make_run(), [0, 1, 3, 4, 5])


def test_a_copy_that_breaks_off_leaves_nothing(url: str, tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done == total - 3:
            raise KeyboardInterrupt

    with open_store(str(tmp_path / "there.db")) as one, open_store(url) as other:
        fill(one, make_run(), [0])
        with pytest.raises(KeyboardInterrupt):
            copy(one, other, stop)
        assert other.count() == 0
        assert copy(one, other, silent).tables["result"] == 1


def test_shards_in_both_kinds_of_database_are_joined(url: str, tmp_path: Path) -> None:
    run = make_run()
    with open_store(url) as here, open_store(str(tmp_path / "shard.db")) as there:
        fill(here, run, [0, 1])
        fill(there, run, [2, 3])
        assert here.merge_run(there, run.id) == 2
        assert there.merge_run(here, run.id) == 2
        assert [c.key for c in here.cases(run.id)] == [c.key for c in there.cases(run.id)]


def test_texts_are_sorted_as_by_sqlite(either: str) -> None:
    names = ("b", "A", "a", "B", "ä")
    run = make_run(cases=6)
    keys = [CaseKey(one, "M", "small", "inference", "fp32", "inductor") for one in names]
    plan = tuple(replace(run.plan[0], key=key) for key in keys)
    with open_store(either) as store:
        store.begin_run(replace(run, plan=plan))
        query = select(schema.case_group.c.suite).order_by(schema.case_group.c.suite)
        with store._reading() as connection:
            assert connection.scalars(query).all() == sorted(names)
