"""Steps under torch's own tracer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.explain.passes import report
from torchstone.explain.passes.blocked import CollectionClock, WaitClock
from torchstone.explain.passes.compiler import breaking_regions
from torchstone.explain.passes.dispatch_reference import DispatchReference, marker
from torchstone.explain.passes.plain import quiet, summary, take_samples
from torchstone.explain.passes.report import OpTime, Traced
from torchstone.explain.passes.tally import Event, Tally

ON_DEVICE = -1
"""Stands for the thread of events that ran on a device."""


def traced_round(
    block: Callable[[], object],
    loops: int,
    count: int,
    wait: WaitClock,
    device: str = "cpu",
    between: DispatchReference | None = None,
) -> Traced:
    """`count` samples of `loops` steps each, traced; a reference call `between` them."""
    mark = marker()

    def marked() -> None:
        with mark(report.STEP):
            block()

    with CollectionClock().watching() as collecting:
        events, samples = trace(
            lambda: take_samples(marked, count, wait, collecting, between), device
        )
    tally = Tally()
    steps = steps_of(events)
    if len(steps) != len(samples):
        raise RuntimeError(f"{len(samples)} samples were traced, and {len(steps)} came out")
    kept = quiet(samples)
    breaking = breaking_regions()
    for i in kept:
        tally.add(*steps[i], breaking)
    copies = copies_of(events, [steps[i][:2] for i in kept], loops)
    speeds, grad_speeds = between.speeds(events) if between is not None else ({}, {})
    usual = summary([samples[i] for i in kept], loops, samples)
    sums = tally.sums(loops, usual["cpu"] + usual["off"])
    return Traced(
        steps=loops * len(kept),
        **usual,
        events=(tally.events + len(kept)) / (loops * len(kept)),
        places=sums.places(),
        ops=sums.ops(report.OP),
        kernels=sums.ops(report.KERNEL),
        copies=copies,
        breaks=sums.breaks,
        speeds=speeds,
        grad_speeds=grad_speeds,
    )


def trace(run: Callable[[], Any], device: str = "cpu") -> tuple[list[tuple[Any, ...]], Any]:
    """The events while `run` went on, of all threads and of the device, and what it returned."""
    from torch.profiler import profile

    with profile(activities=_activities(device)) as profiler:
        result = run()
    found = []
    kineto = getattr(profiler.profiler, "kineto_results", None)
    for event in kineto.events() if kineto is not None else ():
        found.append(
            (
                event.start_thread_id() if _on_host(event) else ON_DEVICE,
                event.start_ns(),
                -event.duration_ns(),
                event.name(),
                _is_annotation(event),
                event.sequence_nr(),
            )
        )
    found.sort(key=lambda row: row[:3])
    return found, result


def steps_of(rows: list[tuple[Any, ...]]) -> list[tuple[int, int, list[Event]]]:
    """Each marked step with the events inside it on its thread, in order, longer first."""
    steps: list[tuple[int, int, list[tuple[Any, ...]]]] = []
    end, thread = 0, None
    for row in rows:
        owner, start, minus, name, annotation, sequence = row
        if owner == ON_DEVICE:  # which has marks of its own, and runs beside the thread
            continue
        if name == report.STEP:
            steps.append((start, -minus, []))
            end, thread = start - minus, owner
        elif steps and owner == thread and start < end:
            steps[-1][2].append((name, start, -minus, annotation, sequence))
    return [(start, duration, with_nodes(events)) for start, duration, events in steps]


def copies_of(
    rows: Sequence[tuple[Any, ...]], steps: Sequence[tuple[int, int]], loops: int
) -> tuple[OpTime, ...]:
    """Copies between host and device that began within these steps: on the device, so beside the
    thread's own time."""
    found: dict[str, tuple[int, int]] = {}
    for owner, start, minus, name, *_ in rows:
        if owner != ON_DEVICE or not report.copies_to_device(name):
            continue
        if any(begin <= start < begin + duration for begin, duration in steps):
            calls, ns = found.get(name, (0, 0))
            found[name] = (calls + 1, ns - minus)
    each = max(1, loops * len(steps))
    return tuple(OpTime(name, n / each, ns / each, 0.0) for name, (n, ns) in found.items())


def with_nodes(events: list[tuple[Any, ...]]) -> list[Event]:
    """Which ops made an autograd node. An event carries the number that the next node will have,
    so the last op with a number is the one that made the node, if another number follows."""
    ops = [report.kind_of(name, mark) == report.OP for name, _, _, mark, _ in events]
    numbers = {event[4] for event, op in zip(events, ops, strict=True) if op and event[4] >= 0}
    newest = max(numbers, default=-1)
    seen: set[int] = set()
    made: list[Event] = []
    for (name, start, duration, mark, number), op in zip(
        reversed(events), reversed(ops), strict=True
    ):
        node = op and 0 <= number < newest and number not in seen
        if op:
            seen.add(number)
        made.append((name, start, duration, mark, node))
    return made[::-1]


def _activities(device: str) -> list[Any]:
    """The host's, and the device's where this torch can trace it."""
    from torch.profiler import ProfilerActivity, supported_activities

    known = {one.name: one for one in supported_activities()}  # type: ignore[no-untyped-call]
    kind = device.split(":")[0].upper()
    return [ProfilerActivity.CPU, *([known[kind]] if kind != "CPU" and kind in known else [])]


def _on_host(event: Any) -> bool:
    asked = getattr(event, "device_type", None)
    return asked is None or str(getattr(asked(), "name", "CPU")) == "CPU"


def _is_annotation(event: Any) -> bool:
    asked = getattr(event, "is_user_annotation", None)
    return bool(asked()) if asked is not None else False
