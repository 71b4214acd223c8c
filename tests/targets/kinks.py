"""Models whose answer jumps when a number moves by its last bit, and one whose answer does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from tests.targets.honest import Made

ULP = torch.finfo(torch.float32).eps


class Switch(torch.nn.Module):
    """One where the product of weight and input is over 1, else 0."""

    def __init__(self, after: Callable[[Any], Any]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4096))
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.after(self.weight * x) > 1).to(x.dtype)


class RareSwitch(torch.nn.Module):
    """A jump in one value of 4096, where two products are both over 1: one nudge in sixteen."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4096))
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = self.weight * x
        over = (product[:2] * self.factor > 1).all().to(x.dtype)
        return product + 2 * over * torch.nn.functional.one_hot(torch.tensor(7), 4096)


class DiesWhenNudgedOften(RareSwitch):
    """Bears the nudges of a reference, and not those of a closer look."""

    nudged = 0  # of the process: every nudge has a copy of the model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        DiesWhenNudgedOften.nudged += bool((self.weight != 1).any())
        if DiesWhenNudgedOften.nudged > 8 * 4:
            os._exit(5)
        return super().forward(x)


class Times(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Smooth(torch.nn.Module):
    """No kink anywhere."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.1, 1, 4096))
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.weight * x) * self.factor


def _ones(seed: int) -> tuple[torch.Tensor]:
    torch.manual_seed(seed)
    return (torch.where(torch.rand(4096) < 0.5, 1.0, 0.5),)


def switch() -> Made:
    return Switch(lambda product: product), _ones


def switch_rounded_up() -> Made:
    return Switch(lambda product: product * (1 + ULP)), _ones


def switch_wrong() -> Made:
    """Says 4, which no rounding explains."""
    return torch.nn.Sequential(Switch(lambda product: product * 4), Times(4)), _ones


def _all_ones(seed: int) -> tuple[torch.Tensor]:
    torch.manual_seed(seed)
    return (torch.cat([torch.ones(2), 0.5 + torch.rand(4094)]),)


def rare() -> Made:
    return RareSwitch(1.0), _all_ones


def rare_rounded_up() -> Made:
    return RareSwitch(1 + ULP), _all_ones


def rare_but_dies() -> Made:
    return DiesWhenNudgedOften(1.0), _all_ones


def smooth() -> Made:
    return Smooth(1.0), _ones


def smooth_wrong() -> Made:
    return Smooth(1.0002), _ones
