"""The command: where it listens, what it refuses, and readers beside a writer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from tests.targets.support import eventually
from tests.web import stored
from tests.web.conftest import PATIENCE_S
from tests.web.real_server import served
from torchstone.cli.app import cli
from torchstone.records import UsageError
from torchstone.store import open_store
from torchstone.web.serving import is_loopback, serve

READERS, READING_S = 200, 10.0
"""All of them ask at once, and again as soon as they are answered; for a minute in
`benchmarks/dashboard.py`."""
LONG_S = 3 * PATIENCE_S
"""For an answer that two hundred others are waiting for, too, on a machine that is shared."""
SERVE = "import sys; from torchstone.web.serving import serve; sys.exit(serve({}, db={!r}, port=0))"


def said(line: str) -> None:
    raise AssertionError(line)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.7", "lab.example", "127.evil.example"]
)
def test_others_may_only_look_when_that_was_asked_for(database: Path, host: str) -> None:
    with pytest.raises(UsageError) as refused:
        serve(said, db=str(database), host=host)
    assert "--public" in refused.value.remedy
    assert "could read everything" in refused.value.message


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_this_machine_alone_needs_no_permission(host: str) -> None:
    assert is_loopback(host)


def test_a_taken_port_is_said(database: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError) as refused:
            serve(said, db=str(database), port=taken.getsockname()[1])
    assert "--port" in refused.value.remedy


def page(address: str) -> str:
    with urlopen(address, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("empty_file", [False, True])
def test_a_database_that_is_not_there_yet_is_served_empty_and_picks_up_the_first_run(
    tmp_path: Path, empty_file: bool
) -> None:
    path = tmp_path / "later.db"
    if empty_file:
        path.touch()
    with started(SERVE.format("print", str(path))) as (process, address):
        assert "No run is stored yet." in page(address)
        with open_store(str(path)) as store:
            stored.add_night(store, 0, stored.keys())
        assert eventually(lambda: "huggingface" in page(address), PATIENCE_S)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)


def test_a_folder_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        serve(said, db=str(tmp_path / "no" / "none.db"))
    assert list(tmp_path.iterdir()) == []


@contextmanager
def started(program: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and the address that it says."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield process, next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
    finally:
        process.kill()
        process.wait()


def test_it_says_where_it_is_and_ends_with_the_first_interrupt(database: Path) -> None:
    before = database.read_bytes()
    with started(SERVE.format("print", str(database))) as (process, address):
        with urlopen(f"{address}runs", timeout=PATIENCE_S) as answer:
            assert b"night05x" in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in errors
    assert process.returncode == 0
    assert database.read_bytes() == before  # it only reads


SLOW_PAGE = """
import time
from torchstone.web.app import AppState
def warm(app_state):
    print("making", flush=True)
    time.sleep(3600)
AppState.warm = warm
"""


@pytest.mark.slow
def test_a_second_interrupt_does_not_wait_for_a_page(database: Path) -> None:
    with started(SLOW_PAGE + SERVE.format("print", str(database))) as (process, address):
        assert process.stdout is not None
        assert process.stdout.readline() == "making\n"
        with urlopen(f"{address}runs", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):  # the page is being made
            process.wait(2.0)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_missing_library_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.cli.db.SERVER", "torchstone_no_such_module:serve")
    done = CliRunner().invoke(cli, ["serve"])
    assert isinstance(done.exception, UsageError)
    assert "torchstone_no_such_module" in done.exception.message
    assert done.exception.remedy == "Install it: pip install 'torchstone[web]'."


def test_the_site_is_written_by_the_export_command(tmp_path: Path) -> None:
    path, out = tmp_path / "one.db", tmp_path / "public"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, stored.keys(["timm"])[:2])
    words = ["export", "--format", "site", str(out), "--db", str(path)]
    done = CliRunner().invoke(cli, words)
    assert done.exception is None or done.exit_code == 0, done.exception
    assert (out / "index.html").is_file()
    assert f"{out / 'index.html'}: " in done.output
    again = CliRunner().invoke(cli, words)
    assert isinstance(again.exception, UsageError)
    assert "--force" in again.exception.remedy


@pytest.mark.slow
def test_many_readers_and_a_writer_do_not_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "busy.db"
    cases = stored.keys(["timm"])
    with open_store(str(path)) as store:
        stored.add_night(store, 0, cases)
    pages = ("/", "/suite", "/compare", "/failures", "/runs", "/api/v1/progress", "/machines")
    stop = threading.Event()
    end = time.monotonic() + READING_S
    written: list[int] = []

    def write() -> None:
        with open_store(str(path)) as store:
            while not stop.is_set():
                written.append(len(written) + 1)
                stored.add_night(store, written[-1], cases)

    with served(path) as address:

        def read(number: int) -> list[int]:
            """Asks again as soon as it is answered."""
            seen: list[int] = []
            while not seen or time.monotonic() < end:
                page = pages[(number + len(seen)) % len(pages)]
                with urlopen(address + page, timeout=LONG_S) as answer:
                    answer.read()
                    seen.append(int(answer.status))
            return seen

        writer = threading.Thread(target=write)
        writer.start()
        with ThreadPoolExecutor(READERS) as readers:
            answers = list(readers.map(read, range(READERS)))
        stop.set()
        writer.join(PATIENCE_S)
    assert {status for seen in answers for status in seen} == {200}
    assert len(written) > 1
