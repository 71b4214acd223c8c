"""Steps under torch's own tracer.

Events of the tracer summed by op and by place. Pure: tuples in, sums out.

A steady step does the same things in the same order, so its stretches of time can be laid over
each other, one by one, and each is taken at the median over the steps: a neighbour that pushes the
thread off its core for a moment hits a different stretch each time, and is gone.

What a compiled region does itself, beside its graph, is the compiler's unless it breaks. Then the
step's own Python runs there too, and no event tells them apart: that time is a place of its own.

What the compiler made of an arm: kernels by name, breaks and recompiles with their lines.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from torchstone.explain.passes import report
from torchstone.explain.passes.blocked import CollectionClock, WaitClock
from torchstone.explain.passes.dispatch_reference import DispatchReference, marker
from torchstone.explain.passes.plain import quiet, summary, take_samples
from torchstone.explain.passes.report import Compiled, OpTime, Place, Traced, region_of
from torchstone.measure.warmup import describe_graphs
from torchstone.records import ArmSpec, SourceLine

Event = tuple[str, int, int, bool, bool]
"""Name, start and duration in nanoseconds, whether it is an annotation, whether it made an
autograd node."""
Key = tuple[str, str]
"""A kind (`place`, `op`, `kernel`) and a name: whose a stretch of time is."""
LEAST_ALIKE = 3
"""Steps that must have gone the same way for their stretches to be laid over each other."""
LONG_NS = 300_000.0
"""Stretches so long are hardly ever left alone on a busy core; what the clocks of the system say
the step cannot have taken is taken from them."""


@dataclass
class _Open:
    """An event that is not over yet. `since`: the end of its last child, or its start."""

    name: str
    kind: str
    place: str
    start: int
    end: int
    since: int
    own: int = 0
    inside: int = 0
    first: str = ""
    grad: bool = False
    from_python: bool = False
    engine: bool = False
    """Its last child was a node of the autograd engine."""


@dataclass
class _Step:
    """One step: its stretches in order, and counts by key."""

    keys: list[Key] = field(default_factory=list)
    stretches: list[int] = field(default_factory=list)
    calls: Counter[Key] = field(default_factory=Counter)
    inside: Counter[Key] = field(default_factory=Counter)
    grads: Counter[Key] = field(default_factory=Counter)
    entries: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    events: int = 0
    breaks: int = 0

    def spend(self, key: Key, ns: int) -> None:
        self.keys.append(key)
        self.stretches.append(max(0, ns))


class Tally:
    """The steps that were added, and their sums."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []

    def add(
        self,
        start: int,
        duration: int,
        events: Sequence[Event],
        breaking: frozenset[str] = frozenset(),
    ) -> None:
        """One step: its own span, and the events of its thread in order, longer first. `breaking`:
        regions that break by the compiler's own word, whatever follows the break."""
        broken = _broken(events, breaking)
        step = _Step(events=len(events), breaks=len(broken))
        end = start + duration
        stack = [_Open(report.STEP, report.PYTHON, report.PYTHON, start, end, start)]
        for number, event in enumerate(events):
            _open(step, stack, event, number in broken)
        while stack:
            _close(step, stack)
        self._steps.append(step)

    @property
    def events(self) -> int:
        """Of all steps."""
        return sum(step.events for step in self._steps)

    def sums(self, loops: int, most_ns: float) -> Sums:
        """Of one step out of `loops` in each that was added, which cannot take over `most_ns`."""
        alike = self._alike()
        if len(alike) >= LEAST_ALIKE:
            columns = zip(*(step.stretches for step in alike), strict=True)
            spent = [(key, median(c)) for key, c in zip(alike[0].keys, columns, strict=True)]
        else:
            alike = self._steps
            n = max(1, len(alike))
            spent = [
                (key, ns / n)
                for step in alike
                for key, ns in zip(step.keys, step.stretches, strict=True)
            ]
        return Sums(_fitted(spent, most_ns * loops), alike, loops)

    def _alike(self) -> list[_Step]:
        """The largest group of steps that went the same way."""
        groups: dict[tuple[Key, ...], list[_Step]] = defaultdict(list)
        for step in self._steps:
            groups[tuple(step.keys)].append(step)
        return max(groups.values(), key=len, default=[])


