"""What the Ray engine does with nodes that are unlike, hang or lack memory: nodes by hand, because
no machine of the tests is such a cluster. `test_ray_engine` has a real one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchstone.conductor import Settings
from torchstone.lab import ray_engine
from torchstone.lab.engines import Clock, Placed, Work
from torchstone.lab.ray_engine import (
    NodeFacts,
    NodeWorker,
    RayEngine,
    _HandingOut,
    _Node,
    describe_node,
)
from torchstone.lab.recording import Recorder
from torchstone.lab.run_plan import Group, RunRequest, make_plan
from torchstone.machine.software import NODE_VARIABLE
from torchstone.records import CaseKey, Outcome, PlannedCase, Run, UsageError
from torchstone.store import open_store

ray = pytest.importorskip("ray")


def planned(model: str) -> PlannedCase:
    key = CaseKey("toys", model, "small", "inference", "fp32", "inductor", "cpu", 1)
    return PlannedCase(key, "toys.py:make")


def group(at: int) -> Group:
    return Group(((at, planned(f"toy{at}")),))


def test_the_longest_group_is_first_and_before_it_the_unknown() -> None:
    groups = [group(at) for at in range(4)]
    times = {groups[at].cases[0][1].key: seconds for at, seconds in ((0, 2.0), (1, 9.0), (3, 5.0))}
    found = ray_engine.longest_first(groups, times)
    assert [one.cases[0][0] for one in found] == [2, 1, 3, 0]


def test_a_core_is_left_to_ray_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "toys.py").write_text("def make(): ...\n")
    (tmp_path / "toys.toml").write_text('[[model]]\nname = "toy"\ntarget = "toys.py:make"\n')
    request = RunRequest((str(tmp_path / "toys.toml"),))
    for cores, threads in ((8, 7), (2, 1)):
        plan = make_plan(request, cores, 1)
        assert {case.key.threads for case in plan.cases} == {threads}
    assert any("1 core left to the engine" in note for note in make_plan(request, 8, 1).notes)


def test_a_worker_keeps_its_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They fork the cases whose libraries take long to import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(NODE_VARIABLE, "")
    setup = {"cwd": str(tmp_path), "variables": {}, "node": "n1", "nice": os.nice(0)}
    setup |= {"db": str(tmp_path / "kept.db"), "folder": str(tmp_path)}
    worker = NodeWorker(json.dumps(setup))
    folder = worker._templates.folder
    assert (folder / "scratch").is_dir()
    worker.close()
    assert not folder.exists()


@dataclass
class ByHand(RayEngine):
    """Nodes that answer what the test says."""

    answers: dict[str, NodeFacts] = field(default_factory=dict)

    def _connect(self) -> None:
        """There is nothing to connect to."""

    def _found(self) -> list[_Node]:
        return [_Node(name, name, {}) for name in self.answers]

    def join(self, node: _Node) -> None:
        """It is there."""

    def _ask(self) -> dict[str, str]:
        for node in self._nodes:
            node.facts = self.answers[node.name]
        return {}


def test_unlike_nodes_are_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_ray", lambda: Answering(()))
    own = describe_node(str(tmp_path))
    old, other = replace(own, torch="1.0"), replace(own, machine_id="other")
    answers = {"n1": own, "n2": own, "n3": old, "n4": other}
    engine = ByHand(answers=answers)
    machine = engine.machine(str(tmp_path / "kept.db"))
    assert [node.name for node in engine.nodes] == ["n1", "n2"]
    assert (machine.id, machine.spare_cores) == (own.machine_id, 1)
    assert machine.notes[0] == "2 nodes: n1, n2"
    said = "\n".join(machine.notes[1:])
    assert "node n3 is not used: it has torch 1.0, and here is" in said
    assert "node n4 is not used: another kind of machine" in said
    resumed = ByHand(answers=answers)  # a run goes on where it was begun
    assert resumed.machine(str(tmp_path / "kept.db"), like="other").id == "other"
    with pytest.raises(UsageError, match="No node of the cluster can be used"):
        ByHand(answers={"n3": old}).machine(str(tmp_path / "kept.db"))


def test_a_refused_address_starts_no_cluster_when_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[object] = []
    monkeypatch.setattr(ray, "get", lambda *asked, **_: started.append(asked))
    engine = ray_engine.RayEngine("127.0.0.1:1")
    with pytest.raises(UsageError, match="no Ray cluster"):
        engine.machine(None)
    engine.close()
    assert started == []
    assert not ray.is_initialized()


def test_another_hosts_file_is_no_database_of_a_node(tmp_path: Path) -> None:
    there = replace(describe_node(str(tmp_path)), place=("another boot", "1", "2"))
    with pytest.raises(UsageError, match="it is another machine's file") as error:
        ByHand(answers={"n1": there}).machine(str(tmp_path / "kept.db"))
    assert "postgresql+psycopg://" in error.value.remedy
    server = "postgresql+psycopg://bench@db/perf"
    assert ByHand(answers={"n1": there}).machine(server).id == there.machine_id


@dataclass
class Told:
    """Whoever is told of the run."""

    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *words: None


class Answering:
    """Ray with one node: each group ends as the next of `ends` says, None: never."""

    exceptions = ray.exceptions

    def __init__(self, ends: Sequence[Any]) -> None:
        self.ends, self.given, self.killed = list(ends), [], 0
        measure = SimpleNamespace(remote=self._measure)
        self.worker = SimpleNamespace(measure=measure)

    def _measure(self, run: str, positions: Sequence[int]) -> int:
        self.given.append(tuple(positions))
        return len(self.given) - 1

    def wait(self, answers: list[int], **how: Any) -> tuple[list[int], list[int]]:
        return [one for one in answers if self.ends[one] is not None], []

    def get(self, answer: int) -> str:
        end = self.ends[answer]
        if isinstance(end, Exception):
            raise end
        return str(end)

    def kill(self, worker: Any) -> None:
        self.killed += 1


@dataclass
class OneNode:
    """An engine whose node is always there again."""

    nodes: tuple[_Node, ...]
    joined: int = 0

    def is_alive(self, node: _Node) -> bool:
        return True

    def join(self, node: _Node) -> None:
        self.joined += 1
        node.answer = None


def outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *ends: Any, groups: int = 1
) -> tuple[dict[int, tuple[Outcome, str]], Answering, OneNode]:
    """How each case ended."""
    fake = Answering(ends)
    monkeypatch.setattr(ray_engine, "_ray", lambda: fake)
    engine = OneNode((_Node("n1", "n1", {}, fake.worker),))
    kept: list[Placed] = []

    def keep(result: Any, figures: Sequence[Placed]) -> bool:
        kept.extend(figures)
        return True

    made = [group(at) for at in range(groups)]
    plan = tuple(case for one in made for _, case in one.cases)
    run = Run("run1", "2026-11-18T00:00:00+00:00", ("torchstone", "run"), plan)
    db = str(tmp_path / "kept.db")
    with open_store(db) as store:
        store.begin_run(run)
    told: Any = Told()
    settings = Settings(build_timeout_s=1.0, step_timeout_s=1.0)
    clock = Clock(groups, None)
    work = Work(run, made, settings, Recorder(db), told, told, clock, 0, groups, keep, kept.extend)
    handing: Any = _HandingOut(engine, work)  # type: ignore[arg-type]
    assert handing.run() == "done"
    assert all(len([at for at, _ in kept if at == one]) <= 1 for one in range(groups))
    return {at: (one.outcome, one.reason) for at, one in kept}, fake, engine


SOUND = json.dumps({"figures": [], "phases": {}, "notes": [], "stored": True})


def test_want_of_memory_is_an_outcome_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Task was killed due to the node running low on memory."
    ends = ray.exceptions.OutOfMemoryError(text), SOUND
    found, fake, engine = outcomes(tmp_path, monkeypatch, *ends, groups=2)
    assert found[0][0] is Outcome.OOM
    assert "n1" in found[0][1]
    assert fake.given == [(0,), (1,)]
    assert engine.joined == 1


def test_a_group_whose_worker_is_lost_is_tried_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = ray.exceptions.WorkerCrashedError()
    found, fake, _ = outcomes(tmp_path, monkeypatch, lost, lost, lost)
    assert found[0][0] is Outcome.CRASH
    assert fake.given == [(0,)] * ray_engine.TRIES
    found, fake, _ = outcomes(tmp_path, monkeypatch, lost, SOUND)
    assert (found, fake.given) == ({}, [(0,)] * 2)


def test_a_worker_that_hangs_itself_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "limit_of", lambda group, settings: 0.0)
    found, fake, engine = outcomes(tmp_path, monkeypatch, None, SOUND, groups=2)
    assert found[0][0] is Outcome.TIMEOUT
    assert "no answer from n1" in found[0][1]
    assert (fake.killed, engine.joined, fake.given) == (1, 1, [(0,), (1,)])
