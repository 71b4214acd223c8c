"""An arm may live in another interpreter, which needs nothing but its standard library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.targets.support import HONEST, run_arms
from torchstone.machine.interpreters import known_interpreters
from torchstone.records import ArmSpec, Outcome

OURS = f"python3.{sys.version_info.minor}"
OTHERS = [name for name in ("python3.10", "python3.12", "python3.13") if name != OURS]


@pytest.mark.slow
def test_arms_in_other_interpreters_take_turns_with_ours(tmp_path: Path) -> None:
    known = known_interpreters()
    found = [name for name in OTHERS if name in known]
    if not found:
        pytest.skip("no other interpreter of Python 3.10 or newer is installed here")
    arms = [ArmSpec(name, HONEST, python=known[name]) for name in found]
    ours, *theirs = run_arms(ArmSpec("ours", HONEST), *arms).arms
    assert ours.outcome is Outcome.OK
    for name, arm in zip(found, theirs, strict=True):
        assert arm.outcome is Outcome.OK, arm.detail
        assert arm.turns
        assert arm.environment is not None
        assert arm.environment.python["version"].startswith(name.removeprefix("python"))
        assert arm.agreement is not None
        assert arm.agreement.timed == 2


def test_a_variant_that_needs_torch_is_not_supported_without_it() -> None:
    known = known_interpreters()
    found = [name for name in OTHERS if name in known]
    if not found:
        pytest.skip("no other interpreter of Python 3.10 or newer is installed here")
    there = ArmSpec("there", HONEST, python=known[found[-1]], variant="inductor")
    ours, other = run_arms(ArmSpec("ours", HONEST), there, replicates=1).arms
    assert ours.outcome is Outcome.OK
    assert other.outcome is Outcome.NOT_SUPPORTED
    assert "torch" in other.detail.message
