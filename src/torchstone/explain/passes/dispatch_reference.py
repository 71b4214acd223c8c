"""Ops of the step with nothing to do, called between the step's own samples.

A core's speed changes from second to second, by a factor of two where others use it too. What an
op takes in the step is told from what it takes with nothing to do, so both must be of the same
moments.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from torchstone.explain.passes import report
from torchstone.explain.passes.report import OpTime
from torchstone.explain.passes.tally import entry_of

CALLS = 6
"""Of each, one after the other: the first find the caches as the step has left them."""
MOST_TOYS = 16
Row = tuple[Any, ...]
Speeds = dict[str, float]
"""By event name: what it takes, as a multiple of what it took when its floor was measured."""


@dataclass(frozen=True)
class ReferenceCall:
    """A call with nothing to do, and what its events took when floors were measured."""

    call: Callable[[], Any]
    op: str
    """The one that it is a call of."""
    events: Mapping[str, float]
    inside: Mapping[str, float] = field(default_factory=dict)
    """How many events each of these calls."""
    grad: bool = False


Groups = dict[tuple[str, bool], Sequence[ReferenceCall]]
"""The toys that a floor is of, by op and by whether it makes an autograd node."""


def reference_calls_of(
    name: str, reference_calls: Iterable[ReferenceCall], grad: bool, inside: float | None = None
) -> list[ReferenceCall]:
    """The calls of an op; where there is none, those that call it on their way. Of these the ones
    that call as many ops `inside`: a product with a number is another than one of two tensors."""
    alike = [
        reference_call
        for reference_call in reference_calls
        if reference_call.grad == grad and name in reference_call.events
    ]
    found = [reference_call for reference_call in alike if reference_call.op == name] or alike
    if inside is None or not found:
        return found
    nearest = min(abs(reference_call.inside.get(name, 0.0) - inside) for reference_call in found)
    return [
        reference_call
        for reference_call in found
        if abs(reference_call.inside.get(name, 0.0) - inside) == nearest
    ]


def groups_of(reference_calls: Sequence[ReferenceCall], ops: Sequence[OpTime]) -> Groups:
    """For the ops of a step that have a floor, the slowest first."""
    found: Groups = {}
    for op in ops:
        if op.calls and not (report.is_view(op.name) or report.allocates(op.name)):
            for grad in (False, True) if op.with_grad > 0 else (False,):
                group = reference_calls_of(op.name, reference_calls, grad, op.inside / op.calls)
                if group:
                    found[op.name, grad] = group
    return found


def floor_by(name: str, group: Sequence[ReferenceCall]) -> float:
    """What an event took in these toys when floors were measured, the middle one of them."""
    return median(reference_call.events[name] for reference_call in group)


class DispatchReference:
    """Calls its toys, under marks that tell them from the step and from each other."""

    def __init__(self, groups: Groups) -> None:
        """For each op all toys that its floor is of, or none; the first ops come first."""
        self.reference_calls: list[ReferenceCall] = []
        self._groups: Groups = {}
        for key, group in groups.items():
            more = [
                reference_call
                for reference_call in group
                if reference_call not in self.reference_calls
            ]
            if len(self.reference_calls) + len(more) <= MOST_TOYS:
                self.reference_calls += more
                self._groups[key] = group
        self._mark = marker()

    def __call__(self) -> None:
        """Once, between two samples."""
        import torch

        for number, reference_call in enumerate(self.reference_calls):
            with torch.set_grad_enabled(reference_call.grad), self._mark(f"{report.TOY}{number}"):
                for _ in range(CALLS):
                    reference_call.call()

    def speeds(self, rows: Iterable[Row]) -> tuple[Speeds, Speeds]:
        """From the tracer's rows, in order: of events without and with gradients. Each is of all
        the toys that its floor is of, so that the two are alike."""
        seen = {number: per_call(inside) for number, inside in _by_toy(rows).items()}
        found: dict[bool, Speeds] = {False: {}, True: {}}
        for (name, grad), group in self._groups.items():
            numbers = [self.reference_calls.index(reference_call) for reference_call in group]
            if all(name in seen.get(number, {}) for number in numbers):
                now, then = median(seen[number][name] for number in numbers), floor_by(name, group)
                if then:
                    found[grad][name] = now / then
        return found[False], found[True]


def _by_toy(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """What happened under each toy's mark."""
    inside: dict[int, list[Row]] = defaultdict(list)
    end, owner, number = 0, None, 0
    for row in rows:
        thread, start, minus, name, *_ = row
        if name.startswith(report.TOY):
            end, owner, number = start - minus, thread, int(name[len(report.TOY) :])
        elif thread == owner and start < end:
            inside[number].append(row)
    return inside


