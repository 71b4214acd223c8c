"""Every death of a worker is an outcome with its evidence, and the other arms go on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.targets import support
from tests.targets.memory_group import memory_group  # noqa: F401
from tests.targets.support import HONEST, eventually, run_arms, target
from torchstone.conductor import CaseResult
from torchstone.machine.hardware import LIMIT, WITHOUT_AMX
from torchstone.records import ArmSpec, Measurement, Outcome

Case = dict[str, Measurement]

# name, outcome, phase, signal, exit code, words of the message
ENDS = [
    ("segfault", "crash", "first call", "SIGSEGV", None, "killed by SIGSEGV"),
    ("abort", "crash", "first call", "SIGABRT", None, "killed by SIGABRT"),
    ("illegal", "crash", "first call", "SIGILL", None, "killed by SIGILL"),
    ("hard_exit", "crash", "first call", "", 3, "exited with code 3"),
    ("soft_exit", "error", "first call", "", None, "SystemExit: 3"),
    ("interrupts", "error", "first call", "", None, "KeyboardInterrupt"),
    ("kills_itself", "crash", "first call", "SIGKILL", None, "killed by SIGKILL"),
    ("memory_error", "oom", "first call", "", None, "MemoryError"),
    ("raises_in_build", "error", "build", "", None, "RuntimeError: broken while building"),
    ("raises_at_once", "error", "first call", "", None, "RuntimeError: broken at the first"),
    ("raises_with_strange_text", "error", "first call", "", None, "Strange: a lone surrogate"),
    ("raises_without_text", "error", "first call", "", None, "Mute"),
    ("leaves_a_child", "crash", "first call", "", 7, "exited with code 7"),
    ("raises_in_a_turn", "error", "turn", "", None, "RuntimeError: broken in a timed turn"),
    ("segfault_in_a_turn", "crash", "turn", "SIGSEGV", None, "killed by SIGSEGV"),
    ("hangs_in_a_turn", "timeout", "turn", "SIGKILL (ours)", None, "no answer within"),
    ("endless_with_family", "timeout", "step", "SIGKILL (ours)", None, "no answer within"),
    ("deadlock", "timeout", "step", "SIGKILL (ours)", None, "no answer within"),
]


@pytest.fixture(scope="module")
def pids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pids") / "family"


@pytest.fixture(scope="module")
def case(pids: Path) -> Iterator[CaseResult]:
    """One honest arm among all that die: each death costs one start, and no other arm."""
    mark = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_PIDS", str(pids))
        patch.setenv(support.MARK, mark)
        patch.setenv("PYTHONPATH", str(support.ROOT))
        patch.setattr("torchstone.conductor.solo.SOLO_SLACK_S", 0.0)
        arms = [ArmSpec(name, target("deaths", name)) for name, *_ in ENDS]
        yield run_arms(ArmSpec("honest", HONEST), *arms, step_timeout_s=4.0, build_timeout_s=60.0)
    assert not support.marked(mark)


def arm_of(case: CaseResult, name: str) -> Measurement:
    return next(arm for arm in case.arms if arm.arm.name == name)


def test_the_honest_arm_finishes_among_seventeen_that_die(case: CaseResult) -> None:
    honest = arm_of(case, "honest")
    assert honest.outcome is Outcome.OK, honest.detail
    assert {turn.replicate for turn in honest.turns} == {0, 1}
    assert all(turn.wall_ns for turn in honest.turns)
    assert honest.agreement is not None
    assert honest.agreement.timed == 2
    assert case.stopped_by != "no arm left"


@pytest.mark.parametrize(("name", "outcome", "phase", "signal", "code", "words"), ENDS)
def test_a_death_is_an_outcome_with_evidence(
    case: CaseResult,
    name: str,
    outcome: str,
    phase: str,
    signal: str,
    code: int | None,
    words: str,
) -> None:
    arm = arm_of(case, name)
    found = arm.detail
    assert (arm.outcome.value, found.phase, found.signal, found.exit_code) == (
        outcome,
        phase,
        signal,
        code,
    )
    assert found.message.startswith(words)
    assert len(found.message) <= 2000


@pytest.mark.parametrize("name", ["segfault", "abort", "hard_exit", "kills_itself", "memory_error"])
def test_the_last_lines_of_stderr_are_kept(case: CaseResult, name: str) -> None:
    assert "last words before the end" in arm_of(case, name).detail.stderr


def test_a_segmentation_fault_says_in_which_line(case: CaseResult) -> None:
    for name in ("segfault", "segfault_in_a_turn"):
        lines = arm_of(case, name).detail.stderr
        assert any("Fatal Python error: Segmentation fault" in line for line in lines), lines
        assert any("deaths.py" in line for line in lines), lines
        assert not any("payload" in line for line in lines), lines


def test_a_traceback_is_kept_with_the_line_that_raised(case: CaseResult) -> None:
    lines = arm_of(case, "raises_in_a_turn").detail.stderr
    assert any("broken in a timed turn" in line for line in lines)
    assert any("deaths.py" in line for line in lines)


def test_a_time_out_kills_children_and_those_that_left_the_session(
    case: CaseResult, pids: Path
) -> None:
    assert arm_of(case, "endless_with_family").detail.strays_killed == 3
    family = [int(word) for word in pids.read_text().split()]
    assert len(family) == 3
    assert eventually(lambda: not any(support.alive(pid) for pid in family))


def test_a_child_that_holds_the_pipes_is_killed_and_does_not_delay(case: CaseResult) -> None:
    assert arm_of(case, "leaves_a_child").detail.strays_killed == 1


def test_an_arm_that_dies_in_a_turn_has_its_solo_figures(case: CaseResult) -> None:
    arm = arm_of(case, "segfault_in_a_turn")
    assert arm.contract is not None
    assert arm.environment is not None
    assert arm.compile is not None


def test_the_thousandth_call_may_be_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(support.ROOT))
    late = ArmSpec("late", target("deaths", "raises_in_the_thousandth_call"))
    honest, dead = run_arms(ArmSpec("honest", HONEST), late).arms
    assert honest.outcome is Outcome.OK, honest.detail
    assert honest.turns
    assert dead.outcome is Outcome.ERROR
    assert dead.detail.message == "RuntimeError: broken in the thousandth call"
    assert dead.detail.phase in ("step", "warm-up", "turn")  # and not the first call


def test_a_kill_for_want_of_memory_is_told_from_any_other(
    memory_group: Path,  # noqa: F811
) -> None:
    case = run_arms(
        ArmSpec("honest", HONEST), ArmSpec("hungry", target("deaths", "cgroup_oom")), replicates=1
    )
    honest, hungry = case.arms
    assert honest.outcome is Outcome.OK
    assert honest.turns
    assert hungry.outcome is Outcome.OOM, hungry.detail
    assert hungry.detail.signal == "SIGKILL"
    assert "OOM killer" in hungry.detail.message


def test_an_illegal_instruction_has_a_remedy(case: CaseResult) -> None:
    detail = arm_of(case, "illegal").detail
    assert f"{LIMIT}={WITHOUT_AMX}" in detail.remedy
    assert not arm_of(case, "segfault").detail.remedy
