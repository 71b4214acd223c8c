"""Ops of the step with nothing to do, called between the step's own samples.

A core's speed changes from second to second, by a factor of two where others use it too. What an
op takes in the step is told from what it takes with nothing to do, so both must be of the same
moments.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, NamedTuple

from torchstone.explain.passes import report
from torchstone.explain.passes.report import OpTime

CALLS = 6
"""Of each, one after the other: the first find the caches as the step has left them."""
MOST_CALLS = 16
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
"""The calls that a floor is of, by op and by whether it makes an autograd node."""


def calls_of(
    name: str, calls: Iterable[ReferenceCall], grad: bool, inside: float | None = None
) -> list[ReferenceCall]:
    """The calls of an op; where there is none, those that call it on their way. Of these the ones
    that call as many ops `inside`: a product with a number is another than one of two tensors."""
    alike = [one for one in calls if one.grad == grad and name in one.events]
    found = [one for one in alike if one.op == name] or alike
    if inside is None or not found:
        return found
    distances = [abs(one.inside.get(name, 0.0) - inside) for one in found]
    nearest = min(distances)
    return [one for one, far in zip(found, distances, strict=True) if far == nearest]


def groups_of(calls: Sequence[ReferenceCall], ops: Sequence[OpTime]) -> Groups:
    """For the ops of a step that have a floor, the slowest first."""
    found: Groups = {}
    for op in ops:
        if op.calls and not (report.is_view(op.name) or report.allocates(op.name)):
            for grad in (False, True) if op.with_grad > 0 else (False,):
                group = calls_of(op.name, calls, grad, op.inside / op.calls)
                if group:
                    found[op.name, grad] = group
    return found


def floor_by(name: str, group: Sequence[ReferenceCall]) -> float:
    """What an event took in these calls when floors were measured, the middle one of them."""
    return median(one.events[name] for one in group)


class DispatchReference:
    """Makes its calls, under marks that tell them from the step and from each other."""

    def __init__(self, groups: Groups) -> None:
        """For each op all calls that its floor is of, or none; the first ops come first."""
        self.calls: list[ReferenceCall] = []
        self._groups: Groups = {}
        for key, group in groups.items():
            more = [one for one in group if one not in self.calls]
            if len(self.calls) + len(more) <= MOST_CALLS:
                self.calls += more
                self._groups[key] = group
        self._mark = marker()

    def __call__(self) -> None:
        """Once, between two samples."""
        import torch

        for number, one in enumerate(self.calls):
            with torch.set_grad_enabled(one.grad), self._mark(f"{report.REFERENCE}{number}"):
                for _ in range(CALLS):
                    one.call()

    def speeds(self, rows: Iterable[Row]) -> tuple[Speeds, Speeds]:
        """From the tracer's rows, in order: of events without and with gradients. Each is of all
        the calls that its floor is of, so that the two are alike."""
        seen = {number: per_call(inside) for number, inside in _by_call(rows).items()}
        found: dict[bool, Speeds] = {False: {}, True: {}}
        for (name, grad), group in self._groups.items():
            numbers = [self.calls.index(one) for one in group]
            if all(name in seen.get(number, {}) for number in numbers):
                now, then = median(seen[number][name] for number in numbers), floor_by(name, group)
                if then:
                    found[grad][name] = now / then
        return found[False], found[True]


def _by_call(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """What happened under each call's mark."""
    inside: dict[int, list[Row]] = defaultdict(list)
    end, owner, number = 0, None, 0
    for row in rows:
        thread, start, minus, name, *_ = row
        if name.startswith(report.REFERENCE):
            end, owner, number = start - minus, thread, int(name[len(report.REFERENCE) :])
        elif thread == owner and start < end:
            inside[number].append(row)
    return inside


class Nested(NamedTuple):
    """One traced event, with what it called: its own time is without theirs."""

    name: str
    own: int
    span: int
    children: int
    first: str
    """The name of its first child."""
    outermost: bool


def nested(rows: Iterable[Row]) -> Iterator[Nested]:
    """Every event as it ends, so those inside a call come right before the call itself."""
    stack: list[list[Any]] = []  # name, end, own time so far, span, children, first child

    def close() -> Nested:
        name, _, own, span, children, first = stack.pop()
        return Nested(name, max(0, own), span, children, first, not stack)

    for _, start, minus, name, *_ in rows:
        while stack and stack[-1][1] <= start:
            yield close()
        if stack:
            parent = stack[-1]
            parent[2] += minus
            parent[4] += 1
            parent[5] = parent[5] or name
        stack.append([name, start - minus, -minus, -minus, 0, ""])
    while stack:
        yield close()


