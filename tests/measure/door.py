"""Our own formulas, and torch's."""

from __future__ import annotations

from importlib.metadata import EntryPoint

from torchstone.measure.flops import FORMULAS, Formula, load_formulas


def own_points() -> tuple[EntryPoint, ...]:
    return FORMULAS.all()


def all_formulas() -> dict[str, Formula]:
    """Torch's and ours, loaded as the counting pass loads them."""
    return load_formulas(own_points())
