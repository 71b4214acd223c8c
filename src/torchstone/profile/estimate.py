"""A call tree guessed from a table of callers.

Such a table says how much of B's time was called from A, and how much of C's from B, but not how
much of C's was reached through A. The guess: B behaves the same whoever called it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchstone.records import Calls, CallTree, FunctionCalls

MAX_ESTIMATED_NODES = 50_000
"""Paths multiply at every shared function; the largest are followed first, up to so many."""
LEAST_SHARE = 1e-6
"""Of all time. A path that takes less is not followed; what it took stays under `rest`."""
_CLOSE = 1e-3
"""A function whose paths hold its own time but for this share is scaled to hold all of it."""


@dataclass(frozen=True)
class _Edge:
    """What a function took when called by another."""

    callee: int
    own: float
    total: float


@dataclass
class _Growth:
    """The tree so far, by node; `shares` is how much of its function's life a node stands for."""

    parents: list[int] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    waiting: list[tuple[float, int]] = field(default_factory=list)

    def add(self, parent: int, function: int, own: float, total: float, share: float) -> None:
        node = len(self.parents)
        self.parents.append(parent)
        self.functions.append(function)
        self.own.append(own)
        self.shares.append(share)
        heapq.heappush(self.waiting, (-total, node))

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
    edges = _edges(functions)
    growth = _Growth()
    _plant(functions, _circles([[edge.callee for edge in out] for out in edges]), growth)
    least = LEAST_SHARE * sum(max(0.0, one.of.own_s) for one in functions)
    while growth.waiting and len(growth.parents) < most:
        _, node = heapq.heappop(growth.waiting)
        path = growth.path(node)
        share = growth.shares[node]
        for edge in edges[growth.functions[node]]:
            if edge.callee in path:
                growth.own[path[edge.callee]] += share * edge.own
                continue
            if share * edge.total <= least or len(growth.parents) >= most:
                break  # the rest of them takes even less
            whole = functions[edge.callee].of.total_s
            part = min(1.0, share * edge.total / whole) if whole > 0 else share
            growth.add(node, edge.callee, share * edge.own, share * edge.total, part)
    return _finish(functions, growth, rest)


def _edges(functions: Sequence[FunctionCalls]) -> list[list[_Edge]]:
    """What each function called, the slowest first; functions are named by their position."""
    place: dict[int, int] = {}
    for position, one in enumerate(functions):
        place.setdefault(one.of.frame, position)
    found: list[list[_Edge]] = [[] for _ in functions]
    for position, one in enumerate(functions):
        for caller in _with_times(one):
            if caller.frame in place:
                edge = _Edge(position, max(0.0, caller.own_s), max(0.0, caller.total_s))
                found[place[caller.frame]].append(edge)
    for edges in found:
        edges.sort(key=lambda edge: -edge.total)
    return found


def _with_times(one: FunctionCalls) -> tuple[Calls, ...]:
    """Its callers; where only calls were counted, its time is shared out by them."""
    if any(caller.total_s or caller.own_s for caller in one.callers):
        return one.callers
    calls = sum(caller.calls for caller in one.callers)
    return tuple(
        Calls(
            caller.frame,
            caller.calls,
            caller.primitive,
            one.of.own_s * caller.calls / calls,
            one.of.total_s * caller.calls / calls,
        )
        for caller in one.callers
        if calls
    )


def _plant(functions: Sequence[FunctionCalls], circles: Sequence[int], growth: _Growth) -> None:
    """Roots: functions that nobody called, or not all of whose time was called by others.

    Functions that call each other in a circle count a part of their time several times over as
    called. What came into the circle from outside decides, and where nothing did, the function of
    the circle that took longest is where it began.
    """
    place = {one.of.frame: position for position, one in reversed([*enumerate(functions)])}
    entered: set[int] = set()
    first: dict[int, int] = {}
    for position, one in enumerate(functions):
        circle = circles[position]
        callers = [caller for caller in _with_times(one) if caller.frame in place]
        outside = [c for c in callers if circles[place[c.frame]] != circle]
        if outside:
            entered.add(circle)
        best = first.setdefault(circle, position)
        if one.of.total_s > functions[best].of.total_s:
            first[circle] = position
        total = one.of.total_s - sum(caller.total_s for caller in outside)
        circular = any(c not in outside and c.frame != one.of.frame for c in callers)
        if outside and not circular and total > LEAST_SHARE * one.of.total_s:
            _plant_one(one, position, callers, total, total / one.of.total_s, growth)
    for circle, position in first.items():
        if circle not in entered:
            one = functions[position]
            callers = [caller for caller in _with_times(one) if caller.frame in place]
            _plant_one(one, position, callers, one.of.total_s, 1.0, growth)


def _plant_one(
    one: FunctionCalls,
    position: int,
    callers: Sequence[Calls],
    total: float,
    share: float,
    growth: _Growth,
) -> None:
    own = one.of.own_s - sum(caller.own_s for caller in callers)
    growth.add(-1, position, max(0.0, own), max(0.0, total), share)


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
