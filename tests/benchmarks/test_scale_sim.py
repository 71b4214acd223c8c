"""The simulated night against what can be computed by hand."""

from __future__ import annotations

import pytest
from benchmarks.scale_sim import Measured, check, simulate


def test_two_nodes_share_the_work() -> None:
    night = simulate([4.0, 3.0, 2.0, 1.0], 2, write_s=0.0, hand_out_s=0.0)
    assert night.seconds == pytest.approx(5.0)
    assert night.node_share == pytest.approx(1.0)
    assert (night.done, night.lost, night.retried) == (4, 0, 0)


def test_a_slow_store_is_the_bottleneck_of_many_nodes() -> None:
    night = simulate([1.0] * 200, 100, write_s=0.1, hand_out_s=0.0)
    assert night.seconds >= 20.0
    assert night.store_share > 0.9
    assert night.worst_wait_s > 5.0


def test_every_group_is_done_or_lost_whatever_dies() -> None:
    for seed in range(20):
        night = simulate([600.0] * 50, 5, deaths_per_hour=0.5, seed=seed)
        assert night.done + night.lost == 50
    assert simulate([600.0] * 50, 5, deaths_per_hour=20.0).nodes_left == 0


def test_a_stored_night_stands_beside_its_simulation() -> None:
    """Nine seconds with a short group first; the longest first would have taken one less."""
    groups = [Measured("a", 2.0, 2.0), Measured("a", 9.0, 6.0), Measured("b", 5.0, 5.0)]
    found = check(groups)
    assert (found.nodes, found.groups, found.between_s, found.took_s) == (2, 3, 1.0, 9.0)
    assert found.simulated_s == pytest.approx(8.0)  # 6, and beside it 5, a second, and 2
