"""Steps under torch's own tracer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchstone.explain.passes import names
from torchstone.explain.passes.clocks import CollectionClock, WaitClock
from torchstone.explain.passes.plain import Sample, quiet, summary, take_samples
from torchstone.explain.passes.report import Traced
from torchstone.explain.passes.tally import Event, Tally


def traced_round(block: Callable[[], object], loops: int, count: int, wait: WaitClock) -> Traced:
    """A stretch of `count` samples of `loops` steps each, traced."""
    mark = _marker()

    def marked() -> None:
        with mark(names.STEP):
            block()

    with CollectionClock().watching() as collecting:
        events, samples = trace(lambda: take_samples(marked, count, wait, collecting))
    tally = Tally()
    steps = steps_of(events)
    if len(steps) != len(samples):
        raise RuntimeError(f"{len(samples)} samples were traced, and {len(steps)} came out")
    kept = quiet(samples)
    for i in kept:
        tally.add(*steps[i])
    return _round([samples[i] for i in kept], samples, loops, tally)


def trace(run: Callable[[], Any]) -> tuple[list[tuple[Any, ...]], Any]:
    """The events while `run` went on, of all threads, and what it returned."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        result = run()
    found = []
    kineto = getattr(profiler.profiler, "kineto_results", None)
    for event in kineto.events() if kineto is not None else ():
        found.append(
            (
                event.start_thread_id(),
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
        if name == names.STEP:
            steps.append((start, -minus, []))
            end, thread = start - minus, owner
        elif steps and owner == thread and start < end:
            steps[-1][2].append((name, start, -minus, annotation, sequence))
    return [(start, duration, with_nodes(events)) for start, duration, events in steps]


def with_nodes(events: list[tuple[Any, ...]]) -> list[Event]:
    """Which ops made an autograd node. An event carries the number that the next node will have,
    so the last op with a number is the one that made the node, if another number follows."""
    ops = [names.kind_of(name, mark) == names.OP for name, _, _, mark, _ in events]
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


def _is_annotation(event: Any) -> bool:
    asked = getattr(event, "is_user_annotation", None)
    return bool(asked()) if asked is not None else False


def _marker() -> Any:
    """The cheapest mark that this torch has."""
    try:
        from torch._C._profiler import _RecordFunctionFast
    except ImportError:
        from torch.autograd.profiler import record_function

        return record_function
    return _RecordFunctionFast


def _round(samples: list[Sample], everything: list[Sample], loops: int, tally: Tally) -> Traced:
    steps = loops * len(samples)
    usual = summary(samples, loops, everything)
    sums = tally.sums(loops, usual["cpu"] + usual["off"])
    return Traced(
        steps=steps,
        **usual,
        events=(tally.events + len(samples)) / steps,
        places=sums.places(),
        ops=sums.ops(names.OP),
        kernels=sums.ops(names.KERNEL),
    )
