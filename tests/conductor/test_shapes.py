"""Arms under changing input shapes, in real processes."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median

import pytest

from tests.targets.support import run_arms, settings, target
from torchstone.conductor import CaseSpec
from torchstone.conductor.solo import checked_calls
from torchstone.conductor.turn_scheduler import Plan, samples_per_turn
from torchstone.records import ArmSpec, Measurement, Outcome


def arm(name: str, factory: str = "make", shapes: int = 4) -> ArmSpec:
    return ArmSpec(name, target("shapes", factory), shapes=shapes)


def test_timed_shapes_are_new_and_come_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAPES_SEEN", str(tmp_path / "seen"))
    (found,) = run_arms(arm("noting", "make_noting"), replicates=1, check_outputs=False).arms
    assert found.outcome is Outcome.OK, found.detail
    assert found.loops % 4 == 0
    solo, turns = sorted(
        ([int(n) for n in path.read_text().split()] for path in tmp_path.iterdir()),
        key=lambda seen: len(set(seen)),
    )
    assert set(solo) == {3}  # the base shape alone
    first = next(i for i, size in enumerate(turns) if size != 3)
    assert set(turns[:first]) == {3}
    calls = turns[first:]
    for turn in found.turns:
        # A first sample that is kept apart, the samples, and one call that may be checked.
        count = (1 + len(turn.wall_ns)) * found.loops
        assert calls[:count] == [4, 5, 6, 7] * (count // 4)
        assert calls[count] in (4, 5, 6, 7)
        calls = calls[count + 1 :]
    assert calls == []


def test_outputs_are_checked_at_the_timed_shapes() -> None:
    arms = arm("base"), arm("wrong", "make_wrong_elsewhere")
    base, wrong = run_arms(*arms, replicates=3).arms
    assert base.outcome is Outcome.OK, base.detail
    assert base.agreement is not None
    assert (base.agreement.checked, base.agreement.timed) == (4, 3)
    assert base.agreement.method == "fp64"
    assert wrong.outcome is Outcome.WRONG_ANSWER
    assert wrong.detail.phase == "timed turn"


def test_every_shape_has_a_reference_and_the_solo_pass_the_base() -> None:
    calls = checked_calls(arm("a"), settings())
    assert [call.shape for call in calls] == [0, 1, 2, 3, 4]
    assert len({call.seed for call in calls}) == 5
    assert [call.shape for call in checked_calls(arm("a", shapes=1), settings())] == [0] * 4


def test_a_constant_output_is_seen_through_its_shapes(tmp_path: Path) -> None:
    path = tmp_path / "same.py"
    path.write_text(
        "import numpy as np\n"
        "def make():\n"
        "    return (lambda x: np.ones(len(x))), (np.arange(12.0).reshape(3, 4),)\n"
    )
    case = run_arms(ArmSpec("same", f"{path}:make", shapes=4), replicates=1)
    assert case.constant
    assert not run_arms(arm("base"), replicates=1).constant


def test_own_shapes_are_taken_and_named_in_the_contract() -> None:
    (found,) = run_arms(arm("own", "make_own"), replicates=1).arms
    assert found.outcome is Outcome.OK, found.detail
    assert found.contract is not None
    assert "shapes varied: 4 of the workload's own" in found.contract.notes
    assert found.contract.inputs[0].shape == (1, 64)


def test_inputs_that_cannot_vary_are_not_supported() -> None:
    (found,) = run_arms(arm("fixed", "make_fixed")).arms
    assert found.outcome is Outcome.NOT_SUPPORTED
    assert "give the Workload an at_shape" in found.detail.message


def test_arms_of_one_case_share_their_shapes() -> None:
    with pytest.raises(ValueError, match="same number of shapes"):
        CaseSpec((arm("a"), arm("b", shapes=1)))


@pytest.mark.slow
def test_a_static_arm_recompiles_late_and_a_dynamic_one_does_not() -> None:
    net = target("nets")
    names = ("eager", "inductor", "inductor+dynamic", "export")
    arms = [ArmSpec(name, net, variant=name, shapes=4, threads=1) for name in names]
    found: dict[str, Measurement] = {a.arm.name: a for a in run_arms(*arms, replicates=2).arms}
    export = found.pop("export")
    assert export.outcome is Outcome.NOT_SUPPORTED
    assert "one input shape" in export.detail.message
    late = {}
    for name, measured in found.items():
        assert measured.outcome is Outcome.OK, measured.detail
        assert measured.loops % 4 == 0
        assert measured.contract is not None
        assert "shapes varied: batch 5, 6, 7, 8" in measured.contract.notes
        assert measured.contract.inputs[0].shape == (4, 32)
        assert measured.agreement is not None
        assert measured.agreement.timed == 2
        late[name] = measured.graphs.late_recompiles if measured.graphs else 0
    assert late["eager"] == late["inductor+dynamic"] == 0
    assert late["inductor"] >= 2  # at least once in each process
    # The compiler's time is in the first pass over the new shapes, which is kept apart.
    for process in (0, 1):
        turns = [turn for turn in found["inductor"].turns if turn.replicate == process]
        assert turns[0].first_ns > 5 * median(ns for turn in turns for ns in turn.wall_ns)


@pytest.mark.parametrize(("shapes", "least"), [(1, 4), (2, 2), (4, 2), (100, 2)])
def test_a_turn_of_long_steps_has_at_least_four_calls_and_two_samples(
    shapes: int, least: int
) -> None:
    plan = Plan(12, 400)
    found = {samples_per_turn(settings(), plan, 10**9, random.Random(i), shapes) for i in range(50)}
    assert min(found) == least
    assert max(found) <= least * 1.5
