"""The counting pass of a case: a process of its own, whose failure costs nothing else."""

from __future__ import annotations

import pytest

from tests.targets.support import HONEST, run_arms, target
from torchstone.records import ArmSpec, Outcome


def test_a_target_without_torch_has_no_count_and_no_note() -> None:
    (arm,) = run_arms(ArmSpec("honest", HONEST), replicates=1, count_flops=True).arms
    assert (arm.outcome, arm.flops, arm.notes) == (Outcome.OK, None, ())


@pytest.mark.slow
def test_the_baseline_is_counted_and_arms_that_compute_the_same_share_it() -> None:
    net = target("nets")
    arms = (
        ArmSpec("eager", net),
        ArmSpec("aot", net, variant="aot_eager"),
        ArmSpec("bf16", net, precision="bf16"),
    )
    base, other, narrow = run_arms(*arms, replicates=1, count_flops=True).arms
    assert base.flops is not None
    assert base.flops.total == 2 * 4 * 32 * 64 + 2 * 4 * 64 * 8
    assert "aten.tanh" in base.flops.uncovered
    assert other.flops == base.flops
    assert narrow.flops is None  # other bytes, other peaks
    (plain,) = run_arms(arms[0], replicates=1).arms
    assert plain.flops is None


@pytest.mark.slow
def test_unchecked_arms_are_counted_by_themselves() -> None:
    (arm,) = run_arms(
        ArmSpec("eager", target("nets")), replicates=1, count_flops=True, check_outputs=False
    ).arms
    assert arm.flops is not None
    assert arm.flops.total == 2 * 4 * 32 * 64 + 2 * 4 * 64 * 8


@pytest.mark.slow
def test_a_count_that_fails_is_a_note_and_no_outcome() -> None:
    refuses = ArmSpec("refuses", target("nets", "make_uncountable"))
    (arm,) = run_arms(refuses, replicates=1, count_flops=True).arms
    assert arm.outcome is Outcome.OK, arm.detail
    assert arm.turns
    assert arm.flops is None
    assert arm.notes == ("FLOPs not counted: RuntimeError: not under a mode, please",)


@pytest.mark.slow
def test_arms_of_several_shapes_have_no_count() -> None:
    """It would be of the base shape, and their times are of the others."""
    (arm,) = run_arms(
        ArmSpec("eager", target("nets"), shapes=4), replicates=1, count_flops=True
    ).arms
    assert arm.outcome is Outcome.OK, arm.detail
    assert arm.turns
    assert arm.flops is None
