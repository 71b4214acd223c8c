"""A target whose steps take long by a clock that only they move: no test has to wait for it."""

from __future__ import annotations

from collections.abc import Callable

STEP_NS = 50_000_000_000


class Clock:
    """Stands still but for steps."""

    def __init__(self) -> None:
        self.now = 0

    def read(self) -> int:
        """The time."""
        return self.now

    def step(self) -> None:
        """A long time passes."""
        self.now += STEP_NS


CLOCK = Clock()


def add(values: list[int]) -> int:
    """The step."""
    CLOCK.step()
    return sum(values)


def draw(seed: int) -> tuple[list[int]]:
    """Its inputs."""
    return ([seed % 7, 1, 2],)


def make() -> tuple[Callable[[list[int]], int], Callable[[int], tuple[list[int]]]]:
    """The target."""
    return add, draw
