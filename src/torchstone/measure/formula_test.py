"""The test that formulas must pass before their counts are believed: ops of known size.

A tool that counts multiply-adds reports half of what one that counts operations does, and both call
it FLOPs. So the real ops run here on small operands, and the counts must be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from torchstone.measure.counting import count_ops
from torchstone.measure.formula_door import Formula

_M, _N, _K, _B = 3, 7, 5, 2


class _Known(NamedTuple):
    """A call, and its operations by hand."""

    name: str
    call: Callable[[], object]
    operations: int


def self_test(formulas: Mapping[str, Formula]) -> str | None:
    """What is wrong with the formulas, in a sentence; None where the known ops count exactly."""
    import torch

    if "aten.mm" not in formulas:
        return "There is no formula for a matrix product."
    with torch.no_grad():
        for known in _known():
            found = count_ops(known.call, formulas)
            if found.total == known.operations or not found.ops_covered:
                continue
            hint = ": it counts multiply-adds" if 2 * found.total == known.operations else ""
            if found.total == 2 * known.operations:
                hint = ": something counts twice"
            return (
                f"The formula for {known.name} gives {found.total} operations where there are "
                f"{known.operations}{hint}."
            )
    return None


def _known() -> Iterator[_Known]:
    import torch

    left, right, vector = torch.ones(_M, _K), torch.ones(_K, _N), torch.ones(_K)
    many, others = torch.ones(_B, _M, _K), torch.ones(_B, _K, _N)
    product = 2 * _M * _N * _K
    yield _Known("aten.mm", lambda: left @ right, product)
    yield _Known("aten.addmm", lambda: torch.addmm(torch.ones(_N), left, right), product)
    yield _Known("aten.bmm", lambda: many @ others, _B * product)
    yield _Known(
        "aten.baddbmm",
        lambda: torch.baddbmm(torch.ones(_B, _M, _N), many, others),
        _B * product,
    )
    yield _Known("aten.mv", lambda: left @ vector, 2 * _M * _K)
    yield _Known("aten.dot", lambda: vector @ vector, 2 * _K)
    yield from _known_layers()


def _known_layers() -> Iterator[_Known]:
    import torch
    from torch.nn import functional

    image, filters = torch.ones(1, _B, 4, 6), torch.ones(_M, _B, 3, 3)
    yield _Known(
        "aten.convolution",
        lambda: functional.conv2d(image, filters, padding=1),
        2 * (_M * 4 * 6) * (_B * 3 * 3),
    )
    query = torch.ones(1, _B, _M, 8)
    yield _Known(
        "attention",
        lambda: functional.scaled_dot_product_attention(query, query, query),
        4 * _B * _M * _M * 8,
    )
