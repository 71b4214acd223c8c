"""What a run is told apart by, what it may go on with, and the rows of what was not measured."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import HONEST, ROOT
from torchstone.conductor import Settings, open_templates
from torchstone.conductor.case import Silent
from torchstone.lab import run as lab_run
from torchstone.lab.engines import Local, measure_group
from torchstone.lab.metrics import metrics_of
from torchstone.lab.recording import Recorder
from torchstone.lab.run import CHECKOUT as CHECKOUT_PACKAGE
from torchstone.lab.run import carry_out, describe_run, resume_run, start_run
from torchstone.lab.run_plan import Group, RunRequest, make_plan
from torchstone.machine.processes import usable_cores
from torchstone.records import (
    Agreement,
    ArmSpec,
    CaseKey,
    CaseMetrics,
    Measurement,
    Method,
    Outcome,
    PlannedCase,
    Result,
    Run,
    RunView,
    UsageError,
)
from torchstone.stats import summarise
from torchstone.store import open_store
from torchstone.store.heartbeat import start_heartbeat
from torchstone.store.location import locate
from torchstone.workloads.suites.torchbench_builtin import VARIABLE

CHECKOUT = ROOT / "tests" / "fixtures" / "torchbench"
COMMAND = ("torchstone", "run")
CORES = 64


class Quiet(Silent):
    """Nobody watches."""

    def run_started(self, run: Run, todo: int, done: int) -> None: ...

    def case_started(self, index: int, total: int, key: CaseKey, left: float | None) -> None: ...

    def case_finished(self, figures: CaseMetrics) -> None: ...
    def case_times(self, phases: Mapping[str, float]) -> None: ...

    def note(self, text: str) -> None: ...


@pytest.fixture
def asked(tmp_path: Path) -> RunRequest:
    suite = tmp_path / "toys.toml"
    suite.write_text(f'name = "toys"\n[[model]]\nname = "one"\ntarget = "{HONEST}"\n')
    settings = Settings(budget_s=0.2, replicates=1)
    return RunRequest((str(suite),), variants=("eager",), label="night", settings=settings)


def begun(request: RunRequest, db: str, **changed: Any) -> Run:
    """A run whose plan is stored and of which nothing is measured."""
    run = describe_run(request, make_plan(request, CORES), COMMAND, None)
    run = replace(run, **changed)
    with open_store(db) as store:
        store.begin_run(run)
    return run


# Going on with a run


@pytest.mark.parametrize("torch", ["1.13.0", ""])
def test_a_run_is_not_gone_on_with_under_another_torch(
    asked: RunRequest, tmp_path: Path, torch: str
) -> None:
    db = str(tmp_path / "kept.db")
    run = begun(asked, db, torch=torch)
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
        resume_run(run.id, db, Quiet(), total_budget_s=0.0)
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
    (place / "new.py").unlink()
    refused(dirty, db, "with changed files, and here none differs")
    (place / "new.py").touch()
    git(place, "add", ".")
    git(place, "commit", "-qm", "second")
    refused(run, db, f"was begun at commit {run.git.commit[:12]}, and here is commit ")
    monkeypatch.chdir(tmp_path)
    refused(run, db, "here is no repository")
    # One that bears no commit goes on anywhere.
    assert resume_run(nowhere.id, db, Quiet(), total_budget_s=0.0).stopped_by == "total budget"


def test_a_run_is_not_gone_on_with_under_other_libraries(asked: RunRequest, tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    request = replace(asked, suites=("timm",), only=("resnet18",))
    now = begun(request, db)
    assert set(now.packages) == {"timm", "torchvision"}
    assert all(now.packages.values())
    older = begun(request, db, packages={**now.packages, "timm": "0.1.2"})
    refused(older, db, "begun with timm 0.1.2, and here is timm ")
    lacking = begun(request, db, packages={**now.packages, "torchvision": ""})
    refused(lacking, db, "begun with no torchvision, and here is torchvision ")
    # Runs that were stored before the versions were kept go on, and so does the same again.
    for run in (now, begun(request, db, packages={})):
        assert resume_run(run.id, db, Quiet(), total_budget_s=0.0).stopped_by == "total budget"


def test_a_run_of_a_checkout_goes_on_with_the_same_state_of_it(
    asked: RunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, db = tmp_path / "benchmark", str(tmp_path / "kept.db")
    shutil.copytree(CHECKOUT, copy)
    git(copy, "init", "-q")
    git(copy, "add", ".")
    git(copy, "commit", "-qm", "first")
    monkeypatch.setenv(VARIABLE, str(copy))
    run = begun(replace(asked, suites=("torchbench",), only=("good",)), db)
    assert len(run.packages[CHECKOUT_PACKAGE]) == 40
    assert resume_run(run.id, db, Quiet(), total_budget_s=0.0).stopped_by == "total budget"
    (copy / "new.py").touch()
    refused(run, db, f"{CHECKOUT_PACKAGE} {run.packages[CHECKOUT_PACKAGE]}, and here .* changes")
    git(copy, "add", ".")
    git(copy, "commit", "-qm", "second")
    refused(run, db, f"begun with {CHECKOUT_PACKAGE} {run.packages[CHECKOUT_PACKAGE]}, and here")


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
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    plan = make_plan(asked, CORES)
    lacking = replace(plan, cases=(replace(plan.cases[0], not_supported="needs a package"),))
    longer = replace(plan, cases=plan.cases * 2)

    def shard(chosen: object = plan, index: int = 1, label: str = "night") -> str:
        return describe_run(replace(asked, label=label), chosen, COMMAND, (index, 2)).id  # type: ignore[arg-type]

    first = shard()
    assert shard(index=2) == shard(lacking, 2) == first
    assert len({first, shard(longer), shard(label="morning")}) == 3
    (tmp_path / "new.py").touch()
    changed = shard()
    (tmp_path / "new.py").unlink()
    git(tmp_path, "commit", "-qm", "second", "--allow-empty")
    assert len({first, changed, shard()}) == 3


def test_shards_of_two_versions_of_a_library_are_two_runs(
    asked: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(asked, suites=("timm",), only=("resnet18",))
    plan = make_plan(request, CORES)
    first = describe_run(request, plan, COMMAND, (1, 2)).id
    assert describe_run(request, plan, COMMAND, (2, 2)).id == first
    torch = describe_run(request, plan, COMMAND, None).torch
    monkeypatch.setattr(lab_run, "version_of", lambda p: torch if p == "torch" else "0.1.2")
    older = describe_run(request, plan, COMMAND, (2, 2))
    assert (older.torch, older.packages["timm"]) == (torch, "0.1.2")
    assert older.id != first


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


class Watched(Quiet):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.places: list[tuple[int, int]] = []
        self.left: list[float | None] = []

    def run_started(self, run: Run, todo: int, done: int) -> None:
        self.told.append(f"{todo} to do")

    def case_started(self, index: int, total: int, key: CaseKey, left: float | None) -> None:
        self.places.append((index, total))
        self.left.append(left)

    def case_finished(self, figures: CaseMetrics) -> None:
        self.told.append(figures.reason)


def passes(view: RunView) -> tuple[int, int]:
    found = [summary.passes for summary in summarise(view.complete)]
    return sum(one.passed for one in found), sum(one.counted for one in found)


def planned(variant: str, target: str, why: str = "", model: str = "one") -> PlannedCase:
    return PlannedCase(CaseKey("toys", model, "", "inference", "fp32", variant), target, why)


def test_a_case_that_was_not_measured_has_its_command(tmp_path: Path) -> None:
    settings = Settings(budget_s=0.2, replicates=1)
    case = planned("eager", "no target")
    recorder = Recorder(str(tmp_path / "kept.db"))
    with open_templates() as templates:
        ((position, figures),), result = measure_group(
            Group(((3, case),)), settings, recorder, Quiet(), templates
        )
    assert result is None
    assert (position, figures.outcome.value) == (3, "error")
    assert figures.command[:5] == ("torchstone", "bench", case.target, "--vs", "eager")


def test_what_cannot_run_is_stored_before_the_first_case_is_measured(
    asked: RunRequest, tmp_path: Path
) -> None:
    """It is left out of the pass rate from the start, and out of the time left."""
    db = str(tmp_path / "kept.db")
    plan = (
        planned("eager", HONEST, "needs a package", model="drone"),
        planned("eager", HONEST),
        planned("inductor+cudagraphs", HONEST, "no CUDA"),
        planned("eager", HONEST, model="two"),
    )
    run = begun(asked, db, plan=plan)
    seen = Watched()
    with start_heartbeat(locate(db), run.id) as sign:
        end = carry_out(run, db, seen, None, 1e-9, sign, Local())
    assert end.stopped_by == "total budget"
    outcomes = [case.outcome.value for case in end.view.complete]
    assert outcomes == ["not_supported", "not_run", "not_supported", "not_run"]
    assert passes(end.view) == (0, 2)
    assert seen.told == ["4 to do", "needs a package", "no CUDA"]
    variants = [case.command[:5] for case in end.view.cases]
    bench = ("torchstone", "bench", HONEST, "--vs")
    assert variants == [(*bench, "eager"), (*bench, "inductor+cudagraphs")]


@pytest.mark.slow
def test_the_time_left_comes_from_cases_that_take_some(asked: RunRequest, tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    plan = (
        planned("eager", HONEST, "needs a package", model="drone"),
        planned("eager", HONEST),
        planned("eager", HONEST, model="two"),
    )
    run = begun(asked, db, plan=plan)
    seen = Watched()
    with start_heartbeat(locate(db), run.id) as sign:
        end = carry_out(run, db, seen, None, None, sign, Local())
    assert passes(end.view) == (2, 2)
    assert seen.places == [(1, 3), (2, 3)]
    assert [left is None for left in seen.left] == [True, False]


@pytest.mark.parametrize(("method", "ratio"), [("fp64", 0.5), ("eager", None)])
def test_an_error_ratio_is_one_against_float64(method: str, ratio: float | None) -> None:
    agreement = Agreement(method, rmse=1e-3, rmse_baseline=1e-3, error_ratio=0.5)
    arms = (
        Measurement(ArmSpec("eager", HONEST), Outcome.OK),
        Measurement(ArmSpec("aot_eager", HONEST), Outcome.OK, agreement=agreement),
    )
    result = Result("r-1", "2026-11-15T20:00:00+00:00", (), arms, (), (), Method(1, 1, 1, 0, 1, 1))
    found = metrics_of(result, planned("aot_eager", HONEST), "aot_eager", ())
    assert (found.agreement, found.error_ratio) == (method, ratio)
