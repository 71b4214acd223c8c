"""Steps that never ran, played to the collector: a day of training in a second."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from torchstone.monitor.clock import Span, StepRow
from torchstone.monitor.collect import Collector
from torchstone.records.monitoring import MonitorEvent, MonitorLevel, Process

MS = 1_000_000
LOOK_NS = 500 * MS
SHARES = {"data": 0.05, "forward": 0.35, "backward": 0.4, "optimizer": 0.15, "other": 0.05}


class Training:
    """A training whose steps are drawn; `change` may alter a step's phases."""

    def __init__(self, step_ms: float = 5.0, noise: float = 0.02, seed: int = 0) -> None:
        self.events: list[MonitorEvent] = []
        self.collector = Collector(self.events.append)
        self._random = random.Random(seed)
        self._step_ns = step_ms * MS
        self._noise = noise
        self.now = 10**12
        self.step = 0

    def play(
        self,
        steps: int,
        change: Callable[[int, dict[str, float]], None] | None = None,
        spans: Callable[[int, int, int], Iterable[Span]] | None = None,
        rss: Callable[[int], int] | None = None,
        mood: Callable[[int], float] | None = None,
    ) -> None:
        """So many more steps; a look every half second."""
        rows: list[StepRow] = []
        seen: list[Span] = []
        looked = self.now
        for _ in range(steps):
            phases = {
                name: self._step_ns * share * self._random.lognormvariate(0.0, self._noise)
                for name, share in SHARES.items()
            }
            if mood is not None:
                phases = {name: value * mood(self.step) for name, value in phases.items()}
            if change is not None:
                change(self.step, phases)
            begin, self.now = self.now, self.now + round(sum(phases.values()))
            if spans is not None:
                seen += spans(self.step, begin, self.now)
            rows.append(self._row(phases))
            self.step += 1
            if self.now - looked >= LOOK_NS:
                self._look(rows, seen, rss)
                rows, seen, looked = [], [], self.now
        self._look(rows, seen, rss)

    def _row(self, phases: dict[str, float]) -> StepRow:
        values = {name: round(value) for name, value in phases.items()}
        return StepRow(
            self.step, self.now, 0, values["data"], values["forward"], values["backward"], -1,
            values["optimizer"], values["other"], 1, 1, 0.5, 0, 0, 1, 0,
        )  # fmt: skip

    def _look(
        self, rows: list[StepRow], spans: list[Span], rss: Callable[[int], int] | None
    ) -> None:
        process = Process(rss_bytes=rss(self.step) if rss else 1 << 30, probe_ns=100_000)
        self.collector.add(rows, self.now / 1e9, spans, process=process)

    @property
    def warnings(self) -> list[MonitorEvent]:
        """What a person would be told of."""
        return [one for one in self.events if one.level is MonitorLevel.WARN]
