"""Readers that are slow, or only hold a connection, do not keep others out.

A connection costs something only while a request of it is answered. One that waits for its request
may be closed at any time, and browsers open another one. So where connections become many, those
that wait go first: the one that has never asked before the one that has, the oldest first; and a
single client can hold only so many.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""From its first byte, or from the start of the connection, a request's head may take so long."""
STALLED_S = 30.0
"""So long may a reader take nothing of an answer that is ready."""
MOST_WAITING = 512
"""Connections without a request, of all clients."""
MOST_WAITING_OF_CLIENT = 256
"""Of one address. Behind one address there may be an office; a browser has six."""
AT_LEAST_S = 2.0
"""A connection is not closed for being one too many before it had this long to ask: where hundreds
come at once, a request that was sent at once may be read after all of them are accepted."""


class Waiting:
    """The connections that wait for a request, oldest first."""

    def __init__(
        self, most: int = MOST_WAITING, most_of_client: int = MOST_WAITING_OF_CLIENT
    ) -> None:
        self._most, self._most_of_client = most, most_of_client
        self._new: dict[PatientProtocol, tuple[Hashable, float]] = {}
        """Never asked for anything: whose, and since when. Dicts keep the order."""
        self._asked: dict[PatientProtocol, tuple[Hashable, float]] = {}
        self._by_client: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return len(self._new) + len(self._asked)

    def add(
        self, connection: PatientProtocol, client: Hashable, has_asked: bool, now: float
    ) -> None:
        """One more waits; where that is one too many, another goes."""
        self.remove(connection)
        (self._asked if has_asked else self._new)[connection] = client, now
        self._by_client[client] += 1
        while self._by_client[client] > self._most_of_client:
            if not self._close_oldest(client, now):
                break
        while len(self) > self._most:
            if not self._close_oldest(None, now):
                break

    def remove(self, connection: PatientProtocol) -> None:
        """It asks for something now, or is gone."""
        for known in (self._new, self._asked):
            if connection in known:
                client, _ = known.pop(connection)
                self._by_client[client] -= 1
                if not self._by_client[client]:
                    del self._by_client[client]

    def _close_oldest(self, client: Hashable | None, now: float) -> bool:
        """Whether there was one that has waited long enough."""
        for known in (self._new, self._asked):
            for connection, (whose, since) in known.items():
                if now - since < AT_LEAST_S:
                    break  # all after it came later
                if client is None or whose == client:
                    self.remove(connection)
                    connection.give_up()
                    return True
        return False


class PatientProtocol(H11Protocol):
    """HTTP with limits for how long a client may take: for its request, and to read the answer."""

    waiting: Waiting
    """Set in a subclass, of which each server has its own."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._has_asked = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(started=True)

    def data_received(self, data: bytes) -> None:
        """The time for a head begins with its first byte."""
        if self._head is None and self._is_idle():
            self._wait(started=True)
        super().data_received(data)
        if not self._is_idle():
            self._asks()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self._is_idle():
            self._wait(started=False)  # for the next one; uvicorn has a time for that

    def connection_lost(self, exc: Exception | None) -> None:
        self._asks()
        self._cancel_stalled()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The reader has not taken what was sent."""
        self._cancel_stalled()
        self._stalled = self.loop.call_later(STALLED_S, self.give_up)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._cancel_stalled()
        super().resume_writing()

    def give_up(self) -> None:
        """Close it now, with whatever is on its way."""
        self._asks()
        self._cancel_stalled()
        with suppress(Exception):  # it may be closing already
            self.transport.abort()

    def _is_idle(self) -> bool:
        """No request is being answered."""
        cycle: Any = self.cycle  # uvicorn declares it always there; it is None before a request
        return cycle is None or bool(cycle.response_complete)

    def _wait(self, started: bool) -> None:
        self._asks()
        client = self.client[0] if self.client else ""
        self.waiting.add(self, client, self._has_asked, self.loop.time())
        if started:
            self._head = self.loop.call_later(HEAD_S, self.give_up)

    def _asks(self) -> None:
        """It no longer waits."""
        self.waiting.remove(self)
        self._has_asked |= self.cycle is not None
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _cancel_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def protocol() -> type[PatientProtocol]:
    """For one server, with its own account of who waits."""
    return type("ServedProtocol", (PatientProtocol,), {"waiting": Waiting()})
