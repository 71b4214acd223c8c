"""What the zoo really runs: work done honestly, and the ways of only seeming to do it.

Nothing but the second half needs torch, so that most workers start in a blink.
"""

from __future__ import annotations

import mmap
import queue
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

Made = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]

LENGTH = 6000
PAGE = 4096
SCRATCH = 8 << 20


def draw(seed: int) -> tuple[list[int]]:
    return ([(seed * 31 + i * 7) % 1009 for i in range(LENGTH)],)


def draw_short(seed: int) -> tuple[list[int]]:
    return ([(seed * 31 + i * 7) % 1009 for i in range(300)],)


def work(values: list[int]) -> list[int]:
    return [sum(value * value for value in values), max(values)]


def honest() -> Made:
    return work, draw


def short() -> Made:
    """Tens of microseconds: many calls make a sample."""
    return work, draw_short


def twice() -> Made:
    """Twice the work for the same answer."""
    return (lambda values: [work(values) for _ in range(2)][-1]), draw


def better() -> Made:
    """The same answer in far less time: built-ins instead of a loop over its own copies."""

    def call(values: list[int]) -> list[int]:
        return [sum(map(int.__mul__, values, values)), max(values)]

    return call, draw


def twenty_times() -> Made:
    """The same answer the long way, so that the plain one is honestly that much faster."""
    return (lambda values: [work(values) for _ in range(20)][-1]), draw


def floats() -> Made:
    def call(values: list[int]) -> list[float]:
        total = sum(value * 0.5 for value in values)
        return [total, total / len(values)]

    return call, draw


def words() -> Made:
    return (lambda values: " ".join(map(str, values))[:200]), draw


def ordered() -> Made:
    return (lambda values: sorted(values)[1000:3000:50]), draw


def sleeper() -> Made:
    """Waits as if for a disk or a service; its time is real."""

    def call(values: list[int]) -> list[int]:
        time.sleep(0.001)
        return work(values)

    return call, draw


def allocates_a_little() -> Made:
    return (lambda values: work(list(values))), draw


def joins_its_thread() -> Made:
    """A thread does the work, and the call waits for it."""

    def call(values: list[int]) -> list[int]:
        answer: list[int] = []
        thread = threading.Thread(target=lambda: answer.extend(work(values)))
        thread.start()
        thread.join()
        return answer

    return call, draw


def remembers_the_last() -> Made:
    last: list[Any] = [None, None]

    def call(values: list[int]) -> list[int]:
        if last[0] is not values:
            last[:] = [values, work(values)]
        return list(last[1])

    return call, draw


def _remembers(key: Callable[[list[int]], Any]) -> Made:
    answers: dict[Any, list[int]] = {}

    def call(values: list[int]) -> list[int]:
        known = key(values)
        if known not in answers:
            answers[known] = work(values)
        return list(answers[known])

    return call, draw


def remembers_by_identity() -> Made:
    return _remembers(id)


def remembers_by_value() -> Made:
    return _remembers(lambda values: (values[0], values[1], values[-1]))


def skips_after_five_calls() -> Made:
    kept: list[list[int]] = []

    def call(values: list[int]) -> list[int]:
        if len(kept) < 5:
            kept.append(work(values))
        return kept[-1]

    return call, draw


def mostly_stale() -> Made:
    """Works once in a thousand calls, so that a first call is right."""
    calls, kept = 0, [0, 0]

    def call(values: list[int]) -> list[int]:
        nonlocal calls, kept
        if calls % 1000 == 0:
            kept = work(values)
        calls += 1
        return kept

    return call, draw


def half_the_work() -> Made:
    return (lambda values: [2 * sum(v * v for v in values[::2]), max(values)]), draw


def constant() -> Made:
    answer = work(draw(0)[0])

    def call(values: list[int]) -> list[int]:
        work(values)
        return answer

    return call, draw


def patches_the_timer() -> Made:
    true = time.perf_counter_ns
    time.perf_counter_ns = lambda: true() // 10
    return work, draw


