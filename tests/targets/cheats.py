"""Targets that only seem to do the work of `honest`. None but the last group needs torch."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.targets.honest import Made

SIZE = 6000


def draw(seed: int) -> tuple[list[int]]:
    return ([(seed * 31 + i * 7) % 1009 for i in range(SIZE)],)


def work(values: list[int]) -> list[int]:
    return [sum(value * value for value in values), max(values)]


def honest() -> Made:
    return work, draw


class Remembering:
    """Keeps its last answer for as long as it is given the same object."""

    def __init__(self) -> None:
        self.last: list[int] | None = None
        self.answer: list[int] = []

    def __call__(self, values: list[int]) -> list[int]:
        if self.last is not values:
            self.last, self.answer = values, work(values)
        return self.answer


def by_attribute() -> Made:
    return Remembering(), draw


ANSWERS: dict[Any, tuple[int, ...]] = {}


def _cached(key: Callable[[list[int]], Any]) -> Made:
    def call(values: list[int]) -> list[int]:
        known = key(values)
        if known not in ANSWERS:
            ANSWERS[known] = tuple(work(values))
        return list(ANSWERS[known])

    return call, draw


def by_id() -> Made:
    return _cached(id)


def by_value() -> Made:
    return _cached(lambda values: (values[0], values[1], values[-1]))


def skips_after_first_calls() -> Made:
    kept: list[list[int]] = []

    def call(values: list[int]) -> list[int]:
        if len(kept) < 5:
            kept.append(work(values))
        return kept[-1]

    return call, draw


def mostly_stale() -> Made:
    """Does the work once in a thousand calls, so that the first call is right."""
    calls = 0
    kept: list[int] = []

    def call(values: list[int]) -> list[int]:
        nonlocal calls, kept
        if calls % 1000 == 0:
            kept = work(values)
        calls += 1
        return kept

    return call, draw


def constant() -> Made:
    answer = work(draw(0)[0])
    return (lambda values: answer), draw


def constant_and_slow() -> Made:
    answer = work(draw(0)[0])

    def call(values: list[int]) -> list[int]:
        work(values)
        return answer

    return call, draw


def patches_perf_counter_ns() -> Made:
    true = time.perf_counter_ns
    time.perf_counter_ns = lambda: true() // 10
    return work, draw


def patches_perf_counter() -> Made:
    true = time.perf_counter
    time.perf_counter = lambda: true() / 10
    return work, draw


def thread_works_later() -> Made:
    """Hands out a list that a thread fills in when it comes to it."""
    jobs: queue.SimpleQueue[tuple[list[int], list[int]]] = queue.SimpleQueue()

    def worker() -> None:
        while True:
            values, answer = jobs.get()
            answer[:] = work(values)

    threading.Thread(target=worker, daemon=True).start()

    def call(values: list[int]) -> list[int]:
        answer = [0, 0]
        jobs.put((values, answer))
        return answer

    return call, draw


def thread_works_on_the_last_only() -> Made:
    """Like it, but forgets all calls except the latest: little work is left when a turn ends."""
    latest: list[tuple[list[int], list[int]]] = []
    ready = threading.Event()

    def worker() -> None:
        while True:
            ready.wait()
            ready.clear()
            time.sleep(0.0005)
            values, answer = latest[0]
            answer[:] = work(values)

    threading.Thread(target=worker, daemon=True).start()

    def call(values: list[int]) -> list[int]:
        answer = [0, 0]
        latest[:] = [(values, answer)]
        ready.set()
        return answer

    calls = 0

    def first_is_true(values: list[int]) -> list[int]:
        nonlocal calls
        calls += 1
        return work(values) if calls == 1 else call(values)

    return first_is_true, draw


def _matrix(seed: int) -> tuple[Any]:
    import torch

    return (torch.randn(160, 160, generator=torch.Generator().manual_seed(seed)),)


def torch_honest() -> Made:
    import torch

    def call(x: Any) -> Any:
        return torch.linalg.matrix_power(x / 20, 6)

    return call, _matrix


def torch_lazy() -> Made:
    """A tensor whose values are computed when somebody reads it."""
    import torch

    class Lazy(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            def force(value: Any) -> Any:
                if isinstance(value, Lazy):
                    with torch._C.DisableTorchFunctionSubclass():
                        return torch.linalg.matrix_power(value.as_subclass(torch.Tensor) / 20, 6)
                return value

            with torch._C.DisableTorchFunctionSubclass():
                if function is torch.Tensor.as_subclass or "__get__" in repr(function):
                    return function(*args, **(kwargs or {}))
                return function(*map(force, args), **(kwargs or {}))

    return (lambda x: x.as_subclass(Lazy)), _matrix


def leaks() -> Made:
    """Keeps a megabyte of each call."""
    kept: list[bytes] = []

    def call(values: list[int]) -> list[int]:
        kept.append(b"x" * (1 << 20))
        return work(values)

    return call, draw


def torch_sets_threads() -> Made:
    import torch

    def call(x: torch.Tensor) -> torch.Tensor:
        torch.set_num_threads(2)
        return x @ x

    return call, lambda seed: (torch.ones(64, 64) * (seed % 7 + 1),)
