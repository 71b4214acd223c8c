"""A PostgreSQL server of our own for the tests: one for all tests of a process, gone with it."""

from __future__ import annotations

import glob
import itertools
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchstone.store import open_store

PROGRAMS = Path(next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)), ""))
"""Where Debian's package has them."""
MISSING = "needs PostgreSQL: apt-get install postgresql"
_SETTINGS = ("-c", "listen_addresses=", "-c", "max_connections=120")
_OF_TESTS = (
    *("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"),
    *("-c", "shared_buffers=32MB", "-c", "autovacuum=off"),  # nothing depends on when it comes
)


_ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
"""A test's own marks are not for the server: it outlives the test."""
_SHARED = "tests_share_this"
_END = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{_SHARED}'"
_CLEAR = """DO $$ DECLARE one text; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE 'DELETE FROM ' || one || CASE one WHEN 'meta' THEN
            ' WHERE key NOT IN (''torchstone_schema'', ''commits'')' ELSE '' END;
    END LOOP;
    PERFORM setval(c.oid, 1, false) FROM pg_class c WHERE relkind = 'S';
END $$"""
"""Triggers and foreign keys are off meanwhile: our tables let nobody delete."""


class Server:
    """It runs; each database is made empty and named once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        self._shared = False

    def url(self, name: str = "postgres") -> str:
        """The address of a database, by the socket in our folder."""
        return f"postgresql+psycopg://postgres@/{name}?host={self.folder}"

    def database(self) -> str:
        """The address of the one that tests share, with our tables and nothing in them."""
        url = self.url(_SHARED)
        if not self._shared:
            self.empty(_SHARED)
            open_store(url).close()
            self._shared = True
        else:  # in a tenth of the time that a new one takes
            self.execute(_END)
            self.execute(_CLEAR, url)
        return url

    def empty(self, name: str = "") -> str:
        """The address of a new one without tables."""
        name = name or f"test{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def execute(self, statement: str, url: str = "") -> list[tuple[object, ...]]:
        """What the server answers, outside of any transaction and of our own code."""
        import psycopg

        address = (url or self.url()).replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def is_there() -> bool:
    """Whether a server can be started here."""
    return (PROGRAMS / "initdb").is_file()


@contextmanager
def server(*, durable: bool = False) -> Iterator[Server]:
    """A running server, of another user where we are root, whose it refuses to be."""
    folder = Path(tempfile.mkdtemp(prefix="torchstone-pg-"))  # short: the socket's path has a limit
    user: str | None = None
    if os.getuid() == 0:
        user = next(name for name in ("postgres", "nobody") if _is_user(name))
        shutil.chown(folder, user)
    data = folder / "data"
    try:
        _run(user, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = " ".join((*_SETTINGS, *(() if durable else _OF_TESTS), "-k", str(folder)))
        log = folder / "log"
        _run(user, "pg_ctl", "start", "-D", data, "-w", "-t", "60", "-l", log, "-o", options)
        stop = [str(PROGRAMS / "pg_ctl"), "stop", "-D", str(data), "-m", "immediate", "-s"]
        # It goes on when our end of its input is closed: also where we are killed.
        words = ["sh", "-c", f"cat > /dev/null; {shlex.join(stop)}; rm -rf {folder}/*"]
        watcher = subprocess.Popen(
            words, stdin=subprocess.PIPE, user=user, env=_ENV, cwd="/", start_new_session=True
        )
        try:
            yield Server(folder)
        finally:
            watcher.communicate()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


def _run(user: str | None, program: str, *words: object) -> None:
    command = [str(PROGRAMS / program), *map(str, words)]
    done = subprocess.run(
        command, user=user, cwd="/", env=_ENV, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stdout[-1000:]}")
