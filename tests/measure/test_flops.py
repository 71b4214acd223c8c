"""Floating-point operations: exact where there is a formula, honest where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.targets.support import target
from torchstone.measure import flops
from torchstone.measure.flops import count_flops, count_ops, torch_formulas
from torchstone.records import ArmSpec, Flops, UsageError

torch: Any = pytest.importorskip("torch")


def count(step: Callable[[], object]) -> Flops:
    return count_ops(step, torch_formulas())


def test_a_matrix_product() -> None:
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    found = count(lambda: a @ b)
    assert found.total == 2 * 3 * 5 * 7
    assert found.by_op == {"aten.mm": found.total}
    assert (found.ops, found.ops_covered, found.time_covered) == (1, 1, 1.0)
    assert found.uncovered == ()


def test_a_convolution() -> None:
    conv = torch.nn.Conv2d(3, 8, kernel_size=3, padding=1, bias=False)
    with torch.no_grad():
        found = count(lambda: conv(torch.ones(2, 3, 10, 12)))
    assert found.by_op == {"aten.convolution": 2 * 2 * 8 * 10 * 12 * 3 * 3 * 3}


N, D_IN, H, D_OUT = 4, 32, 64, 8


def two_layers() -> Any:
    layers = torch.nn.Linear(D_IN, H), torch.nn.ReLU(), torch.nn.Linear(H, D_OUT)
    return torch.nn.Sequential(*layers)


def test_a_two_layer_network_and_the_op_without_a_formula() -> None:
    net, x = two_layers(), torch.ones(N, D_IN)
    with torch.no_grad():
        found = count(lambda: net(x))
    assert found.total == 2 * N * D_IN * H + 2 * N * H * D_OUT
    assert found.by_op == {"aten.addmm": found.total}
    assert found.ops_covered == 2
    assert found.ops > found.ops_covered
    assert "aten.relu" in found.uncovered
    assert 0 < found.time_covered < 1


def test_training_is_forward_and_backward() -> None:
    net, x = two_layers(), torch.ones(N, D_IN)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    first, second = 2 * N * D_IN * H, 2 * N * H * D_OUT
    # Backward: the weights' gradients of both, and the gradient of the second layer's input alone.
    assert count(step).total == (first + second) + (first + second) + second


def test_more_formulas_can_be_given() -> None:
    x = torch.ones(10)

    def one_each(*_: Any, out_val: Any, **__: Any) -> int:
        return int(out_val.numel())

    formulas = {**torch_formulas(), "aten.exp": one_each}
    found = count_ops(lambda: (x.exp(), x.sin()), formulas)
    assert found.by_op == {"aten.exp": 10}
    assert found.uncovered == ("aten.sin",)


@pytest.mark.parametrize(
    ("precision", "mode", "total"),
    [
        ("fp32", "inference", 2 * N * D_IN * H + 2 * N * H * D_OUT),
        ("amp-bf16", "inference", 2 * N * D_IN * H + 2 * N * H * D_OUT),
        ("fp32", "training", 4 * N * D_IN * H + 6 * N * H * D_OUT),
    ],
)
def test_an_arm_is_counted_in_its_mode_and_precision(precision: str, mode: str, total: int) -> None:
    arm = ArmSpec("a", target("nets"), mode=mode, precision=precision, variant="inductor")
    found = count_flops(arm, lambda name: None)
    assert found is not None
    assert found.total == total


def test_without_torch_ops_there_is_nothing_to_count() -> None:
    assert count_flops(ArmSpec("a", target("honest")), lambda name: None) is None


def test_formulas_that_fail_their_test_give_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    halved = {**torch_formulas(), "aten.mm": lambda *a, **k: 1}
    monkeypatch.setattr(flops, "load_formulas", lambda points: halved)
    with pytest.raises(UsageError, match=r"aten\.mm gives 1 operations"):
        count_flops(ArmSpec("a", target("nets")), lambda name: None)


def test_an_arm_has_bytes_and_heaviest_ops() -> None:
    found = count_flops(ArmSpec("a", target("nets")), lambda name: None)
    assert found is not None
    weights = D_IN * H + H + H * D_OUT + D_OUT
    assert found.least_bytes == 4 * (weights + N * D_IN + N * D_OUT)
    assert found.bytes == found.least_bytes + 4 * (4 * N * H)
    assert found.heaviest[0].time_ns >= found.heaviest[-1].time_ns > 0
    assert found.time_understood == 1.0
