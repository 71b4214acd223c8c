"""Ops of every kind with as little to do as they can have: operands of one element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

Call = Callable[[], Any]


def zoo(grad: bool) -> list[Call]:
    """The calls that this torch can make; with `grad`, on tensors that ask for gradients."""
    import torch

    with torch.device("cpu"):  # whatever the target has made the default
        toys = _Toys(torch, grad)
    calls = [*_pointwise(toys), *_products(toys), *_reductions(toys), *_movers(toys)]
    return [call for call in calls if _works(call)]


class _Toys:
    """The operands."""

    def __init__(self, torch: Any, grad: bool) -> None:
        self.torch: Any = torch
        self.f: Any = torch.nn.functional
        self.one = torch.ones(1, requires_grad=grad)
        self.row = torch.ones(1, 1, requires_grad=grad)
        self.cube = torch.ones(1, 1, 1, requires_grad=grad)
        self.image = torch.ones(1, 1, 1, 1, requires_grad=grad)
        self.image2 = torch.ones(1, 1, 2, 2, requires_grad=grad)
        self.heads = torch.ones(1, 1, 1, 8, requires_grad=grad)
        self.table = torch.ones(2, 1, requires_grad=grad)
        self.turned = torch.ones(2, 2, requires_grad=grad).t()
        self.index = torch.zeros(1, dtype=torch.long)
        self.plain = torch.ones(1)
        self.double = torch.ones(1, dtype=torch.float64)
        self.mean, self.spread = torch.zeros(1), torch.ones(1)


def _each(*calls: Sequence[Any]) -> list[Call]:
    """A function and its arguments, to be called with them."""
    return [_bind(function, arguments) for function, *arguments in calls]


def _bind(function: Any, arguments: Sequence[Any]) -> Call:
    # By hand for the usual counts: `functools.partial` would add to what is measured.
    if not arguments:
        return function  # type: ignore[no-any-return]
    if len(arguments) == 1:
        (first,) = arguments
        return lambda: function(first)
    if len(arguments) == 2:
        first, second = arguments
        return lambda: function(first, second)
    return lambda: function(*arguments)


def _pointwise(toys: _Toys) -> list[Call]:
    torch, f, one, plain = toys.torch, toys.f, toys.one, toys.plain
    return [
        lambda: one + one,
        lambda: one * one,
        lambda: one * plain,  # with gradients, a node of one operand
        lambda: one + plain,
        lambda: one * 2.0,
        lambda: one + 2.0,
        lambda: one - one,
        lambda: one / one,
        lambda: plain > 0,
        lambda: -one,
        *_each(
            *((getattr(torch, n), one) for n in ("relu", "tanh", "sigmoid", "exp", "sqrt", "sin")),
            *((getattr(torch, n), one) for n in ("neg", "rsqrt", "log", "abs", "cos")),
            (torch.pow, one, 2),
            (f.gelu, one),
            (f.silu, one),
            (torch.where, plain > 0, one, one),
            (torch.dropout, one, 0.5, True),
            (plain.add_, 1.0),
            (plain.mul_, 1.0),
            (plain.add_, toys.mean),
            (plain.mul_, toys.spread),
            (plain.zero_,),
        ),
    ]


def _products(toys: _Toys) -> list[Call]:
    torch, f = toys.torch, toys.f
    one, row, cube, image, heads = toys.one, toys.row, toys.cube, toys.image, toys.heads
    return [
        lambda: row @ row,
        *_each(
            (f.linear, row, row, one),
            (f.linear, row, row),
            (f.linear, cube, row, one),
            (torch.mm, row, row),
            (torch.addmm, one, row, row),
            (torch.bmm, cube, cube),
            (torch.matmul, row, one),
            (f.conv2d, image, image),
            (f.conv1d, cube, cube),
            (f.scaled_dot_product_attention, heads, heads, heads),
        ),
    ]


def _reductions(toys: _Toys) -> list[Call]:
    torch, f, one, row = toys.torch, toys.f, toys.one, toys.row
    image, image2, mean, spread = toys.image, toys.image2, toys.mean, toys.spread
    return _each(
        (one.sum,),
        (one.mean,),
        (row.max, 1),
        (torch.amax, row, 1),
        (torch.argmax, row, 1),
        (torch.softmax, row, 1),
        (torch.log_softmax, row, 1),
        (torch.cumsum, row, 1),
        (torch.layer_norm, row, (1,)),
        (torch.batch_norm, image, None, None, mean, spread, False, 0.1, 1e-5, True),
        (torch.batch_norm, image2, None, None, mean, spread, True, 0.1, 1e-5, True),
        (torch.max_pool2d, image, 1),
        (f.avg_pool2d, image, 1),
        (f.adaptive_avg_pool2d, image, 1),
        (f.mse_loss, one, toys.plain),
        (f.cross_entropy, row, toys.index),
        (torch.sort, row),
        (torch.topk, row, 1),
        (toys.plain.item,),
    )


def _movers(toys: _Toys) -> list[Call]:
    torch, one, row, turned = toys.torch, toys.one, toys.row, toys.turned
    return _each(
        (torch.embedding, toys.table, toys.index),
        (torch.index_select, row, 0, toys.index),
        (operator.getitem, row, toys.index),
        (operator.getitem, row, 0),
        (torch.cat, (one, one)),
        (torch.stack, (one, one)),
        (one.clone,),
        (one.detach,),
        (turned.contiguous,),
        (turned.reshape, -1),
        (row.view, -1),
        (row.t,),
        (row.transpose, 0, 1),
        (row.unsqueeze, 0),
        (toys.double.to, torch.float32),
        (toys.plain.copy_, toys.mean),
        (torch.tril, row),
        (torch.zeros, 1),
        (torch.ones, 1),
        (torch.arange, 1),
        (torch.rand, 1),
    )


def _works(call: Call) -> bool:
    try:
        call()
    except (RuntimeError, TypeError, AttributeError, NotImplementedError, ValueError):
        return False
    return True