def per_call(rows: Iterable[Row]) -> dict[str, float]:
    """By event name: its own time in a call, shared among its events there, the middle one of the
    calls. An event may occur twice in a call, once within the other, and the two are not alike."""
    found: dict[str, list[float]] = defaultdict(list)
    call: dict[str, list[int]] = defaultdict(list)
    for event in nested(rows):
        call[event.name].append(event.own)
        if event.outermost:
            for name, own in call.items():
                found[name].append(fmean(own))
            call.clear()
    return {name: median(times) for name, times in found.items() if "::" in name}


def children(rows: Iterable[Row]) -> dict[str, float]:
    """By event name: how many others it calls, on average."""
    counts: dict[str, list[int]] = defaultdict(list)
    for event in nested(rows):
        counts[event.name].append(event.children)
    return {name: fmean(found) for name, found in counts.items()}


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


class _Operands:
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


def op_microbenchmarks(grad: bool) -> list[Call]:
    """The calls that this torch can make; with `grad`, on tensors that ask for gradients."""
    import torch

    with torch.device("cpu"):  # whatever the target has made the default
        operands = _Operands(torch, grad)
    bound = (*_pointwise(operands), *_products(operands), *_reductions(operands))
    calls = [*_operators(operands), *map(_bind, (*bound, *_movers(operands)))]
    return [call for call in calls if _works(call)]


def _bind(call: Sequence[Any]) -> Call:
    """A function and its arguments, to be called with them."""
    function, *arguments = call
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


def _operators(o: _Operands) -> list[Call]:
    one, plain, row = o.one, o.plain, o.row
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
        lambda: row @ row,
    ]


def _pointwise(o: _Operands) -> list[Sequence[Any]]:
    torch, f, one, plain = o.torch, o.f, o.one, o.plain
    return [
        *((getattr(torch, n), one) for n in ("relu", "tanh", "sigmoid", "exp", "sqrt", "sin")),
        *((getattr(torch, n), one) for n in ("neg", "rsqrt", "log", "abs", "cos")),
        (torch.pow, one, 2),
        (f.gelu, one),
        (f.silu, one),
        (torch.where, plain > 0, one, one),
        (torch.dropout, one, 0.5, True),
        (plain.add_, 1.0),
        (plain.mul_, 1.0),
        (plain.add_, o.mean),
        (plain.mul_, o.spread),
        (plain.zero_,),
    ]


def _products(o: _Operands) -> list[Sequence[Any]]:
    torch, f, one, row, cube = o.torch, o.f, o.one, o.row, o.cube
    return [
        (f.linear, row, row, one),
        (f.linear, row, row),
        (f.linear, cube, row, one),
        (torch.mm, row, row),
        (torch.addmm, one, row, row),
        (torch.bmm, cube, cube),
        (torch.matmul, row, one),
        (f.conv2d, o.image, o.image),
        (f.conv1d, cube, cube),
        (f.scaled_dot_product_attention, o.heads, o.heads, o.heads),
    ]


def _reductions(o: _Operands) -> list[Sequence[Any]]:
    torch, f, one, row, image = o.torch, o.f, o.one, o.row, o.image
    return [
        (one.sum,),
        (one.mean,),
        (row.max, 1),
        (torch.amax, row, 1),
        (torch.argmax, row, 1),
        (torch.softmax, row, 1),
        (torch.log_softmax, row, 1),
        (torch.cumsum, row, 1),
        (torch.layer_norm, row, (1,)),
        (torch.batch_norm, image, None, None, o.mean, o.spread, False, 0.1, 1e-5, True),
        (torch.batch_norm, o.image2, None, None, o.mean, o.spread, True, 0.1, 1e-5, True),
        (torch.max_pool2d, image, 1),
        (f.avg_pool2d, image, 1),
        (f.adaptive_avg_pool2d, image, 1),
        (f.mse_loss, one, o.plain),
        (f.cross_entropy, row, o.index),
        (torch.sort, row),
        (torch.topk, row, 1),
        (o.plain.item,),
    ]


def _movers(o: _Operands) -> list[Sequence[Any]]:
    torch, one, row = o.torch, o.one, o.row
    return [
        (torch.embedding, o.table, o.index),
        (torch.index_select, row, 0, o.index),
        (operator.getitem, row, o.index),
        (operator.getitem, row, 0),
        (torch.cat, (one, one)),
        (torch.stack, (one, one)),
        (one.clone,),
        (one.detach,),
        (o.turned.contiguous,),
        (o.turned.reshape, -1),
        (row.view, -1),
        (row.t,),
        (row.transpose, 0, 1),
        (row.unsqueeze, 0),
        (o.double.to, torch.float32),
        (o.plain.copy_, o.mean),
        (torch.tril, row),
        (torch.zeros, 1),
        (torch.ones, 1),
        (torch.arange, 1),
        (torch.rand, 1),
    ]


def _works(call: Call) -> bool:
    try:
        call()
    except (RuntimeError, TypeError, AttributeError, NotImplementedError, ValueError):
        return False
    return True
