"""Latencies of a service: histograms that can be merged, ASGI, and the sinks."""

from __future__ import annotations

import asyncio
import math
import random
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchstone
from torchstone.monitor.journal import open_record
from torchstone.monitor.serving import histogram
from torchstone.monitor.sinks import Prometheus, figures_of
from torchstone.monitor.views import view_of
from torchstone.records import UsageError
from torchstone.records.monitoring import (
    RELATIVE_ERROR,
    Histogram,
    MonitorEvent,
    MonitorHeader,
    MonitorLevel,
    merged,
)

values = st.lists(st.floats(min_value=1e-8, max_value=1e5), min_size=1, max_size=200)


@given(values, st.floats(min_value=0.0, max_value=1.0))
def test_a_quantile_is_within_the_stated_error(drawn: list[float], q: float) -> None:
    found = histogram(drawn).quantile(q)
    true = sorted(drawn)[math.floor(q * (len(drawn) - 1))]
    assert found is not None
    assert abs(found - true) <= (RELATIVE_ERROR + 1e-9) * true


@given(values, values)
def test_merging_is_the_same_as_one_histogram(a: list[float], b: list[float]) -> None:
    assert dict(merged([histogram(a), histogram(b)]).counts) == dict(histogram(a + b).counts)


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None
    assert histogram([]).total == 0


def test_requests_are_counted_with_their_queues_and_batches(tmp_path: Path) -> None:
    drawn = random.Random(0)
    seconds = [drawn.lognormvariate(-6.0, 0.5) for _ in range(10_000)]
    with torchstone.monitor.requests("api", folder=tmp_path) as service:
        for number, one in enumerate(seconds):
            service.observe(one, queued=one / 4, batch=8 if number % 4 else 1)
        with pytest.raises(ValueError, match="bad"), service.request():
            raise ValueError("bad")
    view = view_of(open_record(tmp_path))
    whole = view.ranks[0].whole
    assert (view.kind, view.state) == ("requests", "ended")
    assert (whole.steps, whole.errors) == (10_001, 1)
    assert whole.batches == {"8": 7500, "1": 2500}
    median = whole.times.quantile(0.5)
    assert median == pytest.approx(sorted(seconds)[5000], rel=2 * RELATIVE_ERROR)
    assert whole.queue is not None
    assert whole.queue.quantile(0.5) == pytest.approx(median / 4, rel=3 * RELATIVE_ERROR)


def test_the_middleware_sees_what_an_application_does(tmp_path: Path) -> None:
    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["path"] == "/raise":
            raise RuntimeError("no")
        status = 503 if scope["path"] == "/down" else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask(around: Any) -> None:
        for path in ("/", "/", "/down"):
            await around({"type": "http", "path": path}, None, send)
        await around({"type": "lifespan", "path": "/"}, None, send)
        with pytest.raises(RuntimeError, match="no"):
            await around({"type": "http", "path": "/raise"}, None, send)

    with torchstone.monitor.requests(folder=tmp_path) as service:
        asyncio.run(ask(service.middleware(app)))
    whole = view_of(open_record(tmp_path)).ranks[0].whole
    assert (whole.steps, whole.errors) == (4, 2)
    assert len(sent) == 8


def header() -> MonitorHeader:
    return MonitorHeader("x-1", 'a "name"', "training", 0, 1, 1, 0.0)


def test_prometheus_can_scrape_it(tmp_path: Path) -> None:
    with torchstone.monitor.requests(folder=tmp_path) as service:
        service.observe(0.25)
    (chunk,) = open_record(tmp_path).ranks[0].requests
    sink = Prometheus(header(), "0")
    try:
        # A scraper that connects and never reads does not keep the next one waiting.
        with socket.create_connection(("127.0.0.1", sink.port)):
            sink.write([chunk, MonitorEvent(0.0, 3, "drift", MonitorLevel.WARN, "slow")])
            address = f"http://127.0.0.1:{sink.port}/metrics"
            with urllib.request.urlopen(address, timeout=240) as answer:
                text = answer.read().decode()
    finally:
        sink.close()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    labels = 'name="a \\"name\\"",rank="0"'
    assert lines[f"torchstone_count_total{{{labels}}}"] == "1"
    assert lines[f'torchstone_events_total{{{labels},what="drift",level="warn"}}'] == "1"
    p50 = float(lines[f"torchstone_request_seconds_p50{{{labels}}}"])
    assert p50 == pytest.approx(0.25, rel=RELATIVE_ERROR)
    assert float(lines[f"torchstone_seconds_sum{{{labels}}}"]) == pytest.approx(0.25, rel=0.011)
    assert lines[f"torchstone_seconds_count{{{labels}}}"] == "1"
    parser = pytest.importorskip("prometheus_client.parser")
    families = {one.name for one in parser.text_string_to_metric_families(text)}
    assert {"torchstone_seconds", "torchstone_events", "torchstone_rss_bytes"} <= families


def test_a_port_that_is_taken_is_refused_before_training() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"Cannot bind to 127.0.0.1:{port}"):
            Prometheus(header(), str(port))
    with pytest.raises(UsageError, match="needs a port"):
        Prometheus(header(), "nonsense")


def test_open_telemetry_is_given_what_is_known(tmp_path: Path) -> None:
    metrics = pytest.importorskip("opentelemetry.metrics")
    from torchstone.monitor.sinks import OpenTelemetry

    with torchstone.monitor.requests(folder=tmp_path) as service:
        service.observe(0.25)
    (chunk,) = open_record(tmp_path).ranks[0].requests
    seen: dict[str, Any] = {}

    class Gauge:
        def __init__(self, name: str) -> None:
            self.name = name

        def set(self, value: float, attributes: Any) -> None:
            seen[self.name] = value

    sink = OpenTelemetry(header(), "")
    assert isinstance(sink._meter, metrics.Meter)
    sink._meter = type("Fake", (), {"create_gauge": lambda self, name: Gauge(name)})()
    sink.write([chunk])
    assert seen == {f"torchstone.{name}": value for name, value in figures_of(chunk).items()}
