"""What the server makes for itself after its start, without standing in a reader's way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock

PATIENCE_S = 10.0
"""For the first page; whoever has waited so long makes the page himself."""
LOOK_S = 0.02


class Courtesy:
    """Threads of one interpreter take turns, so that two who make pages take twice as long each.

    Readers wait for the first page, which is made anyway and leaves what every page needs; what
    is made after it waits for readers.
    """

    def __init__(self) -> None:
        self._made = Event()
        self._made.set()  # as long as nobody begins, nobody waits
        self._ended = Event()
        self._lock = Lock()
        self._readers = 0

    @property
    def ended(self) -> bool:
        """Whether the server is told to end, so that no further page is wanted."""
        return self._ended.is_set()

    def end(self) -> None:
        """The server ends: nobody waits for anybody any more."""
        self._ended.set()
        self._made.set()

    def begin(self) -> None:
        """A first page is going to be made."""
        self._made.clear()

    def made(self) -> None:
        """The first page is there, or there will be none."""
        self._made.set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Somebody asks for a page."""
        if not self._made.wait(PATIENCE_S):
            self._made.set()  # nor need others wait as long again
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    def give_way(self) -> None:
        """Wait until nobody reads; not for ever, because a busy server is never left alone."""
        end = time.monotonic() + PATIENCE_S
        while self._readers and time.monotonic() < end and not self._ended.wait(LOOK_S):
            pass
