"""Where chunks and events go. Each sink has a thread of its own and a queue that ends: one that is
slow, full or down loses what it cannot take, which is counted, and never holds up the training."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from torchstone.monitor.journal import encode
from torchstone.records import UsageError, in_a_line
from torchstone.records.monitoring import (
    Histogram,
    Line,
    MonitorEvent,
    MonitorHeader,
    RequestChunk,
    StepChunk,
    merged,
)
from torchstone.records.plugins import Registry, did_you_mean

MOST_WAITING = 64
"""Batches of lines: half a minute's worth."""
CLOSING_S = 2.0
"""How long a sink is waited for at the end; one that blocks for ever is left behind."""
QUANTILES = (0.5, 0.9, 0.99)


class Sink(Protocol):
    """What takes lines: in its own thread, one call at a time. It may raise and it may block."""

    def write(self, lines: Iterable[Line]) -> None:
        """Take them."""

    def close(self) -> None:
        """Nothing more comes."""


SINKS = Registry(
    "torchstone.monitor_sinks",
    {
        "jsonl": "torchstone.monitor.sinks:JsonLines",
        "otel": "torchstone.monitor.sinks:OpenTelemetry",
        "prometheus": "torchstone.monitor.sinks:Prometheus",
        "tensorboard": "torchstone.monitor.sinks:TensorBoard",
    },
)


def make_sink(given: str | Sink, header: MonitorHeader) -> tuple[str, Sink]:
    """A sink by its name and what it is given: `prometheus:9400`, `jsonl:steps.jsonl`, `otel`."""
    if not isinstance(given, str):
        return type(given).__name__, given
    name, _, argument = given.partition(":")
    known = SINKS.by_name()
    if name not in known:
        near = did_you_mean(name, known)
        raise UsageError(f"There is no sink {name!r}.", f"{near}Known: {', '.join(known)}.")
    return name, known[name].load()(header, argument)


class SinkRunner:
    """A sink's thread and queue."""

    def __init__(self, name: str, sink: Sink) -> None:
        self.name = name
        self.dropped = 0
        self.problem = ""
        """The last error, in a line."""
        self._sink = sink
        self._queue: queue.Queue[Sequence[Line] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(
            target=self._run, name=f"torchstone-sink-{name}", daemon=True
        )
        self._thread.start()

    def put(self, lines: Sequence[Line]) -> None:
        """Hand over; never waits."""
        try:
            self._queue.put_nowait(lines)
        except queue.Full:
            self.dropped += len(lines)

    def close(self) -> None:
        """Let it finish what it has, for a while."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSING_S)

    def _run(self) -> None:
        while (lines := self._queue.get()) is not None:
            try:
                self._sink.write(lines)
            except Exception as error:
                self.dropped += len(lines)
                self.problem = in_a_line(error)
        try:
            self._sink.close()
        except Exception as error:
            self.problem = in_a_line(error)


class JsonLines:
    """The same lines as the record, in a file of one's own."""

    def __init__(self, header: MonitorHeader, argument: str) -> None:
        if not argument:
            raise UsageError("The sink jsonl needs a file.", "Write jsonl:steps.jsonl.")
        path = Path(argument)
        if header.world_size > 1:
            path = path.with_name(f"{path.stem}-rank{header.rank}{path.suffix}")
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{argument} cannot be written: {error.strerror}.", "Name another file."
            ) from None
        self._file.write(encode(header) + "\n")

    def write(self, lines: Iterable[Line]) -> None:
        """A line each."""
        self._file.writelines(encode(one) + "\n" for one in lines)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# The figures that Prometheus, TensorBoard and OpenTelemetry share.


def figures_of(chunk: StepChunk | RequestChunk) -> dict[str, float]:
    """By name, in base units; what is not known is not there."""
    found: dict[str, float | None] = {}
    process = chunk.process
    if isinstance(chunk, StepChunk):
        times = merged(one.times for one in chunk.kinds.values())
        wall = sum(one.wall_ns for one in chunk.kinds.values())
        found["steps_per_second"] = chunk.steps / max(chunk.seconds, 1e-9)
        for name in next(iter(chunk.kinds.values())).phases_ns if chunk.kinds else ():
            parts = [one.phases_ns.get(name) for one in chunk.kinds.values()]
            known = [part for part in parts if part is not None]
            found[f"{name}_share"] = sum(known) / max(1, wall) if known else None
        for name, amount in (("samples", chunk.samples), ("tokens", chunk.tokens)):
            found[f"{name}_per_second"] = amount and amount / max(chunk.seconds, 1e-9)
        found["loss"] = chunk.loss
        found["flops_per_second"] = chunk.flops and chunk.flops / max(chunk.seconds, 1e-9)
        prefix = "step_seconds"
    else:
        times = chunk.latency
        found["requests_per_second"] = chunk.requests / max(chunk.seconds, 1e-9)
        found["errors_per_second"] = chunk.errors / max(chunk.seconds, 1e-9)
        prefix = "request_seconds"
    for q in QUANTILES:
        found[f"{prefix}_p{round(q * 100)}"] = times.quantile(q)
    found["rss_bytes"] = process.rss_bytes
    found["peak_bytes"] = process.peak_bytes
    found["gc_seconds"] = process.gc_ns / 1e9
    for name, waited in (("delay", process.delay_ns), ("gil_delay", process.gil_delay_ns)):
        found[f"{name}_seconds"] = waited / 1e9 if waited is not None else None
    return {name: float(value) for name, value in found.items() if value is not None}


