"""Many readers at once: each asks for a page, looks at it for a while if it is to, and asks for the
next. Readers that do not look keep as many requests in flight as there are of them."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dashboard_routes import Route
from dashboard_server import Server

PATIENCE_S = 60.0
WEIGHTS = {"page": 3, "wide": 1, "api": 1}
POLLS = 12
"""The weight of the small answer that open pages ask for again and again."""
HELD = b"is held by another program"
"""What the server says when the database was locked for too long."""


@dataclass
class Seen:
    """What all readers saw."""

    took_ms: list[float] = field(default_factory=list)
    by_name: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    locked: int = 0
    seconds: float = 0.0

    @property
    def server_faults(self) -> int:
        """Answers from 500 on."""
        return sum(number for status, number in self.statuses.items() if status >= 500)

    @property
    def not_ok(self) -> int:
        """Any answer but a page."""
        return sum(number for status, number in self.statuses.items() if status != 200)

    def note(self, name: str, ms: float, status: int, body: bytes) -> None:
        """Keep one answer."""
        self.took_ms.append(ms)
        self.by_name.setdefault(name, []).append(ms)
        self.statuses[status] += 1
        self.locked += HELD in body


def read(
    server: Server,
    routes: Sequence[Route],
    readers: int,
    seconds: float,
    think_s: float,
    seed: int = 0,
) -> Seen:
    """Let them read for so long. The next request of a reader waits for the answer to the last."""
    return asyncio.run(_all(server, routes, readers, seconds, think_s, seed))


async def _all(
    server: Server,
    routes: Sequence[Route],
    readers: int,
    seconds: float,
    think_s: float,
    seed: int,
) -> Seen:
    seen = Seen()
    weights = [POLLS if one.name == "progress" else WEIGHTS[one.kind] for one in routes]
    began = time.perf_counter()
    end = began + seconds

    async def reader(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        await asyncio.sleep(chance.uniform(0, min(think_s, seconds)))
        while time.perf_counter() < end:
            (route,) = chance.choices(routes, weights)
            started = time.perf_counter()
            try:
                status, body = await asyncio.wait_for(_get(server.port, route.address), PATIENCE_S)
            except (
                OSError,
                ValueError,
                asyncio.IncompleteReadError,
                asyncio.TimeoutError,
            ) as error:
                seen.errors.append(f"{route.address}: {type(error).__name__} {error}")
            else:
                seen.note(route.name, (time.perf_counter() - started) * 1e3, status, body)
            await asyncio.sleep(chance.uniform(0.5, 1.5) * think_s)

    await asyncio.gather(*(reader(number) for number in range(readers)))
    seen.seconds = time.perf_counter() - began
    return seen


async def _get(port: int, address: str) -> tuple[int, bytes]:
    """One request over a connection of its own."""
    incoming, outgoing = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
        outgoing.write(head.encode("ascii"))
        await outgoing.drain()
        reply = await incoming.read(-1)
    finally:
        outgoing.close()
    head_of, apart, body = reply.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head_of)
    if not apart or (length and int(length[1]) != len(body)):
        raise ValueError("half an answer")
    return int(head_of.split()[1]), body
