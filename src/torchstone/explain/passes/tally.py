"""Events of the tracer summed by op and by place. Pure: tuples in, sums out.

A steady step does the same things in the same order, so its stretches of time can be laid over
each other, one by one, and each is taken at the median over the steps: a neighbour that pushes the
thread off its core for a moment hits a different stretch each time, and is gone.

What a compiled region does itself, beside its graph, is the compiler's unless it breaks. Then the
step's own Python runs there too, and no event tells them apart: that time is a place of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from torchstone.explain.passes import report
from torchstone.explain.passes.report import OpTime, Place

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
