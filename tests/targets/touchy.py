"""Targets that cannot bear what the making of their reference does to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.targets.honest import Made


def draw(seed: int) -> tuple[Any]:
    return (np.random.default_rng(seed).standard_normal((4, 8)).astype("float32"),)


class Tangent:
    """What `look` does with the inputs comes first."""

    def __init__(self, look: Callable[[Any], None]) -> None:
        self.look = look

    def __call__(self, x: Any) -> Any:
        self.look(x)
        return np.tanh(x)


class NoCopies(Tangent):
    """Ends the process that copies it: no reference of it can be made."""

    def __deepcopy__(self, memo: Any) -> Any:
        os.abort()


def _only_float32(x: Any) -> None:
    assert x.dtype == np.float32


def _dies_in_float64(x: Any) -> None:
    if x.dtype == np.float64:
        os.kill(os.getpid(), 9)


def only_float32() -> Made:
    return Tangent(_only_float32), draw


def dies_in_float64() -> Made:
    return Tangent(_dies_in_float64), draw


def no_copies() -> Made:
    return NoCopies(lambda x: None), draw


def another_form() -> Made:
    return (lambda x: np.zeros(1, dtype="int64")), draw


def another_type() -> Made:
    return (lambda x: np.tanh(x).astype("float64")), draw


def other_values() -> Made:
    return (lambda x: x + np.float32(1)), draw


def labels() -> Any:
    """Raises for labels beyond 1, which a label of 1 is when it is nudged."""
    import torch

    class Labels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.binary_cross_entropy(torch.sigmoid(self.layer(x)), y)

    torch.manual_seed(0)  # torch was not there yet when the seed was set
    return Labels(), lambda seed: (torch.from_numpy(*draw(seed)), torch.ones(4, 1))


def keeps_no_promise() -> Any:
    """No reference of it can be made, and where it is asked to it leaves gradients on."""
    import torch

    class Layer(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if os.environ.get("TORCHSTONE_TEST_CHANGE"):
                torch.set_grad_enabled(True)
            return super().forward(x)

        def __deepcopy__(self, memo: Any) -> Any:
            os.abort()

    torch.manual_seed(0)
    return Layer(8, 8), lambda seed: (torch.from_numpy(*draw(seed)),)
