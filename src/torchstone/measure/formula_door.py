"""Where formulas come from: torch's own, and those behind the entry points `torchstone.formulas`.

An entry point's name is the op's (`aten.mv`, `mylib.my_op`: its name without the overload); its
object is a `Formula`. It stands before torch's own of the same name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import cast

from torchstone.records import UsageError
from torchstone.records.doors import all_of

ENTRY_POINTS = "torchstone.formulas"

Formula = Callable[..., int]
"""From an op's arguments, and its result as `out_val`, to its floating-point operations."""


def known_formulas() -> tuple[metadata.EntryPoint, ...]:
    """Installed formulas by op, nothing loaded yet; two for one op are refused."""
    points = all_of(ENTRY_POINTS)
    for one, other in itertools.pairwise(points):
        if one.name == other.name:
            raise UsageError(
                f"Two plug-ins have a formula for {one.name}: {one.value} and {other.value}.",
                "Remove one of them.",
            )
    return points


def load_formulas(points: Iterable[metadata.EntryPoint]) -> dict[str, Formula]:
    """Torch's formulas and the plug-ins', by the op's name."""
    return {**torch_formulas(), **{point.name: _load(point) for point in points}}


def torch_formulas() -> dict[str, Formula]:
    """The formulas that torch has registered, by the op's name (`aten.mm`)."""
    from torch.utils.flop_counter import flop_registry

    return {str(op): formula for op, formula in flop_registry.items()}


def _load(point: metadata.EntryPoint) -> Formula:
    try:
        return cast("Formula", point.load())
    except Exception as error:  # whatever a plug-in does wrong
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"The formula for {point.name} ({point.value}) cannot be loaded: {said}.",
            "Report it to its author, or remove the plug-in.",
        ) from None