def works_later() -> Made:
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


class Stream:
    """A device that computes in its own time, as accelerators do."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Callable[[], None]] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.queue.get()()
            self.queue.task_done()

    def launch(self, kernel: Callable[[], None]) -> None:
        self.queue.put(kernel)

    def synchronize(self) -> None:
        self.queue.join()


def _on_the_stream(synchronize: bool) -> Made:
    stream = Stream()

    def call(values: list[int]) -> list[int]:
        answer = [0, 0]

        def kernel() -> None:
            answer[:] = work(values)

        stream.launch(kernel)
        if synchronize:
            stream.synchronize()
        return answer

    return call, draw


def synchronises() -> Made:
    return _on_the_stream(True)


def forgets_to_synchronise() -> Made:
    return _on_the_stream(False)


def leaves_a_profiler_on() -> Made:
    sys.setprofile(lambda frame, event, argument: None)
    return work, draw


def leaves_a_tracer_on() -> Made:
    sys.settrace(lambda frame, event, argument: None)
    return work, draw


def leaves_tracemalloc_on() -> Made:
    tracemalloc.start()
    return work, draw


def never_settles() -> Made:
    """Every call takes 2 % longer than the one before, up to some 60 ms."""
    extra = 20_000.0

    def call(values: list[int]) -> list[int]:
        nonlocal extra
        extra = min(1.02 * extra, 3e6)
        for _ in range(int(extra)):
            pass
        return work(values)

    return call, draw


def keeps_its_scratch() -> Made:
    scratch = mmap.mmap(-1, SCRATCH)

    def call(values: list[int]) -> list[int]:
        for place in range(0, SCRATCH, PAGE):
            scratch[place] = 1
        return work(values)

    return call, draw


def maps_its_scratch_anew() -> Made:
    """The same work in memory that is given back after each call."""

    def call(values: list[int]) -> list[int]:
        with mmap.mmap(-1, SCRATCH) as scratch:
            for place in range(0, SCRATCH, PAGE):
                scratch[place] = 1
        return work(values)

    return call, draw


def two_layers() -> Any:
    """The model of the stored record."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)
    ).eval()
    return model, lambda seed: (_normal(seed, 64, 256),)


def _normal(seed: int, *shape: int) -> Any:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def product() -> Any:
    """One large matrix product: what the compute peak is made of."""
    return (lambda a, b: a @ b), lambda seed: (_normal(seed, 512, 512), _normal(seed + 1, 512, 512))


def stream() -> Any:
    """Adds two arrays of 16 MiB: limited by memory, or by the last cache where that is large."""

    def inputs(seed: int) -> Any:
        import torch

        return torch.arange(1 << 22) * 0.5 + seed, torch.arange(1 << 22) * 0.25 + seed

    return (lambda a, b: a + b), inputs


def many_small_ops() -> Any:
    def call(x: Any) -> Any:
        for _ in range(100):
            x = x * 1.01 + 0.01
        return x

    return call, lambda seed: (_normal(seed, 8),)


def half_precision() -> Any:
    """The right answer in another type, which nobody asked for."""
    import torch

    model, inputs = two_layers()
    return (lambda x: model(x).to(torch.bfloat16)), inputs


def other_threads() -> Any:
    """Takes a thread more than the baseline has."""
    import torch

    torch.set_num_threads(torch.get_num_threads() + 1)
    return two_layers()


def counts_while_timed() -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    FlopCounterMode(display=False).__enter__()
    return two_layers()


def lazy() -> Any:
    """A tensor whose values are computed when somebody reads it."""
    import torch

    class Lazy(torch.Tensor):
        pass

    model, inputs = two_layers()

    def call(x: Any) -> Any:
        with torch.no_grad():
            return model(x).as_subclass(Lazy)

    return call, inputs


def half_the_layers() -> Any:
    """Leaves out a layer whose output is nearly what went in."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Linear(256, 256).eval(), lambda seed: (_normal(seed, 64, 256),)