class Prometheus:
    """An endpoint of text, by the standard library alone; `prometheus:PORT` or `HOST:PORT`.

    One a rank: the port is the given one plus the rank on this machine.
    """

    def __init__(self, header: MonitorHeader, argument: str) -> None:
        host, _, port = argument.rpartition(":")
        if not port.isdigit() or not int(port) <= 65535:
            raise UsageError("The sink prometheus needs a port.", "Write prometheus:9400.")
        self._labels = _labels({"name": header.name, "rank": str(header.rank)})
        self._lock = threading.Lock()
        self._gauges: dict[str, float] = {}
        self._steps = 0
        self._events: dict[tuple[str, str], int] = {}
        self._times = Histogram()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10.0

            def do_GET(self) -> None:
                body = sink.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """A training's stderr is not ours."""

        place = (host or "127.0.0.1", int(port) + (header.rank if int(port) else 0))
        try:
            self._server = ThreadingHTTPServer(place, Handler)
        except OSError as error:
            raise UsageError(
                f"Cannot bind to {place[0]}:{place[1]}: {error.strerror}.", "Choose another port."
            ) from None
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, name="torchstone-prometheus", daemon=True
        ).start()

    def write(self, lines: Iterable[Line]) -> None:
        """Keep the newest figures, and count."""
        with self._lock:
            for one in lines:
                if isinstance(one, (StepChunk, RequestChunk)):
                    self._gauges = figures_of(one)
                    self._add(one)
                elif isinstance(one, MonitorEvent):
                    key = (one.what, one.level.value)
                    self._events[key] = self._events.get(key, 0) + 1

    def _add(self, chunk: StepChunk | RequestChunk) -> None:
        if isinstance(chunk, StepChunk):
            self._steps += chunk.steps
            self._times = merged([self._times, *(one.times for one in chunk.kinds.values())])
        else:
            self._steps += chunk.requests
            self._times = merged([self._times, chunk.latency])

    def text(self) -> str:
        """The exposition format, version 0.0.4."""
        with self._lock:
            lines = []
            for name, value in self._gauges.items():
                full = f"torchstone_{name}"
                lines += [f"# TYPE {full} gauge", f"{full}{{{self._labels}}} {value!r}"]
            lines += ["# TYPE torchstone_count_total counter"]
            lines += [f"torchstone_count_total{{{self._labels}}} {self._steps}"]
            if self._events:
                lines += ["# TYPE torchstone_events_total counter"]
            for (what, level), number in sorted(self._events.items()):
                more = _labels({"what": what, "level": level})
                lines += [f"torchstone_events_total{{{self._labels},{more}}} {number}"]
            if self._times.counts:
                lines += ["# TYPE torchstone_seconds summary"]
            for q in QUANTILES if self._times.counts else ():
                more = _labels({"quantile": str(q)})
                found = self._times.quantile(q)
                lines += [f"torchstone_seconds{{{self._labels},{more}}} {found!r}"]
            if self._times.counts:
                lines += [f"torchstone_seconds_sum{{{self._labels}}} {self._times.sum!r}"]
                lines += [f"torchstone_seconds_count{{{self._labels}}} {self._times.total}"]
            return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Take the endpoint away."""
        self._server.shutdown()
        self._server.server_close()


def _labels(values: dict[str, str]) -> str:
    """`json` escapes what the format asks to be escaped: quotes, backslashes and new lines."""
    return ",".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
    )


class TensorBoard:
    """Scalars by step; `tensorboard:FOLDER`."""

    def __init__(self, header: MonitorHeader, argument: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(
                f"The sink tensorboard needs {error.name or 'tensorboard'}.",
                "Install it: pip install tensorboard.",
            ) from None
        folder = Path(argument or "runs") / header.name
        if header.world_size > 1:
            folder = folder / f"rank-{header.rank}"
        self._writer: Any = SummaryWriter(str(folder))
        self._requests = 0

    def write(self, lines: Iterable[Line]) -> None:
        """Each figure under `torchstone/`; events as text."""
        for one in lines:
            if isinstance(one, (StepChunk, RequestChunk)):
                step = one.last_step if isinstance(one, StepChunk) else self._count(one)
                for name, value in figures_of(one).items():
                    self._writer.add_scalar(f"torchstone/{name}", value, step, one.time_s)
            elif isinstance(one, MonitorEvent):
                self._writer.add_text("torchstone/events", one.text, one.step, one.time_s)
        self._writer.flush()

    def _count(self, chunk: RequestChunk) -> int:
        self._requests += chunk.requests
        return self._requests

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


class OpenTelemetry:
    """Gauges and a counter of events by the API of OpenTelemetry; where they go is set up by the
    program, or by the SDK's environment variables."""

    def __init__(self, header: MonitorHeader, argument: str) -> None:
        try:
            from opentelemetry import metrics
        except ImportError:
            raise UsageError(
                "The sink otel needs opentelemetry-api.",
                "Install it: pip install opentelemetry-sdk.",
            ) from None
        self._meter: Any = metrics.get_meter("torchstone")
        self._gauges: dict[str, Any] = {}
        self._events: Any = self._meter.create_counter("torchstone.events")
        self._attributes = {"name": header.name, "rank": header.rank}

    def write(self, lines: Iterable[Line]) -> None:
        """Set the gauges, count the events."""
        for one in lines:
            if isinstance(one, (StepChunk, RequestChunk)):
                for name, value in figures_of(one).items():
                    if name not in self._gauges:
                        self._gauges[name] = self._meter.create_gauge(f"torchstone.{name}")
                    self._gauges[name].set(value, self._attributes)
            elif isinstance(one, MonitorEvent):
                more = {"what": one.what, "level": one.level.value}
                self._events.add(1, {**self._attributes, **more})

    def close(self) -> None:
        """The provider is the program's."""
