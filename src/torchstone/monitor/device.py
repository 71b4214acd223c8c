"""What an accelerator did in each phase: events from a pool, recorded between the phases and read
later by `query()`. Nothing ever waits for the device; steps whose events it has not reached within
`MOST_WAITING` steps are dropped, and counted."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

MOST_WAITING = 1000
"""Steps whose events are not read yet: a device is never that far behind a program."""
Marks = list[tuple[str, Any]]


class DeviceTimes:
    """Marks of the training's thread; `look` is the monitor's."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._pool: deque[Any] = deque()
        self._open: Marks = []
        self._waiting: deque[Marks] = deque()
        self.dropped = 0

    def begin(self) -> None:
        """A step begins; one that was begun and not ended is forgotten."""
        self._pool.extend(event for _, event in self._open)
        self._open = []
        self.mark("")

    def mark(self, phase: str) -> None:
        """What the program has asked of the device since the last mark was this phase."""
        try:
            event = self._pool.popleft() if self._pool else self._make()
            event.record()
        except Exception:  # a device that fails is the training's to notice
            return
        self._open.append((phase, event))

    def end(self) -> None:
        """The step is over."""
        if len(self._open) > 1:
            self._waiting.append(self._open)
            self._open = []

    def look(self) -> tuple[int, dict[str, int]]:
        """Steps that the device has finished since the last look, and nanoseconds by phase."""
        steps, sums = 0, Counter[str]()
        while self._waiting and self._waiting[0][-1][1].query():
            marks = self._waiting.popleft()
            for (_, begin), (phase, end) in itertools.pairwise(marks):
                sums[phase] += round(begin.elapsed_time(end) * 1e6)
            self._pool.extend(event for _, event in marks)
            steps += 1
        while len(self._waiting) > MOST_WAITING:
            self._pool.extend(event for _, event in self._waiting.popleft())
            self.dropped += 1
        return steps, dict(sums)


def device_times(torch: Any) -> DeviceTimes | None:
    """Of the accelerator in use; None without one, or where its events have no times."""
    try:
        kind = torch.accelerator.current_accelerator()
        if kind is None or not torch.accelerator.is_available():
            return None
        torch.Event(device=kind.type, enable_timing=True)
    except Exception:  # not every accelerator has events that tell the time
        return None
    return DeviceTimes(lambda: torch.Event(device=kind.type, enable_timing=True))
