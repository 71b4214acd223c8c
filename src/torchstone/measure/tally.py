"""Calls, time, operations and bytes of a step, summed by op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torchstone.measure.formula_door import Formula
from torchstone.measure.plain_ops import is_plain
from torchstone.measure.traffic import Watch, tensors
from torchstone.records import Flops, OpWork

MOST_NAMED = 12
MOST_UNCOVERED = 5
MOST_HEAVY = 8


class Tally:
    """What the counting pass has seen."""

    def __init__(self, formulas: Mapping[str, Formula]) -> None:
        self.formulas = formulas
        self.calls: Counter[str] = Counter()
        self.time_ns: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.largest = 0
        self.plain: set[str] = set()
        self.without: set[str] = set()
        self.watch = Watch()

    def add(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, ns: int
    ) -> None:
        """One call of an op, and how long it took."""
        op = op_name(func)
        self.calls[op] += 1
        self.time_ns[op] += ns
        touched = self.watch.add(func, args, kwargs, result)
        self.bytes[op] += touched
        self.largest = max(self.largest, touched)
        if is_plain(func):
            self.plain.add(op)
        operations = self._operations(op, args, kwargs, result)
        if operations is None:
            self.without.add(op)
        else:
            self.operations[op] += operations

    def _operations(
        self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> int | None:
        """By the op's formula; None where there is none, or it does not know such operands."""
        formula = self.formulas.get(op)
        if formula is None or any(map(_is_sparse, tensors((args, kwargs)))):
            return None  # every formula counts the zeros that a sparse operand spares
        try:
            return int(formula(*args, **kwargs, out_val=result))
        except Exception:  # an assertion of a formula about shapes that it was not made for
            return None

    def flops(self, left_behind: Any = None) -> Flops:
        """The sums. `left_behind` is what the step returned and the gradients it made."""
        covered = self.calls.keys() - self.without
        understood = covered | self.plain
        dearest = [op for op, _ in self.time_ns.most_common() if op not in covered]
        by_op = Counter({op: self.operations[op] for op in covered})
        return Flops(
            total=sum(by_op.values()),
            by_op=dict(by_op.most_common(MOST_NAMED)),
            ops=sum(self.calls.values()),
            ops_covered=sum(self.calls[op] for op in covered),
            time_covered=self._share(covered),
            uncovered=tuple(dearest[:MOST_UNCOVERED]),
            bytes=sum(self.bytes.values()),
            least_bytes=self.watch.least(left_behind),
            heaviest=tuple(self._work(op) for op, _ in self.time_ns.most_common(MOST_HEAVY)),
            time_understood=self._share(understood),
            largest_bytes=self.largest,
        )

    @property
    def total_ns(self) -> int:
        """Time in ops."""
        return sum(self.time_ns.values())

    def _share(self, ops: set[str]) -> float:
        spent = sum(self.time_ns[op] for op in ops)
        return spent / self.total_ns if self.total_ns else 0.0

    def _work(self, op: str) -> OpWork:
        return OpWork(
            op=op,
            calls=self.calls[op],
            flops=None if op in self.without else self.operations[op],
            bytes=self.bytes[op],
            time_ns=self.time_ns[op],
        )


def op_name(func: Any) -> str:
    """`aten.mm`: the op without its overload."""
    return str(getattr(func, "_overloadpacket", func))


def _is_sparse(tensor: Any) -> bool:
    return str(tensor.layout).startswith("torch.sparse")
