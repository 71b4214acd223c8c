"""Rings and blocks of arms whose input shapes vary."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from torchstone.measure.arm import CPU, RING_BYTES, RING_SLOTS, Built, inputs_bytes
from torchstone.measure.loops import step_block
from torchstone.records import ArmSpec
from torchstone.variants import Prepared
from torchstone.workloads import Workload


def built(shapes: int, row: int = 8, batch: int = 4) -> Built:
    arm = ArmSpec("a", "t", shapes=shapes)
    workload = Workload(len, lambda seed: (np.full((batch, row), seed % 100, dtype=np.int8),))
    return Built(arm, CPU, workload, Prepared(workload.call, lambda inputs: inputs))


def sizes(ring: list[Any]) -> list[int]:
    return [len(inputs.args[0]) for inputs in ring]


@pytest.mark.parametrize(
    ("asked", "slots"), [(8, 8), (10, 8), (3, 4), (10_000, RING_SLOTS // 4 * 4)]
)
def test_a_timed_ring_is_whole_passes_through_the_shapes(asked: int, slots: int) -> None:
    ring = built(4).ring(1000, asked, timed=True)
    assert sizes(ring) == [5, 6, 7, 8] * (slots // 4)
    seeds = [int(inputs.args[0][0, 0]) for inputs in ring]
    assert seeds == list(range(slots))


def test_warm_up_never_sees_a_timed_shape() -> None:
    arm = built(4)
    assert set(sizes(arm.ring(0, 16))) == {4}
    assert len(arm.inputs(0).args[0]) == 4
    assert not set(sizes(arm.ring(0, 16))) & set(sizes(arm.ring(0, 16, timed=True)))


def test_one_shape_is_as_ever() -> None:
    arm = built(1)
    assert sizes(arm.ring(0, 6, timed=True)) == [4] * 6
    assert arm.timed_shapes == (0,)
    assert [arm.whole_passes(n) for n in (1, 2, 7)] == [1, 2, 7]


@pytest.mark.parametrize(("pass_share", "slots"), [(0.45, 8), (0.9, 4), (1.5, 4)])
def test_the_ring_is_bounded_by_memory_in_whole_passes(pass_share: float, slots: int) -> None:
    rows = 5 + 6 + 7 + 8
    ring = built(4, int(RING_BYTES * pass_share / rows)).ring(0, 32, timed=True)
    assert len(ring) == slots
    held = sum(map(inputs_bytes, ring))
    assert held <= RING_BYTES or pass_share > 1  # one pass is the least


@pytest.mark.parametrize("asked", [1, 3, 4, 5, 30])
def test_every_sample_goes_through_every_shape_equally_often(asked: int) -> None:
    arm = built(4)
    loops = arm.whole_passes(asked)
    assert loops >= asked
    seen: list[int] = []
    block = step_block(lambda x: seen.append(len(x)), arm.ring(0, 12, timed=True), loops)
    for _ in range(5):
        seen.clear()
        block()
        assert Counter(seen) == dict.fromkeys((5, 6, 7, 8), loops // 4)
        assert seen[:4] == [5, 6, 7, 8]
