"""The real server and the real writer as processes of their own, and one reader."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboard_history import Shape
from dashboard_writer import READY

HERE = Path(__file__).resolve().parent
PATIENCE_S = 60.0
REST_S = 0.1
RESTS = 3
"""So many looks in a row at which the server had used no processor time: it is at rest."""
_TICKS = os.sysconf("SC_CLK_TCK")


class BenchmarkError(Exception):
    """The benchmark cannot go on; the sentence says why."""


@dataclass(frozen=True)
class Answer:
    """One reply."""

    ms: float
    status: int
    body: bytes


def again(address: str, number: int) -> str:
    """The same page under an address that nobody has asked for: the server keeps whole answers
    while nothing is stored, and those would say nothing about making a page."""
    return f"{address}{'&' if '?' in address else '?'}again={number}"


@dataclass(frozen=True)
class Server:
    """A running `torchstone serve`."""

    pid: int
    port: int
    start_s: float
    """From its start until it said where it is."""

    def get(self, address: str) -> Answer:
        """Ask once, over a connection of its own; connecting counts."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        began = time.perf_counter()
        try:
            connection.request("GET", address)
            reply = connection.getresponse()
            body = reply.read()
            return Answer((time.perf_counter() - began) * 1e3, reply.status, body)
        except OSError as error:
            raise BenchmarkError(f"the server does not answer {address}: {error}") from None
        finally:
            connection.close()

    def must_get(self, address: str) -> Answer:
        """The same; anything but a page is trouble, because its time would say nothing."""
        found = self.get(address)
        if found.status != 200:
            told = found.body[:300].decode("utf-8", "replace")
            raise BenchmarkError(f"{address} answered {found.status}: {told}")
        return found

    def data(self, address: str) -> Any:
        """A document of the API."""
        return json.loads(self.must_get(address).body)

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        parts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / _TICKS

    def peak_bytes(self) -> int:
        """The most memory that it has held."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        return int(found[1]) * 1024 if found else 0

    def rest(self) -> None:
        """Wait until it has done what it does by itself after a start."""
        quiet, last, end = 0, self.cpu_s(), time.monotonic() + PATIENCE_S
        while quiet < RESTS and time.monotonic() < end:
            time.sleep(REST_S)
            now = self.cpu_s()
            quiet = quiet + 1 if now == last else 0
            last = now


@contextmanager
def serving(path: Path) -> Iterator[Server]:
    """`torchstone serve` on a free port of this machine."""
    words = [sys.executable, "-m", "torchstone", "serve", "--db", str(path), "--port", "0"]
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            if found is None:
                process.wait(PATIENCE_S)
                said.seek(0)
                raise BenchmarkError(f"the server did not start: {said.read().strip() or line}")
            yield Server(process.pid, int(found[1]), time.perf_counter() - began)
        finally:
            _end(process)


@dataclass
class Written:
    """What the writer did; known when it has ended."""

    took_ms: list[float] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    """Times that it was refused because others held the database."""
    failed: list[str] = field(default_factory=list)


@contextmanager
def writing(path: Path, shape: Shape, every_s: float) -> Iterator[Written]:
    """A program that stores a case now and then."""
    words = [sys.executable, str(HERE / "dashboard_writer.py"), str(path)]
    for name in ("nights", "models", "variants", "seed"):
        words += [f"--{name}", str(getattr(shape, name))]
    words += ["--every", str(every_s)]
    written = Written()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        )
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                process.wait(PATIENCE_S)
                said.seek(0)
                raise BenchmarkError(f"the writer did not start: {said.read().strip()[-600:]}")
            yield written
            told, _ = process.communicate(timeout=PATIENCE_S)  # closes its input: it ends
            if process.returncode:
                said.seek(0)
                raise BenchmarkError(f"the writer failed: {said.read().strip()[-600:]}")
            for name, value in json.loads(told).items():
                setattr(written, name, value)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Ask it to end, and see that it does."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
