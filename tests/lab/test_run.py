"""What a run is told apart by, what it may go on with, and the rows of what was not measured."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.targets.support import HONEST, ROOT
from torchstone.conductor import Settings
from torchstone.conductor.case import Silent
from torchstone.lab.figures import figures_of
from torchstone.lab.keeping import Keeper
from torchstone.lab.run import (
    describe_run,
    measure_group,
    resume_run,
    start_run,
)
from torchstone.lab.run_plan import Group, RunRequest, make_plan
from torchstone.machine.cgroup import usable_cores
from torchstone.records import (
    Agreement,
    ArmSpec,
    CaseFigures,
    CaseKey,
    Measurement,
    Method,
    Outcome,
    PlannedCase,
    Result,
    Run,
    UsageError,
)
from torchstone.store import open_store
from torchstone.workloads.suites.torchbench import VARIABLE

CHECKOUT = ROOT / "tests" / "fixtures" / "torchbench"
COMMAND = ("torchstone", "run")
CORES = 64


class Quiet(Silent):
    """Nobody watches."""

    def run_started(self, run: Run, todo: int, done: int) -> None: ...

    def case_started(self, index: int, total: int, key: CaseKey, left: float | None) -> None: ...

    def case_finished(self, figures: CaseFigures) -> None: ...


@pytest.fixture
def asked(tmp_path: Path) -> RunRequest:
    suite = tmp_path / "toys.toml"
    suite.write_text(f'name = "toys"\n[[model]]\nname = "one"\ntarget = "{HONEST}"\n')
    settings = Settings(budget_s=0.2, replicates=1)
    return RunRequest((str(suite),), variants=("eager",), label="night", settings=settings)


def begun(request: RunRequest, db: str, torch: str | None = None) -> Run:
    """A run whose plan is stored and of which nothing is measured."""
    run = describe_run(request, make_plan(request, CORES), COMMAND, None)
    run = run if torch is None else replace(run, torch=torch)
    with open_store(db) as store:
        store.begin_run(run)
    return run


# Going on with a run


@pytest.mark.parametrize("torch", ["1.13.0", ""])
def test_a_run_is_not_gone_on_with_under_another_torch(
    asked: RunRequest, tmp_path: Path, torch: str
) -> None:
    db = str(tmp_path / "kept.db")
    run = begun(asked, db, torch)
    with pytest.raises(UsageError, match=f"begun with {f'torch {torch}' if torch else 'no torch'}"):
        resume_run(run.id, db, Quiet())
    with open_store(db, read_only=True) as store:
        assert store.done_positions(run.id) == set()


def test_a_run_of_a_checkout_is_not_gone_on_with_without_it(
    asked: RunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = str(tmp_path / "kept.db")
    monkeypatch.setenv(VARIABLE, str(CHECKOUT))
    run = begun(replace(asked, suites=("torchbench",), only=("good",)), db)
    assert [case.key.suite for case in run.plan] == ["torchbench-checkout"]
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(UsageError, match="No checkout of pytorch/benchmark is named"):
        resume_run(run.id, db, Quiet())
    with open_store(db, read_only=True) as store:
        assert store.done_positions(run.id) == set()


def refused(run: Run, db: str, words: str) -> UsageError:
    """Going on is refused, and nothing of the run is stored."""
    with pytest.raises(UsageError, match=words) as caught:
        resume_run(run.id, db, Quiet())
    with open_store(db, read_only=True) as store:
        assert store.done_positions(run.id) == set()
    return caught.value


def test_a_run_of_files_is_not_gone_on_with_in_another_folder(
    asked: RunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    for folder in (first, other):
        folder.mkdir()
    (first / "mine.py").write_text("def make(): return (abs, (1,))\n")
    (first / "toys.toml").write_text('[[model]]\nname = "one"\ntarget = "mine.py:make"\n')
    db = str(tmp_path / "kept.db")
    monkeypatch.chdir(first)
    run = begun(replace(asked, suites=("toys.toml",)), db)
    monkeypatch.chdir(other)
    assert "folder in which it was begun" in refused(run, db, "There is no file mine.py").remedy
    monkeypatch.chdir(first)
    (first / "mine.py").write_text("def renamed(): return (abs, (1,))\n")
    assert "mine.py:renamed" in refused(run, db, "mine.py has no 'make'").remedy


def test_a_run_is_not_gone_on_with_at_another_commit(
    asked: RunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, db = tmp_path / "place", str(tmp_path / "kept.db")
    place.mkdir()
    monkeypatch.chdir(place)
    nowhere = begun(asked, db)
    git(place, "init", "-q")
    git(place, "commit", "-qm", "first", "--allow-empty")
    run = begun(asked, db)
    assert run.git is not None
    assert resume_run(run.id, db, Quiet(), total_budget_s=0.0).stopped_by == "total budget"
    (place / "new.py").touch()
    refused(run, db, "here files differ from it")
    dirty = begun(asked, db)
    assert resume_run(dirty.id, db, Quiet(), total_budget_s=0.0).stopped_by == "total budget"
    git(place, "add", ".")
    git(place, "commit", "-qm", "second")
    refused(run, db, f"was begun at commit {run.git.commit[:12]}, and here is commit ")
    monkeypatch.chdir(tmp_path)
    refused(run, db, "here is no repository")
    # One that bears no commit goes on anywhere.
    assert resume_run(nowhere.id, db, Quiet(), total_budget_s=0.0).stopped_by == "total budget"


# What tells cases and runs apart


def test_a_checkout_and_the_models_without_one_share_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "benchmark"
    shutil.copytree(CHECKOUT, copy)
    models = copy / "torchbenchmark" / "models"
    shutil.copytree(models / "good", models / "dcgan")
    request = RunRequest(("torchbench",), only=("dcgan",))
    (built_in,) = make_plan(request, CORES).cases
    monkeypatch.setenv(VARIABLE, str(copy))
    (from_checkout,) = make_plan(request, CORES).cases
    assert built_in.target == "torchbench:dcgan@small"
    assert from_checkout.target == "torchbench-checkout:dcgan@small"
    assert built_in.key.name == "torchbench/dcgan@small inference fp32 inductor"
    assert from_checkout.key.name == "torchbench-checkout/dcgan@small inference fp32 inductor"


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True)


def test_shards_are_one_run_by_plan_and_commit_and_not_by_what_one_machine_lacks(
    asked: RunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "first", "--allow-empty")
    plan = make_plan(asked, CORES)
    lacking = replace(plan, cases=(replace(plan.cases[0], not_supported="needs a package"),))
    longer = replace(plan, cases=plan.cases * 2)

    def shard(chosen: object = plan, index: int = 1, label: str = "night") -> str:
        return describe_run(replace(asked, label=label), chosen, COMMAND, (index, 2)).id  # type: ignore[arg-type]

    first = shard()
    assert shard(index=2) == shard(lacking, 2) == first
    assert len({first, shard(longer), shard(label="morning")}) == 3
    git(tmp_path, "commit", "-qm", "second", "--allow-empty")
    assert shard() != first


# The machine


def test_few_cores_are_those_that_may_be_used(asked: RunRequest, tmp_path: Path) -> None:
    everything = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(everything)})
        assert usable_cores() == 1
        end = start_run(asked, COMMAND, str(tmp_path / "kept.db"), Quiet(), total_budget_s=0.0)
    finally:
        os.sched_setaffinity(0, everything)
    assert {case.key.threads for case in end.view.run.plan} == {1}
    assert "because 1 core can be used here" in end.view.run.notes[0]


# What was not measured


def planned(variant: str, target: str, why: str = "") -> PlannedCase:
    return PlannedCase(CaseKey("toys", "one", "", "inference", "fp32", variant), target, why)


def test_a_case_that_was_not_measured_has_its_command(tmp_path: Path) -> None:
    settings = Settings(budget_s=0.2, replicates=1)
    cases = (planned("inductor+cudagraphs", HONEST, "no CUDA"), planned("eager", "no target"))
    keeper = Keeper(str(tmp_path / "kept.db"))
    found, result = measure_group(Group(tuple(enumerate(cases))), settings, keeper, Quiet())
    assert result is None
    assert [(p, case.outcome.value) for p, case in found] == [(0, "not_supported"), (1, "error")]
    for (_, figures), case in zip(found, cases, strict=True):
        assert figures.command[:3] == ("torchstone", "bench", case.target)
        assert figures.command[3:5] == ("--vs", case.key.variant)


@pytest.mark.parametrize(("method", "ratio"), [("fp64", 0.5), ("eager", None)])
def test_an_error_ratio_is_one_against_float64(method: str, ratio: float | None) -> None:
    agreement = Agreement(method, rmse=1e-3, rmse_baseline=1e-3, error_ratio=0.5)
    arms = (
        Measurement(ArmSpec("eager", HONEST), Outcome.OK),
        Measurement(ArmSpec("aot_eager", HONEST), Outcome.OK, agreement=agreement),
    )
    result = Result("r-1", "2026-11-15T20:00:00+00:00", (), arms, (), (), Method(1, 1, 1, 0, 1, 1))
    found = figures_of(result, planned("aot_eager", HONEST), "aot_eager", ())
    assert (found.agreement, found.error_ratio) == (method, ratio)
