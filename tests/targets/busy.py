"""Work without torch, whose length and answer planted techniques can change."""

from __future__ import annotations

from typing import Any


class Busy:
    """Turns numbers round in a loop of its own; the answer does not depend on its rounds."""

    def __init__(self, rounds: int = 40_000) -> None:
        self.rounds, self.factor = rounds, 2

    def answer(self, values: list[float]) -> list[float]:
        return [self.factor * value for value in values]

    def __call__(self, values: list[float]) -> list[float]:
        for _ in range(self.rounds):
            pass
        return self.answer(values)


def inputs(seed: int) -> tuple[list[float]]:
    return ([float(seed % 1000 + number) for number in range(4)],)


def make() -> Any:
    from torchstone.workloads import Workload

    return Workload(Busy(), inputs)
