"""Targets that misuse their process: the measurement goes on, or its end says why it could not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.targets import support
from tests.targets.support import HONEST, run_arms, target
from torchstone.conductor import CaseResult
from torchstone.records import ArmSpec, Measurement, Outcome

HARMLESS = [
    "noisy",
    "speaks_the_protocol",
    "writes_to_low_descriptors",
    "moves_house",
    "replaces_streams",
    "handles_signals",
    "endless_threads",
    "leaves_children",
]
FATAL = {
    "closes_descriptors": "exited with code 1",
    "writes_everywhere": "wrote to Torchstone",
    "forges_an_answer": "wrote to Torchstone",
    "forges_a_list": "wrote to Torchstone",
    "forges_a_reply": "wrote to Torchstone",
    "forges_a_failure": "wrote to Torchstone",
}


@pytest.fixture(scope="module")
def case() -> Iterator[CaseResult]:
    mark = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(support.MARK, mark)
        patch.setenv("PYTHONPATH", str(support.ROOT))
        arms = [ArmSpec(name, target("rude", name)) for name in (*HARMLESS, *FATAL)]
        yield run_arms(ArmSpec("honest", HONEST), *arms)
    assert not support.marked(mark)


def arm_of(case: CaseResult, name: str) -> Measurement:
    return next(arm for arm in case.arms if arm.arm.name == name)


@pytest.mark.parametrize("name", ["honest", *HARMLESS])
def test_bad_manners_do_not_spoil_the_measurement(case: CaseResult, name: str) -> None:
    arm = arm_of(case, name)
    assert arm.outcome is Outcome.OK, arm.detail
    assert {turn.replicate for turn in arm.turns} == {0, 1}
    assert arm.agreement is not None
    assert (arm.agreement.checked, arm.agreement.timed) == (3, 2)


@pytest.mark.parametrize("name", FATAL)
def test_user_code_that_breaks_our_pipes_ends_its_own_arm_only(case: CaseResult, name: str) -> None:
    arm = arm_of(case, name)
    assert arm.outcome is Outcome.CRASH
    assert arm.detail.message.startswith(FATAL[name])
    assert arm.detail.phase == "build"


def test_processes_that_outlive_a_worker_are_killed_and_counted(case: CaseResult) -> None:
    notes = arm_of(case, "leaves_children").notes
    assert notes[0].startswith("3 process(es) that outlived")


def test_threads_that_never_end_are_seen_but_do_not_delay(case: CaseResult) -> None:
    assert not arm_of(case, "endless_threads").notes  # ended in good order, nothing to kill
