"""The dashboard among readers that are slow: do the others still get their pages?

Slow readers open a connection and say nothing, or send their request a byte a second, or ask for a
page and do not read it; when they are closed they come again. Quick readers ask, read, wait a
moment and ask again. `--slow 2000 --quick 200 --seconds 60` is the measurement in the docs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MOST_P95_S = 1.0
"""The aim for quick readers, and no answer from 500 on."""
THINK_S = 2.0
PAGES = ("/", "/runs", "/failures", "/machines", "/api/v1/runs")
KINDS = ("silent", "dribbling", "not reading")
PATIENCE_S = 30.0


@dataclass
class Seen:
    """What the quick readers saw."""

    took_s: list[float] = field(default_factory=list)
    health_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    slow_opened: int = 0

    def p95_s(self, of: list[float]) -> float:
        """The time that one in twenty exceeds."""
        return sorted(of)[int(0.95 * (len(of) - 1))] if of else float("inf")

    @property
    def faults(self) -> int:
        """Answers from 500 on."""
        return sum(number for status, number in self.statuses.items() if status >= 500)


async def ask(host: str, port: int, path: str) -> int:
    """One request on a connection of its own; the status."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.read(-1), PATIENCE_S)
        return int(answer.split(b" ", 2)[1])
    finally:
        writer.close()


async def quick(host: str, port: int, until: float, seen: Seen, chance: random.Random) -> None:
    """Look at pages; each tenth time at the server's health."""
    await asyncio.sleep(chance.random() * THINK_S)
    while time.monotonic() < until:
        healthy = chance.random() < 0.1
        path = "/health" if healthy else chance.choice(PAGES)
        began = time.monotonic()
        try:
            seen.statuses[await ask(host, port, path)] += 1
            (seen.health_s if healthy else seen.took_s).append(time.monotonic() - began)
        except (OSError, IndexError, ValueError, asyncio.TimeoutError) as error:
            seen.errors[type(error).__name__] += 1
        await asyncio.sleep(THINK_S * (0.5 + chance.random()))


async def slow(host: str, port: int, until: float, seen: Seen, chance: random.Random) -> None:
    """Hold a connection in one of the ways, and come again when it is closed."""
    kind = chance.choice(KINDS)
    await asyncio.sleep(chance.random())
    while time.monotonic() < until:
        with suppress(OSError, asyncio.TimeoutError):
            reader, writer = await asyncio.open_connection(host, port)
            seen.slow_opened += 1
            try:
                await _hold(kind, host, reader, writer, until)
            finally:
                writer.close()
        await asyncio.sleep(0.5 + chance.random())


async def _hold(
    kind: str,
    host: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    until: float,
) -> None:
    head = f"GET /runs HTTP/1.1\r\nHost: {host}\r\nX-Slow: {'x' * 200}\r\n\r\n".encode()
    if kind == "not reading":
        writer.write(head)
        await asyncio.sleep(max(0.0, until - time.monotonic()))
        return
    for byte in head:
        if kind == "dribbling":
            writer.write(bytes([byte]))
        left = max(0.01, min(1.0, until - time.monotonic()))
        with suppress(asyncio.TimeoutError):
            if not await asyncio.wait_for(reader.read(1), left):
                return  # closed by the server
        if time.monotonic() >= until:
            return


async def read(address: str, slow_readers: int, quick_readers: int, seconds: float) -> Seen:
    """All of them at once, for so long."""
    parts = urlsplit(address)
    host, port = str(parts.hostname), int(parts.port or 80)
    seen, until = Seen(), time.monotonic() + seconds
    every = [
        *(slow(host, port, until, seen, random.Random(i)) for i in range(slow_readers)),
        *(quick(host, port, until, seen, random.Random(-1 - i)) for i in range(quick_readers)),
    ]
    await asyncio.gather(*every)
    return seen


def measure(slow_readers: int, quick_readers: int, seconds: float, nights: int = 5) -> Seen:
    """A server with a few nights of runs, and its readers."""
    from tests.web.real_server import served
    from tests.web.stored import make_database

    with tempfile.TemporaryDirectory() as folder:
        path = make_database(Path(folder) / "readers.db", nights=nights)
        with served(path) as address:
            return _both(address, slow_readers, quick_readers, seconds)


async def read_one(address: str, path: str) -> int:
    """The status of one page."""
    parts = urlsplit(address)
    return await ask(str(parts.hostname), int(parts.port or 80), path)


def _both(address: str, slow_readers: int, quick_readers: int, seconds: float) -> Seen:
    """The slow ones in a process of their own: their number must not slow the quick ones down
    anywhere but in the server."""
    words = [sys.executable, __file__, "--slow", str(slow_readers), "--quick", "0"]
    words += ["--seconds", str(seconds + 5), "--at", address]
    crowd = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(2.0)  # until they are there
        for page in PAGES:  # made once: what a first look costs is measured elsewhere
            asyncio.run(read_one(address, page))
        seen = asyncio.run(read(address, 0, quick_readers, seconds))
        opened, _ = crowd.communicate(timeout=PATIENCE_S + seconds)
        seen.slow_opened = int(opened)
    finally:
        crowd.kill()
        crowd.wait()
    return seen


def _more_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 16_384 if hard == resource.RLIM_INFINITY else min(hard, 16_384)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=int, default=2000)
    parser.add_argument("--quick", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", help="write what was seen to this file")
    parser.add_argument("--at", help="only read, at this address; prints the connections opened")
    asked = parser.parse_args()
    if asked.at:
        _more_files()
        print(asyncio.run(read(asked.at, asked.slow, asked.quick, asked.seconds)).slow_opened)
        return 0
    seen = measure(asked.slow, asked.quick, asked.seconds)
    p95, health = seen.p95_s(seen.took_s), seen.p95_s(seen.health_s)
    met = p95 < MOST_P95_S and not seen.faults
    print(
        f"{asked.slow} slow readers ({seen.slow_opened} connections) and {asked.quick} quick ones "
        f"for {asked.seconds:g} s: {len(seen.took_s)} pages, p95 {p95:.3f} s, health p95 "
        f"{health:.3f} s, answers {dict(seen.statuses)}, errors {dict(seen.errors)}."
    )
    print(f"Aim (p95 under {MOST_P95_S:g} s, no 5xx): {'met' if met else 'NOT met'}.")
    if asked.json:
        found = {**asdict(seen), "p95_s": p95, "health_p95_s": health}
        found["statuses"] = {str(status): number for status, number in seen.statuses.items()}
        Path(asked.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