class Sums:
    """Places, ops and kernels of one step."""

    def __init__(self, spent: dict[Key, float], steps: Sequence[_Step], loops: int) -> None:
        self._spent = spent
        self._steps = steps
        self._n = loops * max(1, len(steps))
        self._loops = loops

    def places(self) -> dict[str, Place]:
        """Time outside all ops, by whose it is."""
        found = {}
        for kind, name in self._spent:
            if kind == "place":
                entries = self._entries(name)
                found[name] = Place(
                    self._count("calls", (kind, name)),
                    self._spent[kind, name] / self._loops,
                    self._count("inside", (kind, name)),
                    entries,
                )
        return found

    @property
    def breaks(self) -> float:
        """Compiled regions that were left at a graph break."""
        return sum(step.breaks for step in self._steps) / self._n

    def ops(self, kind: str) -> tuple[OpTime, ...]:
        """`op` or `kernel`, the slowest first."""
        made = [
            OpTime(
                key[1],
                self._count("calls", key),
                ns / self._loops,
                self._count("inside", key),
                self._count("grads", key),
            )
            for key, ns in self._spent.items()
            if key[0] == kind
        ]
        return tuple(sorted(made, key=lambda op: -op.own))

    def _count(self, what: str, key: Key) -> float:
        return float(sum(getattr(step, what)[key] for step in self._steps)) / self._n

    def _entries(self, place: str) -> dict[str, float]:
        total: Counter[str] = Counter()
        for step in self._steps:
            total.update(step.entries.get(place, {}))
        return {name: count / self._n for name, count in total.items()}


def _fitted(spent: list[tuple[Key, float]], most_ns: float) -> dict[Key, float]:
    """Summed by key; where it is more than the clocks allow, long stretches are cut down."""
    excess = sum(ns for _, ns in spent) - most_ns
    long = sum(ns for _, ns in spent if ns >= LONG_NS)
    cut = 1 - min(excess / long, 0.95) if excess > 0 and long else 1.0
    found: dict[Key, float] = defaultdict(float)
    for key, ns in spent:
        found[key] += ns * cut if ns >= LONG_NS else ns
    return dict(found)


def _broken(events: Sequence[Event], breaking: frozenset[str]) -> set[int]:
    """Regions that break, by number: from within them other compiled code is entered, not by their
    graph but by Python, be it under a mark of somebody's own."""
    found: set[int] = set()
    stack: list[tuple[int, int, str, str]] = []  # end, number, name, kind
    for number, (name, start, duration, annotation, _) in enumerate(events):
        while stack and stack[-1][0] <= start:
            stack.pop()
        if report.enters_compiled_code(name):
            around = [one for one in stack if one[3] not in report.PYTHON_MARKS]
            if around and report.is_region(around[-1][2]):
                found.add(around[-1][1])
            if name in breaking:
                found.add(number)
        stack.append((start + duration, number, name, report.kind_of(name, annotation)))
    return found


def _open(step: _Step, stack: list[_Open], event: Event, broken: bool) -> None:
    name, start, duration, annotation, grad = event
    while len(stack) > 1 and stack[-1].end <= start:
        _close(step, stack)
    parent = stack[-1]
    kind = report.kind_of(name, annotation)
    if parent.place == report.LOADING:
        kind = report.LOADING  # all that the loader does is loading
    elif parent.kind == report.AUTOGRAD and kind == report.MARK:
        kind = report.AUTOGRAD
    # Ticks of two clocks: an event may seem to outlive the one that called it.
    end = min(start + duration, parent.end)
    place = report.BREAK if broken else _place(kind, parent)
    opened = _Open(name, kind, place, start, end, start, grad=grad)
    _before_child(step, parent, opened)
    parent.first = parent.first or name
    if kind == report.OP and parent.kind not in (report.OP, report.KERNEL, report.AUTOGRAD):
        opened.from_python = True
    parent.since = end
    stack.append(opened)


def _before_child(step: _Step, parent: _Open, child: _Open) -> None:
    """The stretch up to the child, and who pays for the child's being recorded. Between two nodes
    of a backward pass it is the engine that is at work, not the caller. Up to its graph, a region
    that breaks is as any other."""
    between = child.start - parent.since
    node = child.kind == report.AUTOGRAD and parent.kind != report.AUTOGRAD
    if parent.kind in (report.OP, report.KERNEL):
        parent.own += between
        parent.inside += 1
    else:
        whose = report.AUTOGRAD if node and parent.engine else parent.place
        if report.is_region(parent.name) and report.belongs_to_region(child.name, child.kind):
            whose = report.GUARDS
        key = ("place", whose)
        step.spend(key, between)
        step.inside[key] += 1
    parent.engine = node


def _close(step: _Step, stack: list[_Open]) -> None:
    done = stack.pop()
    if done.kind in (report.OP, report.KERNEL):
        key = (done.kind, done.name)
        step.spend(key, done.own + done.end - done.since)
        step.calls[key] += 1
        step.inside[key] += done.inside
        step.grads[key] += done.grad
        if done.from_python and stack:
            step.entries[stack[-1].place][entry_of(done.name, done.first)] += 1
        return
    key = ("place", done.place)
    step.spend(key, done.end - done.since)
    if done.name != report.STEP:
        step.calls[key] += 1