def per_call(rows: Iterable[Row]) -> dict[str, float]:
    """By event name: its own time in a call, shared among its events there, the middle one of the
    calls. An event may occur twice in a call, once within the other, and the two are not alike."""
    calls: list[dict[str, list[int]]] = []
    end = 0
    inside: list[Row] = []
    for row in rows:
        if row[1] >= end and inside:
            calls.append(own_times(inside)[0])
            inside = []
        end = max(end, row[1] - row[2]) if inside else row[1] - row[2]
        inside.append(row)
    if inside:
        calls.append(own_times(inside)[0])
    names_seen = {name for call in calls for name in call if "::" in name}
    return {
        name: median(sum(call[name]) / len(call[name]) for call in calls if name in call)
        for name in names_seen
    }


def children(rows: Iterable[Row]) -> dict[str, float]:
    """By event name: how many others it calls, on average."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    stack: list[tuple[str, int]] = []
    for _, start, minus, name, *_ in rows:
        while stack and stack[-1][1] <= start:
            stack.pop()
        if stack:
            counts[stack[-1][0]][1] += 1
        counts[name][0] += 1
        stack.append((name, start - minus))
    return {name: inside / calls for name, (calls, inside) in counts.items()}


def own_times(rows: Iterable[Row]) -> tuple[dict[str, list[int]], list[tuple[str, int]]]:
    """Own times by event name; and the outermost events, each with how it was entered."""
    own: dict[str, list[int]] = defaultdict(list)
    tops: list[tuple[str, int]] = []
    stack: list[list[Any]] = []  # name, end, own time so far, span, first child

    def close() -> None:
        name, _, left, span, first = stack.pop()
        own[name].append(max(0, left))
        if not stack:
            tops.append((entry_of(name, first), span))

    for _, start, minus, name, *_ in rows:
        while stack and stack[-1][1] <= start:
            close()
        if stack:
            stack[-1][2] += minus
            stack[-1][4] = stack[-1][4] or name
        stack.append([name, start - minus, -minus, -minus, ""])
    while stack:
        close()
    return own, tops


def marker() -> Any:
    """The cheapest mark that this torch has."""
    try:
        from torch._C._profiler import _RecordFunctionFast
    except ImportError:
        from torch.autograd.profiler import record_function

        return record_function
    return _RecordFunctionFast


# Ops of every kind with as little to do as they can have: operands of one element.


Call = Callable[[], Any]


def op_microbenchmarks(grad: bool) -> list[Call]:
    """The calls that this torch can make; with `grad`, on tensors that ask for gradients."""
    import torch

    with torch.device("cpu"):  # whatever the target has made the default
        reference_calls = _Toys(torch, grad)
    calls = [
        *_pointwise(reference_calls),
        *_products(reference_calls),
        *_reductions(reference_calls),
        *_movers(reference_calls),
    ]
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


def _pointwise(reference_calls: _Toys) -> list[Call]:
    torch, f, one, plain = (
        reference_calls.torch,
        reference_calls.f,
        reference_calls.one,
        reference_calls.plain,
    )
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
            (plain.add_, reference_calls.mean),
            (plain.mul_, reference_calls.spread),
            (plain.zero_,),
        ),
    ]


def _products(reference_calls: _Toys) -> list[Call]:
    torch, f = reference_calls.torch, reference_calls.f
    one, row, cube, image, heads = (
        reference_calls.one,
        reference_calls.row,
        reference_calls.cube,
        reference_calls.image,
        reference_calls.heads,
    )
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


def _reductions(reference_calls: _Toys) -> list[Call]:
    torch, f, one, row = (
        reference_calls.torch,
        reference_calls.f,
        reference_calls.one,
        reference_calls.row,
    )
    image, image2, mean, spread = (
        reference_calls.image,
        reference_calls.image2,
        reference_calls.mean,
        reference_calls.spread,
    )
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
        (f.mse_loss, one, reference_calls.plain),
        (f.cross_entropy, row, reference_calls.index),
        (torch.sort, row),
        (torch.topk, row, 1),
        (reference_calls.plain.item,),
    )


def _movers(reference_calls: _Toys) -> list[Call]:
    torch, one, row, turned = (
        reference_calls.torch,
        reference_calls.one,
        reference_calls.row,
        reference_calls.turned,
    )
    return _each(
        (torch.embedding, reference_calls.table, reference_calls.index),
        (torch.index_select, row, 0, reference_calls.index),
        (operator.getitem, row, reference_calls.index),
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
        (reference_calls.double.to, torch.float32),
        (reference_calls.plain.copy_, reference_calls.mean),
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
