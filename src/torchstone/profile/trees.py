"""Call trees: from spans, from stacks, from a table of callers; and what can be read off them.

Pure: columns in, columns out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchstone.profile.estimate import from_callers
from torchstone.records import Calls, CallTree, FunctionCalls, Spans, UsageError

MAX_NODES = 2_000_000
"""Call paths of one tree. Views cut far above it; memory is some 200 bytes a node."""

__all__ = ["MAX_NODES", "TreeBuilder", "from_callers", "from_spans", "from_stacks", "functions"]
__all__ += ["totals"]


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
        for frame, thread, start, duration in zip(
            spans.frames, spans.threads, spans.start_ns, spans.duration_ns, strict=True
        ):
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
