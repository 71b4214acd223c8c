"""Call trees: from spans, from stacks, from a table of callers; and what can be read off them.

Pure: columns in, columns out.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchstone.records import Calls, CallTree, Frame, FunctionCalls, Profile, Spans, UsageError
from torchstone.stats.drift import SHARE_LEVEL, share_interval


def rows_of(spans: Spans) -> Iterator[tuple[int, int, int, int]]:
    """Frame, thread, start and duration of each span."""
    return zip(spans.frames, spans.threads, spans.start_ns, spans.duration_ns, strict=True)


MAX_NODES = 2_000_000
"""Call paths of one tree. Views cut far above it; memory is some 200 bytes a node."""


class TreeBuilder:
    """A call tree that grows: one node for each thread and path of frames."""

    def __init__(self, most: int = MAX_NODES) -> None:
        self.parents: list[int] = []
        self.frames: list[int] = []
        self.threads: list[int] = []
        self.own: list[float] = []
        self.calls: list[int] = []
        self._most = most
        self._known: dict[tuple[int, int], int] = {}

    def child(self, parent: int, frame: int, thread: int) -> int:
        """The node of a frame below a node, or below the thread's root where `parent` is -1."""
        key = (parent if parent >= 0 else -1 - thread, frame)
        node = self._known.get(key)
        if node is None:
            node = len(self.parents)
            if node >= self._most:
                raise UsageError(
                    f"The profile has more than {self._most:,} call paths.",
                    "Record less: fewer steps, or a shorter time.",
                )
            self._known[key] = node
            self.parents.append(parent)
            self.frames.append(frame)
            self.threads.append(thread)
            self.own.append(0)
            self.calls.append(0)
        return node

    def add_stack(self, stack: Iterable[int], weight: float, thread: int = 0) -> None:
        """Add what the innermost frame of a stack took; the outermost frame comes first."""
        node = -1
        for frame in stack:
            node = self.child(node, frame, thread)
        if node >= 0:
            self.own[node] += weight

    def add_spans(self, spans: Spans) -> None:
        """Add spans that nest, in nanoseconds, and count them as calls."""
        own, calls, child = self.own, self.calls, self.child
        ends: list[int] = []
        nodes: list[int] = []
        current = -1
        for frame, thread, start, duration in rows_of(spans):
            if thread != current:
                current = thread
                ends.clear()
                nodes.clear()
            while ends and ends[-1] <= start:
                ends.pop()
                nodes.pop()
            parent = nodes[-1] if nodes else -1
            node = child(parent, frame, thread)
            own[node] += duration
            calls[node] += 1
            if parent >= 0:
                own[parent] -= duration
            ends.append(start + duration)
            nodes.append(node)

    def tree(self, unit: str, scale: float = 1.0, counted: bool = False) -> CallTree:
        """The tree; what was added is divided by `scale`."""
        return CallTree(
            unit=unit,
            parents=tuple(self.parents),
            frames=tuple(self.frames),
            own=tuple(value / scale for value in self.own),
            threads=tuple(self.threads),
            calls=tuple(self.calls) if counted else (),
        )


def from_spans(spans: Spans) -> CallTree:
    """Call paths with self time in seconds and exact calls, from spans that nest."""
    builder = TreeBuilder()
    builder.add_spans(spans)
    return builder.tree("seconds", scale=1e9, counted=True)


def from_stacks(
    stacks: Iterable[tuple[Sequence[int], float, int]], unit: str = "samples"
) -> CallTree:
    """Call paths from stacks, each with its weight and thread; the outermost frame comes first."""
    builder = TreeBuilder()
    for stack, weight, thread in stacks:
        builder.add_stack(stack, weight, thread)
    return builder.tree(unit)


def path_of(tree: CallTree, node: int) -> list[int]:
    """The frames that lead to a node, the outermost first."""
    path = []
    while node >= 0:
        path.append(tree.frames[node])
        node = tree.parents[node]
    return path[::-1]


