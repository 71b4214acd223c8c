"""Bytes of ops and of steps against figures by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.measure.door import all_formulas
from torchstone.measure.flops import count_ops
from torchstone.records import Flops

torch: Any = pytest.importorskip("torch")
FLOAT = 4
SIZE = 1000


def count(step: Callable[[], object]) -> Flops:
    return count_ops(step, all_formulas())


def out_of(x: Any) -> Any:
    return torch.add(x, 1.0, out=torch.empty(SIZE))


@pytest.mark.parametrize(
    ("call", "floats"),
    [
        (lambda x: x + 1, 2 * SIZE),
        (lambda x: x * x, 2 * SIZE),
        (lambda x: x + torch.empty(SIZE), 3 * SIZE),
        (lambda x: x.sum(), SIZE + 1),
        (lambda x: x.add_(1), 2 * SIZE),
        (lambda x: x.zero_(), SIZE),
        (lambda x: x.copy_(torch.empty(SIZE)), 2 * SIZE),
        (out_of, 2 * SIZE),
        (lambda x: x.view(10, 100).t()[:, 3], 0),
        (lambda x: x.expand(7, SIZE), 0),
        (lambda x: x.expand(7, SIZE) + 1, SIZE + 7 * SIZE),
        (lambda x: x[:100].expand(5, 100) + 1, 100 + 500),
        (lambda x: x[::2] + 1, SIZE),
        (lambda x: x.view(10, 100).contiguous(), 0),
        (lambda x: x.view(10, 100).t().contiguous(), 2 * SIZE),
        (torch.empty_like, 0),
        (torch.zeros_like, SIZE),
        (lambda x: torch.cat([x, x]), SIZE + 2 * SIZE),
        (lambda x: torch._foreach_add([x, torch.empty(3)], 1.0), 2 * SIZE + 6),
    ],
)
def test_an_op(call: Callable[[Any], object], floats: int) -> None:
    x = torch.empty(SIZE)
    x.fill_(1.0)
    assert count(lambda: call(x)).bytes == floats * FLOAT


def test_a_look_up_reads_the_rows_it_takes() -> None:
    table, index = torch.ones(500, 8), torch.tensor([3, 3, 7])
    found = count(lambda: torch.nn.functional.embedding(index, table))
    rows, taken, result = 3 * 8, 2 * 8 * FLOAT, 3 * 8 * FLOAT
    assert found.bytes == rows + taken + result
    assert found.least_bytes == found.bytes


def test_a_put_touches_what_it_puts() -> None:
    table, index, values = torch.ones(500, 8), torch.tensor([3, 7]), torch.ones(2, 8)
    found = count(lambda: table.index_add_(0, index, values))
    put = 2 * 8 + 2 * 8 * FLOAT
    assert found.bytes == put + 2 * put


def test_a_matrix_product() -> None:
    a, b = torch.ones(30, 50), torch.ones(50, 70)
    found = count(lambda: a @ b)
    size = (30 * 50 + 50 * 70 + 30 * 70) * FLOAT
    assert (found.bytes, found.least_bytes, found.largest_bytes) == (size, size, size)


def test_what_stays_inside_the_step_can_be_avoided() -> None:
    x = torch.ones(SIZE)
    found = count(lambda: (x + 1).mul(2) - 1)
    assert found.bytes == 3 * 2 * SIZE * FLOAT
    assert found.least_bytes == 2 * SIZE * FLOAT


def test_a_weight_that_is_read_twice_must_be_read_once() -> None:
    x, weight = torch.ones(8, 8), torch.ones(8, 8)
    found = count(lambda: x @ weight @ weight)
    assert found.bytes == 6 * 64 * FLOAT
    assert found.least_bytes == 3 * 64 * FLOAT


def test_a_part_of_the_input_is_all_that_must_be_read() -> None:
    x = torch.ones(100, 10)
    assert count(lambda: x[:5] + 1).least_bytes == 2 * 50 * FLOAT


@pytest.mark.parametrize(("momentum", "states"), [(0.0, 0), (0.9, 1)])
def test_training_leaves_gradients_state_and_weights(momentum: float, states: int) -> None:
    layer, x = torch.nn.Linear(40, 30, bias=False), torch.ones(2, 40)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=momentum)

    def step() -> Any:
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss, layer.weight.grad

    step()
    weights = 40 * 30
    # Weights read and written, gradients left, state read and written; input read, loss left.
    floats = 2 * weights + weights + states * 2 * weights + 2 * 40 + 1
    assert count(step).least_bytes == floats * FLOAT


def test_the_heaviest_ops_come_with_all_their_figures() -> None:
    a, b = torch.ones(200, 200), torch.ones(200, 200)
    found = count(lambda: ((a @ b) + 1, b @ a))
    by_name = {work.op: work for work in found.heaviest}
    assert list(by_name) == sorted(by_name, key=lambda op: -by_name[op].time_ns)
    assert by_name["aten.mm"].calls == 2
    assert by_name["aten.mm"].flops == 2 * 2 * 200**3
    assert by_name["aten.mm"].bytes == 2 * 3 * 200 * 200 * FLOAT
    assert by_name["aten.add"].flops is None
    assert by_name["aten.add"].bytes == 2 * 200 * 200 * FLOAT
    assert sum(work.bytes for work in found.heaviest) == found.bytes


def test_what_needs_no_formula_is_understood_and_a_solver_is_not() -> None:
    x = torch.ones(64, 64)
    plain = count(lambda: torch.softmax(torch.nn.functional.layer_norm(x + 1, (64,)), -1).sum())
    assert (plain.time_covered, plain.time_understood) == (0.0, 1.0)
    solver = count(lambda: torch.linalg.inv(torch.eye(64)) @ x)
    assert 0 < solver.time_covered <= solver.time_understood < 1
