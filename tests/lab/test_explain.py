"""`explain` as a use case: real processes, from target to findings to a test of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.conductor import Settings
from torchstone.explain.findings import registry
from torchstone.explain.findings.collector import COLLECTOR
from torchstone.explain.findings.waiting import SLEEP
from torchstone.lab.explain import (
    ExplainRequest,
    explain_difference,
    explain_target,
    verify_command,
)
from torchstone.lab.request import BenchRequest
from torchstone.records import ArmSpec, UsageError

LITTER = """
import time

ALIVE = [[number] for number in range(150_000)]

def step():
    for _ in range(4000):
        pair = []
        pair.append(pair)
    time.sleep(0.001)
"""
SHORT = Settings(budget_s=1.0, replicates=2)


@pytest.fixture
def request_(tmp_path: Path) -> ExplainRequest:
    path = tmp_path / "litter.py"
    path.write_text(LITTER, encoding="utf-8")
    bench = BenchRequest(targets=(f"{path}:step()",), settings=SHORT, env=(("TOKEN", "s3cret-x"),))
    return ExplainRequest(bench, budget_s=0.8, verify_budget_s=1.0)


@pytest.mark.slow
def test_from_a_target_to_a_tested_prediction(
    request_: ExplainRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "known_findings", lambda: [SLEEP, COLLECTOR])
    found = explain_target(ExplainRequest(request_.bench, "", 0.8, True, 1.0))
    assert found.arm.env == (("TOKEN", "(hidden)"),)
    assert found.share("collector") > 0.2
    names = [one.name for one in found.findings]
    assert "garbage-collection" in names
    tests = {one.finding: one for one in found.verifications}
    assert set(tests) == set(names)
    assert tests["garbage-collection"].measured is not None
    assert tests["garbage-collection"].measured < 1
    if "sleep" in tests:
        assert "Not tested" in tests["sleep"].sentence


def test_what_verifies_can_be_asked_for_again() -> None:
    arm = ArmSpec(
        "inductor",
        "model.py:make",
        "inductor",
        mode="training",
        precision="bf16",
        threads=2,
        env=(("TOKEN", "s3cret-x"), ("OMP_PROC_BIND", "true")),
        allocator="keep",
    )
    words = " ".join(verify_command(arm, Settings(budget_s=3.0)))
    assert words.startswith("torchstone explain model.py:make --vs inductor --mode training")
    for part in ("--precision bf16", "--threads 2", "--allocator keep", "--budget 3s", "--verify"):
        assert part in words
    assert "--env TOKEN=(hidden)" in words
    assert "s3cret" not in words


def test_a_difference_needs_something_to_differ_from(request_: ExplainRequest) -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        explain_difference(request_)


def test_a_variant_that_does_not_exist_is_found_before_anything_is_started(
    request_: ExplainRequest,
) -> None:
    with pytest.raises(UsageError, match="no variant"):
        explain_difference(ExplainRequest(request_.bench, "nonsense"))
