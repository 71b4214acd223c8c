"""References made beside the baseline, and libraries that cannot be imported."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import HONEST, alive, eventually, run_arms, settings
from torchstone.conductor import run
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.solo import PendingReference
from torchstone.conductor.state import ArmState
from torchstone.records import ArmSpec, Outcome

MODEL = "torchbench:lennard_jones@small"


def test_a_case_whose_library_dies_has_that_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = _dies_importing(tmp_path, monkeypatch)
    (measured,) = run_arms(arm).arms
    assert measured.outcome is Outcome.CRASH
    assert measured.detail.exit_code == 7


def test_so_many_processes_as_were_asked_for_whatever_the_budget() -> None:
    case = run_arms(ArmSpec("honest", HONEST), replicates=4, budget_s=0.01)
    assert (case.replicates, case.stopped_by) == (4, "replicates")


def beside(folder: Path, spec: ArmSpec, **more: Any) -> PendingReference | None:
    """What is at work while that baseline runs alone; it must be gone afterwards."""
    state = ArmState(spec)
    home = Path(tempfile.mkdtemp(dir=folder))
    with run._reference_beside(
        CaseContext(Launcher(home), settings(**more)), state, state
    ) as begun:
        found = begun
        assert begun is None or alive(begun.worker.pid)
    assert found is None or eventually(lambda: not alive(found.worker.pid))
    return found


def test_a_reference_is_made_beside_only_where_it_has_a_core_and_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "usable_cores", lambda: 2)
    monkeypatch.setattr(run, "memory_available", lambda: run.ROOM_FOR_IDLE)
    one = ArmSpec("eager", MODEL, threads=1)
    assert beside(tmp_path, one) is not None
    assert beside(tmp_path, one, check_outputs=False) is None
    for other in (
        replace(one, threads=2),
        replace(one, threads=None),
        replace(one, target=MODEL.replace("small", "full")),
        replace(one, target=HONEST),
        replace(one, variant="inductor"),
    ):
        assert beside(tmp_path, other) is None, other
    monkeypatch.setattr(run, "memory_available", lambda: run.ROOM_FOR_IDLE - 1)
    assert beside(tmp_path, one) is None


@pytest.mark.slow
def test_a_case_is_judged_by_the_reference_that_was_made_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arms = [ArmSpec(name, MODEL, threads=1) for name in ("eager", "again")]
    found = []
    for cores in (2, 1):
        monkeypatch.setattr(run, "usable_cores", lambda cores=cores: cores)
        found.append(run_arms(*arms, replicates=1, count_flops=True).arms)
    for first, second in zip(*found, strict=True):
        assert first.outcome is Outcome.OK, first.detail
        assert first.agreement == second.agreement
        assert first.agreement is not None
        assert first.agreement.method == "fp64"
        assert first.flops is not None
        assert second.flops is not None
        assert first.flops.total == second.flops.total


def _dies_importing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ArmSpec:
    library = folder / "library"
    library.mkdir()
    (library / "torch.py").write_text("import os; os._exit(7)")
    monkeypatch.setenv("PYTHONPATH", str(library))
    return ArmSpec("eager", MODEL)
