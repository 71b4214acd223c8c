"""`torchstone.monitor.requests()`: latencies of a service. A request costs one append; a thread
adds them up, in a histogram that can be merged over processes."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns as _now
from typing import Any

from torchstone.machine.redact import redact_text
from torchstone.monitor.journal import Journal, monitors_folder, process_started
from torchstone.monitor.session import RECORD, new_id
from torchstone.monitor.sinks import Sink, SinkRunner, make_sink
from torchstone.monitor.system import ProcessWatch
from torchstone.records import UsageError
from torchstone.records.monitoring import (
    LOG_GAMMA,
    Histogram,
    Line,
    MonitorEnd,
    MonitorHeader,
    RequestChunk,
)

CHUNK_S = 1.0
MOST_WAITING = 1_000_000
"""Requests that wait to be added up: minutes of ten thousand a second. More are lost, counted."""
MOST_SIZES = 64
"""Different batch sizes that are told apart."""
NOT_GIVEN = -1.0
_SERVER_ERROR = 500


class Requests:
    """What `torchstone.monitor.requests()` returns. Open it with `with`, or `start` and `close`."""

    def __init__(
        self,
        name: str = "service",
        *,
        sinks: Sequence[str | Sink] = (),
        folder: str | Path | None = None,
        chunk_s: float = CHUNK_S,
    ) -> None:
        self.id = new_id(name)
        self.folder = Path(folder) if folder is not None else monitors_folder() / self.id
        self._name = name
        self._given = sinks
        self._chunk_s = chunk_s
        self._waiting: deque[tuple[float, float, int, bool]] = deque(maxlen=MOST_WAITING)
        self._put = self._waiting.append
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._served = 0

    def observe(
        self,
        seconds: float,
        *,
        queued: float | None = None,
        batch: int = 0,
        failed: bool = False,
    ) -> None:
        """One request is answered: how long it took, how much of that it was queued, and the size
        of the batch that it was served in."""
        self._put((seconds, NOT_GIVEN if queued is None else queued, batch, failed))

    @contextmanager
    def request(self, *, queued: float | None = None, batch: int = 0) -> Iterator[None]:
        """Time what is inside; an error counts as a failed request."""
        began = _now()
        try:
            yield
        except BaseException:
            self.observe((_now() - began) / 1e9, queued=queued, batch=batch, failed=True)
            raise
        self.observe((_now() - began) / 1e9, queued=queued, batch=batch)

    def middleware(self, app: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        """An ASGI application around `app`: each HTTP request is observed until its last byte."""

        async def watched(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope.get("type") != "http":
                await app(scope, receive, send)
                return
            began = _now()
            status = 0

            async def sending(message: dict[str, Any]) -> None:
                nonlocal status
                if message.get("type") == "http.response.start":
                    status = int(message.get("status", 0))
                await send(message)

            failed = True
            try:
                await app(scope, receive, sending)
                failed = status >= _SERVER_ERROR
            finally:
                self._put(((_now() - began) / 1e9, NOT_GIVEN, 0, failed))

        return watched

    # Opening and closing.

    def start(self) -> Requests:
        """Begin to write."""
        if self._thread is not None:
            raise UsageError("These requests are watched already.", "Make another one.")
        header = MonitorHeader(
            id=self.id,
            name=self._name,
            kind="requests",
            rank=0,
            world_size=1,
            pid=os.getpid(),
            started_s=time.time(),
            process_started=process_started(os.getpid()),
            host=socket.gethostname(),
            command=redact_text(" ".join(sys.argv), os.environ)[:500],
        )
        named = [make_sink(one, header) for one in self._given]
        self._runners = [SinkRunner(RECORD, Journal(self.folder, header))]
        self._runners += [SinkRunner(name, sink) for name, sink in named]
        self._runners[0].put(())
        self._process = ProcessWatch()
        self._at = time.time()
        self._thread = threading.Thread(target=self._run, name="torchstone-requests", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Write what is left."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._look()
        self._hand_on([MonitorEnd(time.time(), self._served)])
        for one in self._runners:
            one.close()
        self._thread = None

    def __enter__(self) -> Requests:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # In the monitor's own thread.

    def _run(self) -> None:
        while not self._stop.wait(self._chunk_s):
            try:
                self._look()
            except Exception as error:  # a service goes on, whatever happens here
                for one in self._runners:
                    one.problem = f"{type(error).__name__}: {error}"

    def _look(self) -> None:
        now = time.time()
        found = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not found:
            return
        queues = [queued for _, queued, _, _ in found if queued >= 0]
        sizes = Counter(batch for _, _, batch, _ in found if batch)
        self._served += len(found)
        dropped = {one.name: one.dropped for one in self._runners if one.dropped}
        chunk = RequestChunk(
            now,
            now - self._at,
            len(found),
            sum(failed for _, _, _, failed in found),
            histogram([seconds for seconds, _, _, _ in found]),
            histogram(queues) if queues else None,
            {str(size): count for size, count in sizes.most_common(MOST_SIZES)},
            self._process.look(),
            dropped,
        )
        self._at = now
        self._hand_on([chunk])

    def _hand_on(self, lines: list[Line]) -> None:
        for one in self._runners:
            one.put(lines)


def histogram(values: Sequence[float]) -> Histogram:
    """Of positive values; what is not positive counts as a nanosecond."""
    import numpy as np

    if not values:
        return Histogram()
    floored = np.maximum(np.asarray(values, dtype=np.float64), 1e-9)
    buckets = np.ceil(np.log(floored) / LOG_GAMMA).astype(int)
    found, counts = np.unique(buckets, return_counts=True)
    return Histogram({str(b): int(n) for b, n in zip(found, counts, strict=True)})


def requests(
    name: str = "service",
    *,
    sinks: Sequence[str | Sink] = (),
    folder: str | Path | None = None,
) -> Requests:
    """Watch a service: `with torchstone.monitor.requests("api") as r:` and `r.observe(seconds)` for
    each request, or `app = r.middleware(app)` around an ASGI application.

    `sinks` and `folder` are those of `torchstone.monitor`.
    """
    return Requests(name, sinks=sinks, folder=folder)
