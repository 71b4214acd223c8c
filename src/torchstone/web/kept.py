"""Things made lately, kept for the next request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Things made lately that never change, for all threads; the longest unused goes first."""

    def __init__(self, most: int) -> None:
        self._known: OrderedDict[object, T] = OrderedDict()
        self._most = most
        self._lock = Lock()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The thing of that key. Two threads may make it at once; either will do."""
        known = self.find(key)
        if known is None:
            known = make()
            self.put(key, known)
        return known

    def find(self, key: object) -> T | None:
        """The thing of that key, if it is kept."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: object, made: T) -> None:
        """Keep it."""
        with self._lock:
            self._known[key] = made
            while len(self._known) > self._most:
                self._known.popitem(last=False)


class Identity:
    """Stands for a large record in a key: equal to that very one alone, and quick to hash."""

    def __init__(self, of: object) -> None:
        self._of = of  # held, so that no other can be at its address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)
