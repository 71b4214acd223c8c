"""Arms whose true difference is known: the same unit of work, done more often.

The base arm does `AA_UNITS` units in a step; `make_5` does 5 % more of them. A unit computes
tanh(x @ weight) from the same x, so every arm gives the same answer and passes the contract
check, and the true ratio is the ratio of the unit counts. What a step does besides (the call
itself, one copy of the answer: a few microseconds) is the same in all arms: it takes a thousandth
off the effect at 5 ms (5 % is 4.995 %), one or two hundredths at 0.2 ms (5 % is about 4.9 %).

Settings come from the environment, so that every tool and every worker reads the same:
`AA_WORK` (`torch`, or `python` for a machine without it), `AA_UNITS`, `AA_SIZE`, `AA_THREADS`.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

EFFECTS = (0, 1, 2, 5, 10)
"""Slow-downs in per cent for which there is a factory."""
CALIBRATION_UNITS = 200
CALIBRATION_ROUNDS = 25

Made = tuple[Callable[..., Any], Callable[[int], Any]]


def make_0() -> Made:
    return make(0)


def make_1() -> Made:
    return make(1)


def make_2() -> Made:
    return make(2)


def make_5() -> Made:
    return make(5)


def make_10() -> Made:
    return make(10)


def make(percent: int) -> Made:
    """A step that does `percent` more units than the base, and its inputs by seed."""
    units = units_of(percent, int(os.environ["AA_UNITS"]))
    if os.environ.get("AA_WORK", "torch") == "python":
        return python_step(units), lambda seed: (random.Random(seed).random(),)
    size = int(os.environ["AA_SIZE"])
    return torch_step(units, size), lambda seed: torch_inputs(seed, size)


def units_of(percent: int, base: int) -> int:
    """The exact number of units; an error where `percent` more is not a whole number."""
    units, rest = divmod(base * (100 + percent), 100)
    if rest:
        raise ValueError(f"{percent} % more than {base} units is not a whole number of units")
    return units


def torch_step(units: int, size: int) -> Callable[..., Any]:
    """`units` small matmul+tanh steps into fixed buffers, so that no allocator has a say."""
    import torch

    class Repeated(torch.nn.Module):
        weight: torch.Tensor
        product: torch.Tensor
        answer: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            chance = torch.Generator().manual_seed(0)
            weight = torch.randn(size, size, generator=chance) / size**0.5
            self.register_buffer("weight", weight)
            self.register_buffer("product", torch.zeros(size, size))
            self.register_buffer("answer", torch.zeros(size, size))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mm, tanh = torch.mm, torch.tanh
            weight, product, answer = self.weight, self.product, self.answer
            for _ in range(units):
                mm(x, weight, out=product)
                tanh(product, out=answer)
            return answer.clone()

    return Repeated()


def torch_inputs(seed: int, size: int) -> Any:
    """One square matrix."""
    import torch

    return (torch.randn(size, size, generator=torch.Generator().manual_seed(seed)),)


def python_step(units: int) -> Callable[[float], float]:
    """`units` runs of a small loop in plain Python."""

    def unit(x: float) -> float:
        value = x
        for _ in range(40):
            value = 0.5 * value + x
        return value

    def step(x: float) -> float:
        value = 0.0
        for _ in range(units):
            value = unit(x)
        return value

    return step


def ready(percent: int) -> tuple[Callable[..., Any], Any]:
    """A step and its arguments for the other tools, in the state in which ours runs it."""
    if os.environ.get("AA_WORK", "torch") == "torch":
        import torch

        torch.set_num_threads(int(os.environ.get("AA_THREADS", "1")))
        torch.set_grad_enabled(False)
    step, inputs = make(percent)
    return step, inputs(0)


def unit_seconds() -> float:
    """The floor of one unit's time here and now."""
    os.environ["AA_UNITS"] = str(CALIBRATION_UNITS)
    step, arguments = ready(0)
    best = float("inf")
    for _ in range(CALIBRATION_ROUNDS):
        started = time.perf_counter()
        step(*arguments)
        best = min(best, time.perf_counter() - started)
    return best / CALIBRATION_UNITS


if __name__ == "__main__":
    print(json.dumps(unit_seconds()))