def entry_of(name: str, first: str) -> str:
    """How an op was entered: `x * y` and `x * 2.0` are one op, and do different things first."""
    return f"{name}>{first}" if first else name


def _place(kind: str, parent: _Open) -> str:
    return kind if kind in report.PLACES else parent.place


_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
_REASON_LENGTH = 240
UNSAID = "Dynamo does not say; often a branch on a tensor"


def prepare_compiler(arm: ArmSpec) -> None:
    """Have generated kernels marked, so that the tracer sees each. Costs some ns a call."""
    if arm.backend in ("eager", "jit-trace", "aot_eager"):
        return
    try:
        import torch._inductor.config as config
    except ImportError:
        return
    config.cpp.enable_kernel_profile = True


def describe_compiled(late: int) -> Compiled | None:
    """From Dynamo's own records of this process; None where it was never asked to compile."""
    graphs = describe_graphs(late)
    if graphs is None or not (graphs.graphs or graphs.breaks):
        return None
    entries = _entries()
    return Compiled(graphs, _breaks(entries), _recompiles(entries), late)


def breaking_regions() -> frozenset[str]:
    """Events of the regions of which Dynamo says that they end at a graph break."""
    known = [entry for entry in _entries() if getattr(entry, "restart_reasons", None)]
    return frozenset(region_of(str(getattr(entry, "compile_id", ""))) for entry in known)


def _entries() -> list[Any]:
    """Dynamo's record of what it compiled, in the order in which it did."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return list(getattr(utils, "get_compilation_metrics", list)())


def _breaks(entries: Sequence[Any]) -> tuple[SourceLine, ...]:
    """One for each line at which compiled code goes on after a break. Its reason is with the code
    of the same function that was compiled before: the function up to the break, or from the break
    before it. Where nothing is left to go on with, as in `return f(x)`, the break has the line
    at which its code begins."""
    found: dict[tuple[str, int], SourceLine] = {}
    spoken: set[int] = set()
    for number, entry in enumerate(entries):
        name, line = _function(entry)
        file = str(entry.co_filename or "")
        if line is None or getattr(entry, "recompile_reason", None) or (file, line) in found:
            continue
        before = _before(entries, number, file, name, line)
        spoken.update(before[-1:])
        said = _restarts(entries[before[-1]]) if before else ()
        found[file, line] = SourceLine("; ".join(said) or UNSAID, file, line)
    told = {one.reason for one in found.values()}
    ends = []
    for number, entry in enumerate(entries):
        reason = "; ".join(_restarts(entry))
        again = getattr(entry, "recompile_reason", None)
        # One that breaks because a function inside it does says the same as that function.
        if reason and not again and number not in spoken and reason not in told:
            told.add(reason)
            ends.append(SourceLine(reason, *_code_place(entry)))
    return (*found.values(), *ends)


def _before(entries: Sequence[Any], number: int, file: str, name: str, line: int) -> list[int]:
    """The places of the same function's code among what was compiled before."""
    began = _began(entries, file, name, line)
    return [
        place
        for place, one in enumerate(entries[:number])
        if (str(one.co_filename or ""), _function(one)[0]) == (file, name)
        and _began(entries, file, name, int(one.co_firstlineno or 0)) == began
    ]


def _function(entry: Any) -> tuple[str, int | None]:
    """The name of the function in the source, and the line at which it goes on after a break."""
    name = str(getattr(entry, "co_name", "") or "")
    match = _RESUME.match(name)
    return (match.group(1), int(match.group(2))) if match else (name, None)


def _began(entries: Sequence[Any], file: str, name: str, line: int) -> int:
    """Where the function of this name and line begins: a file has many a `forward`."""
    begins = [
        int(one.co_firstlineno or 0)
        for one in entries
        if _function(one) == (name, None) and str(one.co_filename or "") == file
    ]
    return max((first for first in begins if first <= line), default=0)


def _restarts(entry: Any) -> list[str]:
    return sorted(map(_first_line, getattr(entry, "restart_reasons", None) or ()))


def _recompiles(entries: list[Any]) -> tuple[SourceLine, ...]:
    again = (entry for entry in entries if getattr(entry, "recompile_reason", None))
    return tuple(SourceLine(_first_line(one.recompile_reason), *_code_place(one)) for one in again)


def _code_place(entry: Any) -> tuple[str, int]:
    return str(entry.co_filename or ""), int(entry.co_firstlineno or 0)


def _first_line(text: Any) -> str:
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    if not lines:
        return ""
    explained = next((line for line in lines if line.startswith("Explanation:")), "")
    joined = f"{lines[0]}. {explained.removeprefix('Explanation: ')}" if explained else lines[0]
    return joined[:_REASON_LENGTH]


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
