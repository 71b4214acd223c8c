"""Templates: libraries imported once, workers forked from them that end like any other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.targets.support import alive, eventually, run_arms, settings, target
from torchstone.conductor import Templates, open_templates
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.solo import solo_pass
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, WorkerProcess, patience
from torchstone.machine.processes import tagged_processes
from torchstone.measure import template
from torchstone.measure.channel import TAG
from torchstone.records import ArmSpec, Outcome

MODEL = "torchbench:lennard_jones@small"
ARM = ArmSpec("eager", MODEL)


@pytest.fixture(scope="module")
def templates() -> Iterator[Templates]:
    """Of one kind, in both slots; importing torch takes seconds."""
    with open_templates() as made:
        yield made


@contextmanager
def forked(templates: Templates, folder: Path, slot: int = 0) -> Iterator[WorkerProcess]:
    """A worker that has the arm's libraries from its first moment."""
    launcher = Launcher(folder, templates)
    launcher.import_ahead([ARM], 120.0)
    worker = launcher.start(ARM, layout=7 + slot, slot=slot)
    try:
        yield worker
    finally:
        worker.kill()


@pytest.fixture(autouse=True)
def no_survivors() -> None:
    """Not by the mark of one test: templates live through all of this file."""


def maps(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def test_a_fork_has_the_libraries_and_another_slot_another_layout(
    templates: Templates, tmp_path: Path
) -> None:
    lies = []
    for slot in (0, 1):
        folder = tmp_path / str(slot)
        folder.mkdir()
        with forked(templates, folder, slot) as worker:
            assert os.getsid(worker.pid) == worker.pid
            assert f"stderr-{worker.tag}" in os.readlink(f"/proc/{worker.pid}/fd/2")
            lies.append(next(line for line in maps(worker.pid) if "libtorch_cpu" in line))
            assert worker.stop() == 0
            assert worker._process.poll() == 0
    assert lies[0].split("-")[0] != lies[1].split("-")[0]


def test_two_forks_of_one_template_do_not_lie_alike() -> None:
    """Their heaps and mappings begin elsewhere."""
    found = {template.vary_memory(layout)[1] for layout in (1, 5_000, 40_000_000)}
    assert len(found) == 3


def test_a_fork_that_dies_says_how(templates: Templates, tmp_path: Path) -> None:
    with forked(templates, tmp_path) as worker:
        os.kill(worker.pid, signal.SIGSEGV)
        with pytest.raises(ArmEnded) as caught:
            worker.wait(patience(settings()))
    assert caught.value.outcome is Outcome.CRASH
    assert caught.value.detail.signal == "SIGSEGV"


def test_a_fork_carries_its_own_tag(templates: Templates, tmp_path: Path) -> None:
    with forked(templates, tmp_path) as worker:
        assert eventually(lambda: tagged_processes(TAG, worker.tag) == [worker.pid])


@pytest.mark.slow
def test_forks_end_with_their_template(tmp_path: Path) -> None:
    with open_templates() as own:
        launcher = Launcher(tmp_path, own)
        launcher.import_ahead([ARM], 120.0)
        worker = launcher.start(ARM)
        pid = worker.pid
    assert eventually(lambda: not alive(pid))
    worker.kill()


@pytest.mark.slow
def test_without_its_template_a_worker_starts_by_itself(tmp_path: Path) -> None:
    with open_templates() as own:
        launcher = Launcher(tmp_path, own)
        launcher.import_ahead([ARM], 120.0)
        found = own.of(launcher._key(ARM), ARM, 0)
        assert found is not None
        os.kill(found.worker.pid, signal.SIGKILL)
        worker = launcher.start(ARM)
        try:
            assert Path(f"/proc/{worker.pid}/stat").read_text().split(")")[1].split()[1] == str(
                os.getpid()
            )
            assert own.of(launcher._key(ARM), ARM, 0) is None
        finally:
            worker.kill()


def test_a_file_without_libraries_needs_no_template(tmp_path: Path) -> None:
    with open_templates() as own:
        Launcher(tmp_path, own).import_ahead([ArmSpec("a", target("honest"))], 60.0)
        assert not own._known


def test_threads_that_a_fork_would_lose_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "list_numbers", lambda path: [1, 2, 3])
    monkeypatch.setattr(template.threading, "active_count", lambda: 1)
    monkeypatch.setattr(template.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(template, "_openblas_copies", lambda: 2)
    assert template.unsafe_threads() == ""
    monkeypatch.setattr(template, "_openblas_copies", lambda: 1)
    assert template.unsafe_threads() == "its libraries have started 2 threads"


@pytest.mark.slow
def test_a_case_of_a_suites_model_ends_well_and_leaves_nothing() -> None:
    for together in (False, True):
        case = run_arms(ARM, ArmSpec("aot", MODEL, variant="aot_eager"), together=together)
        assert [arm.outcome for arm in case.arms] == [Outcome.OK] * 2


# Compile caches that outlive a case.


def cache_of(launcher: Launcher, arm: ArmSpec) -> Path:
    return Path(launcher.caches(arm)["TORCHINDUCTOR_CACHE_DIR"])


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_an_arm_finds_what_it_compiled_in_another_case(tmp_path: Path) -> None:
    arm = ArmSpec("first", target("honest"), variant="inductor")
    with open_templates(compile_once=True) as shared, open_templates() as plain:
        one, two = (Launcher(made(tmp_path / name), shared) for name in "ab")
        again = replace(arm, name="second", seed=3)
        assert cache_of(one, arm) == cache_of(two, again)
        assert cache_of(one, arm) != cache_of(one, replace(arm, threads=1))
        assert "reference" in one.caches(arm, "reference")["TORCHINDUCTOR_CACHE_DIR"]
        recipe = replace(arm, variant="recipe:here.py")
        assert cache_of(one, recipe) != cache_of(one, arm)
        shared.compile_alike(recipe, arm)
        assert cache_of(two, replace(recipe, name="recipe")) == cache_of(one, arm)
        apart = Launcher(made(tmp_path / "c"), plain), Launcher(made(tmp_path / "d"), plain)
        assert cache_of(apart[0], arm) != cache_of(apart[1], arm)
        assert apart[0].cold_first_call(arm, 7) == 7
        assert apart[1].cold_first_call(arm, 8) == 8


def test_a_cache_that_was_half_filled_is_begun_again(tmp_path: Path) -> None:
    arm = ArmSpec("arm", target("honest"), variant="inductor")
    with open_templates(compile_once=True) as shared:
        launcher = Launcher(made(tmp_path / "a"), shared)
        left = made(cache_of(launcher, arm)) / "graph"
        left.touch()
        launcher.begin_cold(arm)  # whoever filled it did not come to the end
        assert not left.exists()
        made(left.parent)
        left.touch()
        assert launcher.cold_first_call(arm, 900) == 900
        launcher.begin_cold(arm)
        assert left.exists()
        assert launcher.cold_first_call(arm, 5) == 900, "of the empty cache"


def test_what_compiling_cost_is_that_of_the_first_case(tmp_path: Path) -> None:
    arm = ArmSpec("arm", target("honest"))
    with open_templates(compile_once=True) as shared:
        states = [ArmState(arm), ArmState(replace(arm, name="again"))]
        for number, state in enumerate(states):
            launcher = Launcher(made(tmp_path / str(number)), shared)
            solo_pass(CaseContext(launcher, settings()), state)
        first, again = (state.solo for state in states)
        assert first is not None
        assert again is not None
        assert again.first_call_ns == first.first_call_ns
