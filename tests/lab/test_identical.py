"""The duplicate of the baseline that runs along now and then: what of it is remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.validate.cases import arm
from torchstone.conductor import CaseResult
from torchstone.lab.identical import DUPLICATE, conditions, observe
from torchstone.lab.keeping import Keeper
from torchstone.records import CompileCost, Measurement

STEP = CompileCost(cold_ns=0, first_call_ns=5_000_000, steady_ns=5_000_000)


def remembered(tmp_path: Path, twin: Measurement) -> float | None:
    keeper = Keeper(str(tmp_path / "kept.db"))
    base = arm("eager", compile=STEP)
    other = arm("inductor", 4e-3, seed=3)
    case = CaseResult((base, other, twin), 4, (4,), 0.05, "budget", 1.0)
    assert observe(keeper, case).arms == (base, other)
    assert base.environment is not None
    return keeper.aa_floor(base.environment.machine_id, *conditions(base))


def spread(by: float) -> Measurement:
    """The duplicate with processes that differ by so much from one to the next."""
    twin = arm(DUPLICATE, seed=2)
    turns = (
        replace(t, wall_ns=tuple(round(ns * (1 + by * t.replicate)) for ns in t.wall_ns))
        for t in twin.turns
    )
    return replace(twin, turns=tuple(turns))


def test_what_identical_arms_differ_by_is_remembered(tmp_path: Path) -> None:
    assert remembered(tmp_path, arm(DUPLICATE, 5.1e-3, seed=2)) == pytest.approx(0.02, abs=0.002)


def test_a_moment_in_which_nothing_could_be_seen_is_not(tmp_path: Path) -> None:
    assert remembered(tmp_path, spread(0.01)) == pytest.approx(0.015, abs=0.005)
    (tmp_path / "kept.db").unlink()
    assert remembered(tmp_path, spread(0.3)) is None