def totals(tree: CallTree) -> list[float]:
    """What each node took with everything below it."""
    found = list(tree.own)
    for node in range(len(found) - 1, -1, -1):
        parent = tree.parents[node]
        if parent >= 0:
            found[parent] += found[node]
    return found


def functions(tree: CallTree) -> tuple[FunctionCalls, ...]:
    """Figures by function, as `cProfile` counts them, from true call paths; in the tree's unit.

    Calls are 0 where they were not counted.
    """
    total = totals(tree)
    calls = tree.calls or (0,) * len(total)
    of: dict[int, list[Any]] = {}
    by: dict[tuple[int, int], list[Any]] = {}
    running: dict[Any, int] = {}
    for node, entered in _walk(tree):
        frame, parent = tree.frames[node], tree.parents[node]
        places: list[tuple[dict[Any, list[Any]], Any]] = [(of, frame)]
        if parent >= 0:
            places.append((by, (frame, tree.frames[parent])))
        for table, key in places:
            if not entered:
                running[key] -= 1
                continue
            outer = not running.get(key)
            running[key] = running.get(key, 0) + 1
            row = table.setdefault(key, [0, 0, 0.0, 0.0])
            row[0] += calls[node]
            row[2] += tree.own[node]
            if outer:
                row[1] += calls[node]
                row[3] += total[node]
    callers: dict[int, list[Calls]] = {}
    for (frame, caller), row in by.items():
        callers.setdefault(frame, []).append(Calls(caller, *row))
    return tuple(
        FunctionCalls(Calls(frame, *row), tuple(callers.get(frame, ())))
        for frame, row in of.items()
    )


def _walk(tree: CallTree) -> Iterable[tuple[int, bool]]:
    """Every node twice, depth first: when it is entered and when it is left."""
    below: list[list[int]] = [[] for _ in tree.parents]
    roots: list[int] = []
    for node, parent in enumerate(tree.parents):
        (below[parent] if parent >= 0 else roots).append(node)
    waiting = [(root, True) for root in reversed(roots)]
    while waiting:
        node, entered = waiting.pop()
        yield node, entered
        if entered:
            waiting.append((node, False))
            waiting.extend((one, True) for one in reversed(below[node]))


# A call tree guessed from a table of callers.
#
# Such a table says how much of B's time was called from A, and how much of C's from B, but not how
# much of C's was reached through A. The guess: B behaves the same whoever called it.


MAX_ESTIMATED_NODES = 50_000
"""Paths multiply at every shared function; the largest are followed first, up to so many."""
LEAST_PATH = 1e-6
"""Of all time. A path that takes less is not followed; what it took stays under `rest`."""
_CLOSE = 1e-3
"""A function whose paths hold its own time but for this share is scaled to hold all of it."""

_Callers = list[tuple[int, Calls]]
"""Of one function: the position of each caller in the table, and what it took for that."""


@dataclass
class _Growth:
    """The tree so far, by node; `shares` is how much of its function's life a node stands for."""

    parents: list[int] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    waiting: list[tuple[float, int]] = field(default_factory=list)

    def add(self, parent: int, function: int, own: float, total: float, share: float) -> None:
        heapq.heappush(self.waiting, (-total, len(self.parents)))
        self.parents.append(parent)
        self.functions.append(function)
        self.own.append(own)
        self.shares.append(share)

    def path(self, node: int) -> dict[int, int]:
        """Functions on the way from the root to a node, each with its node."""
        found: dict[int, int] = {}
        while node >= 0:
            found[self.functions[node]] = node
            node = self.parents[node]
        return found


