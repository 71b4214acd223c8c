"""A target whose file cannot be imported."""

from __future__ import annotations

from tests.targets.honest import Made, draw, squares


def make() -> Made:
    return squares, draw


raise RuntimeError("broken while importing")
