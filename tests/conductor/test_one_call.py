"""Steps of 10 ms and more: turns of one call, checked outputs, arms in one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.targets.support import HONEST, run_arms, target
from torchstone.conductor.turn_scheduler import may_share
from torchstone.records import ArmSpec, Outcome

LONG = target("long_steps")


def test_long_steps_take_turns_call_by_call() -> None:
    case = run_arms(ArmSpec("a", LONG), ArmSpec("b", LONG), budget_s=1.0)
    for arm in case.arms:
        assert arm.outcome is Outcome.OK, arm.detail
        assert {len(turn.wall_ns) for turn in arm.turns} == {1}
        assert Counter(turn.checked for turn in arm.turns)[True] == 2  # once in each process
        assert arm.agreement is not None
        assert arm.agreement.timed == 2
    rounds = [[(turn.replicate, turn.index) for turn in arm.turns] for arm in case.arms]
    assert rounds[0] == rounds[1]
    assert case.phases["turns"] > 0


def test_short_steps_keep_turns_of_many_calls() -> None:
    (arm,) = run_arms(ArmSpec("a", HONEST)).arms
    assert min(len(turn.wall_ns) for turn in arm.turns) > 1


def test_arms_get_the_same_inputs_and_no_input_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So an arm that remembers its answers gains nothing."""
    drawn = tmp_path / "drawn"
    monkeypatch.setenv("TORCHSTONE_TEST_BUILT", str(drawn))
    noted = target("long_steps", "make_noted")
    case = run_arms(ArmSpec("a", noted), ArmSpec("b", noted), replicates=1, budget_s=1.0)
    by_process: dict[str, list[str]] = {}
    for line in drawn.read_text().splitlines():
        process, _, seed = line.partition(":")
        by_process.setdefault(process, []).append(seed)
    turns = len(case.arms[0].turns)
    measured = list(by_process.values())[-2:]
    for seeds in measured:
        assert len(set(seeds[-turns:])) == turns
        assert not set(seeds[-turns:]) & set(seeds[:-turns])
    # But for the one call of each that is checked.
    assert len(set(measured[0][-turns:]) & set(measured[1][-turns:])) >= turns - 2


def test_a_wrong_answer_in_a_timed_call_is_found() -> None:
    wrong = ArmSpec("wrong", target("long_steps", "make_later_wrong"))
    _, found = run_arms(ArmSpec("honest", LONG), wrong, budget_s=6.0, replicates=2).arms
    assert found.outcome is Outcome.WRONG_ANSWER
    assert found.detail.phase == "timed turn"


@pytest.mark.parametrize("together", [pytest.param(False, marks=pytest.mark.slow), True])
def test_arms_share_a_process_where_asked(
    together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / "built"
    built.write_text("")
    monkeypatch.setenv("TORCHSTONE_TEST_BUILT", str(built))
    spec = target("long_steps", "make_process")
    case = run_arms(ArmSpec("a", spec), ArmSpec("b", spec), together=together, check_outputs=False)
    assert [arm.outcome for arm in case.arms] == [Outcome.OK] * 2
    # Each arm alone first, then two replicates.
    assert Counter(Counter(built.read_text().split()).values()) == (
        {1: 2, 2: 2} if together else {1: 6}
    )


def test_who_dies_in_a_shared_process_is_tried_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / "built"
    built.write_text("")
    monkeypatch.setenv("TORCHSTONE_TEST_BUILT", str(built))
    arms = [
        ArmSpec("a", target("long_steps", "make_process")),
        ArmSpec("b", target("long_steps", "make_dies_beside")),
    ]
    first, second = run_arms(*arms, together=True, check_outputs=False).arms
    assert (first.outcome, second.outcome) == (Outcome.OK, Outcome.OK), second.detail
    assert "tried again apart: exited with code 3" in second.notes[0]
    assert len({turn.replicate for turn in second.turns}) >= 1


def test_what_holds_for_a_whole_process_keeps_arms_apart() -> None:
    one = ArmSpec("a", LONG)
    assert may_share([one, ArmSpec("b", LONG, variant="inductor")]) == ""
    assert may_share([one, ArmSpec("b", LONG, threads=2)]) == "they differ in threads"
    assert "allocator" in may_share([one, ArmSpec("b", LONG, allocator="jemalloc")])
    assert "freezing" in may_share([one, ArmSpec("b", LONG, variant="inductor+freezing")])