def from_callers(
    functions: Sequence[FunctionCalls], rest: int, most: int = MAX_ESTIMATED_NODES
) -> CallTree:
    """The likeliest call paths, in seconds. Recursion is folded into the outermost call.

    Own times add up to those of the table, function by function. What belongs to paths too small
    or too many to follow hangs below one more root with the frame `rest`.
    """
    place: dict[int, int] = {}
    for position, one in enumerate(functions):
        place.setdefault(one.of.frame, position)
    callers: list[_Callers] = [
        [(place[by.frame], by) for by in _with_times(one) if by.frame in place] for one in functions
    ]
    calls: list[_Callers] = [[] for _ in functions]
    for position, found in enumerate(callers):
        for caller, by in found:
            calls[caller].append((position, by))
    for called in calls:  # the slowest first
        called.sort(key=lambda pair: -max(0.0, pair[1].total_s))
    growth = _Growth()
    _plant(functions, callers, _circles([[callee for callee, _ in out] for out in calls]), growth)
    least = LEAST_PATH * sum(max(0.0, one.of.own_s) for one in functions)
    while growth.waiting and len(growth.parents) < most:
        _, node = heapq.heappop(growth.waiting)
        path = growth.path(node)
        share = growth.shares[node]
        for callee, by in calls[growth.functions[node]]:
            own, total = share * max(0.0, by.own_s), share * max(0.0, by.total_s)
            if callee in path:
                growth.own[path[callee]] += own
                continue
            if total <= least or len(growth.parents) >= most:
                break  # the rest of them takes even less
            whole = functions[callee].of.total_s
            part = min(1.0, total / whole) if whole > 0 else share
            growth.add(node, callee, own, total, part)
    return _finish(functions, growth, rest)


def _with_times(one: FunctionCalls) -> tuple[Calls, ...]:
    """Its callers; where only calls were counted, its time is shared out by them."""
    if any(by.total_s or by.own_s for by in one.callers):
        return one.callers
    calls = sum(by.calls for by in one.callers)
    shares = [(by, by.calls / calls) for by in one.callers if calls]
    return tuple(
        replace(by, own_s=one.of.own_s * share, total_s=one.of.total_s * share)
        for by, share in shares
    )


def _plant(
    functions: Sequence[FunctionCalls],
    callers: Sequence[_Callers],
    circles: Sequence[int],
    growth: _Growth,
) -> None:
    """Roots: functions that nobody called, or not all of whose time was called by others.

    Functions that call each other in a circle count a part of their time several times over as
    called. What came into the circle from outside decides, and where nothing did, the function of
    the circle that took longest is where it began.
    """
    entered: set[int] = set()
    first: dict[int, int] = {}

    def plant(position: int, total: float, share: float) -> None:
        own = functions[position].of.own_s - sum(by.own_s for _, by in callers[position])
        growth.add(-1, position, max(0.0, own), max(0.0, total), share)

    for position, one in enumerate(functions):
        circle, of = circles[position], one.of
        outside = [by for at, by in callers[position] if circles[at] != circle]
        if of.total_s > functions[first.setdefault(circle, position)].of.total_s:
            first[circle] = position
        if not outside:
            continue
        entered.add(circle)
        total = of.total_s - sum(by.total_s for by in outside)
        circular = any(
            circles[at] == circle and by.frame != of.frame for at, by in callers[position]
        )
        if not circular and of.total_s > 0 and total > LEAST_PATH * of.total_s:
            plant(position, total, total / of.total_s)
    for circle, position in first.items():
        if circle not in entered:
            plant(position, functions[position].of.total_s, 1.0)


