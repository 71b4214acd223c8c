"""Tensors at a step's peak, against steps whose needs are known to the byte."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from torchstone.measure.allocations import TensorPeak, TensorsBefore, tensor_peak, with_tensors
from torchstone.measure.arm import CPU, Built, accelerator_device
from torchstone.records import ArmSpec, Memory
from torchstone.variants import Prepared
from torchstone.workloads import Workload

torch = pytest.importorskip("torch")

UNIT = 2**20
PROCESS = Memory("VmHWM", peak_bytes=100, before_bytes=1, start_peak_bytes=200)


@pytest.fixture(autouse=True)
def few_objects() -> None:
    """Every object is looked at for tensors: those of the tests before would take seconds each."""
    gc.collect()
    gc.freeze()


def units(count: float) -> Any:
    return torch.ones(int(count * UNIT) // 4)


def peak_of(step: Callable[[], object]) -> TensorPeak:
    """Above what this process holds beside the step."""
    gc.unfreeze()  # what was frozen would come back in the middle of it
    gc.collect()
    found, reason = tensor_peak(step, TensorsBefore())
    assert found is not None, reason
    return found


def test_temporaries_count_while_they_live() -> None:
    def step() -> None:
        first, second = units(1), units(1)
        del first
        units(2)
        del second
        units(1)

    found = peak_of(step)
    assert found.peak_bytes - found.held_bytes == 3 * UNIT


def test_tensors_from_before_count_once_whoever_shares_them() -> None:
    nothing = peak_of(lambda: None)
    kept = units(4)
    views = [kept[:10], kept.view(-1, 2)]
    found = peak_of(lambda: [view.detach() for view in views])
    assert found == TensorPeak(nothing.held_bytes + 4 * UNIT, nothing.held_bytes + 4 * UNIT)


def test_what_a_step_replaces_is_not_counted_beside_its_successor() -> None:
    """As gradients are: torch is silent on the release of what was there before it was watched."""
    nothing = peak_of(lambda: None).held_bytes
    kept = [units(8)]

    def step() -> None:
        kept.clear()
        kept.append(units(8))

    found = peak_of(step)
    assert found == TensorPeak(nothing + 8 * UNIT, nothing + 8 * UNIT)


def test_what_only_the_second_step_gives_back_is_gone_as_well() -> None:
    nothing = peak_of(lambda: None).held_bytes
    kept, calls = [units(8)], []

    def step() -> None:
        calls.append(1)
        if len(calls) == 2:
            kept.clear()
        units(4)

    found = peak_of(step)
    assert found == TensorPeak(nothing + 8 * UNIT, nothing + 8 * UNIT)


def test_garbage_of_the_last_step_is_not_held() -> None:
    nothing = peak_of(lambda: None).held_bytes

    def step() -> None:
        ring: list[Any] = [units(2)]
        ring.append(ring)

    found = peak_of(step)
    assert found == TensorPeak(nothing, nothing + 2 * UNIT)


def test_a_fake_tensor_holds_nothing() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    nothing = peak_of(lambda: None).held_bytes
    with FakeTensorMode():
        fake = torch.ones(UNIT)
    assert peak_of(lambda: None).held_bytes == nothing
    assert fake.shape == (UNIT,)


def built(call: Callable[..., Any], device: Any = CPU) -> Built:
    workload = Workload(call, lambda seed: (torch.ones(UNIT // 4),))
    return Built(ArmSpec("a", "t"), device, workload, Prepared(call, lambda inputs: inputs))


def test_the_process_keeps_its_figures_beside_those_of_tensors() -> None:
    heard: list[str] = []
    report = with_tensors(built(lambda x: x + x), heard.append, PROCESS)
    memory = report.memory
    assert report.note == ""
    assert memory.tensor_peak_bytes is not None
    assert memory.tensor_held_bytes is not None
    assert memory.tensor_peak_bytes - memory.tensor_held_bytes == UNIT
    assert memory.most_bytes == 200  # what decides whether arms fit in memory together
    assert memory.overhead_bytes is not None
    assert heard == ["tensors"] * 3  # one a step: a time-out is of one


def test_a_step_that_cannot_be_watched_is_a_note() -> None:
    def call(x: Any) -> Any:
        if torch._C._autograd._profiler_enabled():
            raise RuntimeError("do not watch me")
        return x + x

    report = with_tensors(built(call), lambda phase: None, PROCESS)
    assert report.memory == PROCESS
    assert "RuntimeError: do not watch me" in report.note


class Accelerator:
    """Stands for `torch.accelerator`: a step of ours is said to take 500 bytes."""

    def __init__(self) -> None:
        self.held, self.peak = 200, 900

    def synchronize(self) -> None:
        self.peak = max(self.peak, self.held + 500)

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.held

    def max_memory_allocated(self) -> int:
        return self.peak

    def memory_allocated(self) -> int:
        return self.held


def test_on_an_accelerator_its_allocator_tells() -> None:
    device = accelerator_device("fake", Accelerator())
    memory = with_tensors(built(lambda x: x + x, device), lambda phase: None, PROCESS).memory
    assert (memory.tensor_held_bytes, memory.tensor_peak_bytes) == (200, 700)
    assert (memory.peak_bytes, memory.most_bytes) == (100, 200)  # the host's, as on the CPU
