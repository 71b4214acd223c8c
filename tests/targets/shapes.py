"""Targets whose inputs can have several shapes: one that notes what it meets, one that errs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from torchstone import Workload

BATCH, WIDTH = 3, 64


def _inputs(seed: int) -> tuple[Any]:
    return (np.random.default_rng(seed).standard_normal((BATCH, WIDTH)),)


def make_noting() -> Any:
    """Leaves a line with the batch size of every call in a file of its own process."""
    path = f"{os.environ['SHAPES_SEEN']}-{os.getpid()}"

    def call(x: Any) -> Any:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{len(x)}\n")
        return x.sum(axis=1)

    return call, _inputs


def make() -> Any:
    return (lambda x: x.sum(axis=1)), _inputs


def make_wrong_elsewhere() -> Any:
    """Right at the shape it was tried with, wrong at larger ones."""
    return (lambda x: x.sum(axis=1) + (len(x) > BATCH + 1)), _inputs


def make_own() -> Any:
    """Varies its width, not its batch."""

    def at_shape(seed: int, shape: int) -> Any:
        return (np.random.default_rng(seed).standard_normal((1, WIDTH + shape)),)

    return Workload(lambda x: x.sum(axis=1), lambda seed: at_shape(seed, 0), at_shape=at_shape)


def make_fixed() -> Any:
    return (lambda x, y: x + y), (np.zeros((4, 2)), np.zeros((1, 2)))