def _circles(out: Sequence[Sequence[int]]) -> list[int]:
    """For each function the number of its circle: those that reach each other (Tarjan's way,
    without recursion of our own)."""
    number = [-1] * len(out)
    low = [0] * len(out)
    circle = [-1] * len(out)
    stack: list[int] = []
    counted = 0
    for start in range(len(out)):
        if number[start] >= 0:
            continue
        work = [(start, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                number[node] = low[node] = counted
                counted += 1
                stack.append(node)
            for i in range(at, len(out[node])):
                other = out[node][i]
                if number[other] < 0:
                    work += [(node, i + 1), (other, 0)]
                    break
                if circle[other] < 0:
                    low[node] = min(low[node], number[other])
            else:
                if low[node] == number[node]:
                    while True:
                        member = stack.pop()
                        circle[member] = node
                        if member == node:
                            break
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
    return circle


def _finish(functions: Sequence[FunctionCalls], growth: _Growth, rest: int) -> CallTree:
    """Make every function's paths hold its own time, no more and no less."""
    placed = [0.0] * len(functions)
    for function, own in zip(growth.functions, growth.own, strict=True):
        placed[function] += own
    scales, left = [1.0] * len(functions), []
    for position, one in enumerate(functions):
        own = max(0.0, one.of.own_s)
        if placed[position] > 0 and placed[position] >= own * (1 - _CLOSE):
            scales[position] = own / placed[position]
        elif own > placed[position]:
            left.append((position, own - placed[position]))
    parents, frames = list(growth.parents), [functions[f].of.frame for f in growth.functions]
    own_times = [o * scales[f] for o, f in zip(growth.own, growth.functions, strict=True)]
    if left:
        root = len(parents)
        parents += [-1] + [root] * len(left)
        frames += [rest] + [functions[position].of.frame for position, _ in left]
        own_times += [0.0] + [seconds for _, seconds in left]
    return CallTree(
        unit="seconds",
        parents=tuple(parents),
        frames=tuple(frames),
        own=tuple(own_times),
        threads=(0,) * len(parents),
    )


# The same work by several ways side by side: what each says of a function, and who disagrees.
#
# Shares with callees are compared: by itself a function has less in a trace, which knows the ops
# that it calls, than in samples, which do not.


MOST_ROWS = 15
LEAST_SHARE = 0.02
"""Of the whole, by one of the ways; what takes less is not compared."""
CLEAR = 0.02
"""Beyond the interval by so much, a difference is worth a sentence."""

RENAMED = {"trace": (("module.py", "_wrapped_call_impl"),)}
"""By way: torch's tracer shows the call of a module under the module's own name."""

Key = tuple[str, int, str]


@dataclass(frozen=True)
class Share:
    """A function's share of the whole, its callees included; samples have an interval."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Row:
    """One function by each way; absent is a way that saw no function at all, or knows this one by
    another name."""

    name: str
    file: str
    line: int
    shares: Mapping[str, Share]
    apart: bool = False
    """The ways disagree by more than chance."""


@dataclass(frozen=True)
class SideBySide:
    """Ways in the order given, the functions that took most, and sentences on what differs."""

    ways: tuple[str, ...]
    rows: tuple[Row, ...]
    sentences: tuple[str, ...]


def side_by_side(profiles: Sequence[Profile]) -> SideBySide:
    """Compare profiles of the same work, one a way. Where one saw nothing of a function that took a
    share by another, its share is 0."""
    tables = {profile.how: _shares(profile) for profile in profiles}
    samples = {p.how: p.sampling.samples for p in profiles if p.sampling is not None}
    keys = {key for table in tables.values() for key, value in table.items() if value > LEAST_SHARE}
    chosen = sorted(keys, key=lambda key: -max(t.get(key, 0.0) for t in tables.values()))[
        :MOST_ROWS
    ]
    # Many looks find something by chance: each is given its part of the error.
    level = 1 - (1 - SHARE_LEVEL) / max(1, len(chosen))
    rows = []
    for key in chosen:
        shares = {
            how: _share(table.get(key, 0.0), samples.get(how, 0), level)
            for how, table in tables.items()
            if key in table or (table and (key[0], key[2]) not in RENAMED.get(how, ()))
        }
        rows.append(Row(key[2], key[0], key[1], shares, _apart(shares)))
    return SideBySide(
        tuple(tables), tuple(rows), tuple(_sentence(row) for row in rows if row.apart)
    )


def _share(value: float, samples: int, level: float) -> Share:
    return Share(value, share_interval(value * samples, samples, level) if samples else None)


def _apart(shares: Mapping[str, Share]) -> bool:
    """Whether two of the ways are clearly apart; a way that counts has no interval but itself."""
    ends = [share.interval or (share.value, share.value) for share in shares.values()]
    return any(
        one[0] > other[1] + CLEAR or other[0] > one[1] + CLEAR
        for one, other in itertools.combinations(ends, 2)
    )


def _sentence(row: Row) -> str:
    parts = []
    for how, share in row.shares.items():
        said = f"{how} {share.value:.0%}"
        if share.interval is not None:
            said += f" ({share.interval[0]:.0%}–{share.interval[1]:.0%})"
        parts.append(said)
    return f"{row.name} ({os.path.basename(row.file)}:{row.line}): {', '.join(parts)}."


def _shares(profile: Profile) -> dict[Key, float]:
    """Python functions of the critical thread, by what they took with their callees."""
    functions, whole = _functions(profile)
    found: dict[Key, float] = {}
    for one in functions:
        frame = profile.frames[one.of.frame]
        if frame.kind == "python" and frame.line and whole > 0 and not _starts(frame):
            key = _key(frame)
            found[key] = max(found.get(key, 0.0), one.of.total_s / whole)
    return found


def _functions(profile: Profile) -> tuple[Sequence[FunctionCalls], float]:
    several = profile.tree is not None and len(set(profile.tree.threads)) > 1
    if profile.functions and not several:
        # Where cProfile lost track, own times are less than the whole.
        own = sum(one.of.own_s for one in profile.functions)
        return profile.functions, max(own, profile.wall_s)
    if profile.tree is None:
        return (), 0.0
    critical = [i for i, thread in enumerate(profile.threads) if thread.critical]
    tree = _only(profile.tree, critical[0]) if critical else profile.tree
    whole = sum(tree.own)
    # Exact figures are of all threads together; those of one thread are in its tree alone.
    return functions(tree), max(whole, profile.wall_s) if profile.functions else whole


IMPORTING = ("<frozen importlib", "<frozen zipimport")
"""Files of the machinery that every import goes through."""


def without_imports(tree: CallTree, frames: Sequence[Frame]) -> tuple[CallTree, float]:
    """The tree without what was called to import modules, and what that took."""
    starts = [frame.file.startswith(IMPORTING) for frame in frames]
    inside: list[bool] = []
    for parent, frame in zip(tree.parents, tree.frames, strict=True):
        inside.append(starts[frame] or (parent >= 0 and inside[parent]))
    left = sum(own for own, out in zip(tree.own, inside, strict=True) if out)
    kept = [node for node, out in enumerate(inside) if not out]
    threads = tuple(tree.threads[node] for node in kept)
    return replace(_chosen(tree, kept), threads=threads), left


def _only(tree: CallTree, thread: int) -> CallTree:
    """The part of one thread."""
    return _chosen(tree, [node for node, of in enumerate(tree.threads) if of == thread])


def _chosen(tree: CallTree, kept: Sequence[int]) -> CallTree:
    """These nodes, whose parents are among them or no matter; all of one thread."""
    place = {node: index for index, node in enumerate(kept)}
    return CallTree(
        tree.unit,
        tuple(place.get(tree.parents[node], -1) for node in kept),
        tuple(tree.frames[node] for node in kept),
        tuple(tree.own[node] for node in kept),
        (0,) * len(kept),
        tuple(tree.calls[node] for node in kept) if tree.calls else (),
    )


def _starts(frame: Frame) -> bool:
    """A function of ours or of Python's that only starts the work."""
    file = frame.file.replace(os.sep, "/")
    return "torchstone/profile/" in file or file.endswith("runpy.py") or file == "<frozen runpy>"


def _key(frame: Frame) -> Key:
    """Tools shorten paths differently; the file's name, the line and the function's stay."""
    return (os.path.basename(frame.file), frame.line, frame.name)
