"""The same multi-threaded Python, with and without the interpreter's lock.

Four threads count in pure Python. With a lock (GIL) they take turns, and four threads are no faster
than one after the other; a free-threaded interpreter runs them at once:

    torchstone bench examples/threads.py:make_one_by_one examples/threads.py:make
    torchstone bench examples/threads.py:make --arm "name=free python=python3.13t"

The step itself only waits for its threads, and that is what its ledger shows. Below it stands how
much of their time the threads waited for the lock:

    torchstone explain examples/threads.py:make
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

THREADS = 4
COUNT = 20_000


def count(limit: int) -> int:
    """Pure Python: it holds the lock all the time, where there is one."""
    total = 0
    for number in range(limit):
        total += number & 7
    return total


def make() -> tuple[Callable[[int], int], tuple[int]]:
    """Shared among threads."""
    pool = ThreadPoolExecutor(THREADS)

    def step(limit: int) -> int:
        return sum(pool.map(count, [limit] * THREADS))

    return step, (COUNT,)


def make_one_by_one() -> tuple[Callable[[int], int], tuple[int]]:
    """The same work in one thread."""

    def step(limit: int) -> int:
        return sum(count(limit) for _ in range(THREADS))

    return step, (COUNT,)
