"""Cases on the nodes of a Ray cluster: one worker a node, which stores what it measures itself.

The driver only hands out groups of cases, the longest first, and watches. So its death loses
nothing that was measured, and `--resume` goes on from the store. Ray neither retries nor restarts:
a group whose worker is lost is given out again a few times, unless it was stored meanwhile.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import torchstone
from torchstone.conductor import Settings, open_templates
from torchstone.conductor.case import Silent
from torchstone.lab.engines import Machine, Work, ended_as, measure_group
from torchstone.lab.recording import Recorder, this_machine
from torchstone.lab.run import settings_of, version_of
from torchstone.lab.run_plan import TORCHBENCH_VARIABLE, Group
from torchstone.machine.folders import own_folder
from torchstone.machine.hardware import describe_cpu
from torchstone.machine.processes import usable_cores
from torchstone.machine.software import NODE_VARIABLE, git_state
from torchstone.records import CaseKey, CaseMetrics, Outcome, UsageError, from_data, to_data
from torchstone.records.format import count
from torchstone.store import Store
from torchstone.store.heartbeat import start_heartbeat
from torchstone.store.location import Location, locate

SLOT = "bench_slot"
"""The custom resource that stands for a node's right to measure. Nodes without one are held by all
their CPUs, and where some have one, the others are not used."""
TRIES = 3
"""How often a group is given out whose worker or node is lost."""
JOIN_S = 120.0
"""How long a node may take to answer: its slot may be held by another run."""
WAIT_S = 1.0
CLOSE_S = 10.0
KNOCK_S = 10.0
GRACE_S = 600.0
"""Beyond what a group may take by its own time-outs. Only a worker that hangs itself needs it."""
EARLIER_RUNS = 5
"""Runs that are asked how long a case takes."""
COPIED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", TORCHBENCH_VARIABLE)
"""Set on a node as they are here. Ray sets the first by itself: one thread, or one a CPU held."""
LONGEST_FOLDER = 40
"""Of Ray's files: the path of its sockets adds up to 66 of the 107 bytes that Linux allows."""
_BOOT = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class NodeFacts:
    """What a node says of itself. All but `machine_id` must be as it is here."""

    machine_id: str
    machine: str
    cores: int
    torch: str
    torchstone: str
    commit: str
    place: tuple[str, ...]
    """Of the database's folder: equal on two nodes only where they see one folder of one host."""
    nice: int


def describe_node(folder: str) -> NodeFacts:
    """This node. Run in the folder of the run."""
    state = git_state(os.getcwd())
    return NodeFacts(
        machine_id=this_machine(),
        machine=describe_cpu().get("model", ""),
        cores=usable_cores(),
        torch=version_of("torch"),
        torchstone=torchstone.__version__,
        commit="" if state is None else state.commit,
        place=_place_of(folder),
        nice=os.nice(0),
    )


def _place_of(folder: str) -> tuple[str, ...]:
    try:
        with open(_BOOT) as boot:
            name = boot.read().strip()
        found = os.stat(folder)
    except OSError:
        return ()
    return (name, str(found.st_dev), str(found.st_ino))


class NodeWorker:
    """Measures on one node, in a process that Ray starts there and that holds the node's slot."""

    def __init__(self, setup: str) -> None:
        told = json.loads(setup)
        os.chdir(told["cwd"])
        for name, value in told["variables"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        os.environ[NODE_VARIABLE] = told["node"]
        with suppress(OSError):  # Ray may make its workers yield to others; only root can undo it
            os.setpriority(os.PRIO_PROCESS, 0, told["nice"])
        self._db: str | None = told["db"]
        self._folder: str = told["folder"]
        self._node: str = told["node"]
        self._own = ExitStack()  # kept: templates end with it
        self._templates = self._own.enter_context(open_templates())

    def describe(self) -> str:
        """What this node is."""
        return json.dumps(to_data(describe_node(self._folder)))

    def measure(self, run_id: str, positions: Sequence[int]) -> str:
        """Measure a group and store it; its figures, and what could not be stored."""
        notes = _Notes()
        recorder = Recorder(self._db, events=notes)
        run = recorder.write(lambda store: store.load_run(run_id))
        group = Group(tuple((at, run.plan[at]) for at in positions))
        settings, name = settings_of(run), group.cases[0][1].key.name
        with start_heartbeat(locate(self._db), run_id, node=self._node) as sign:
            sign.now(name)
            figures, result = measure_group(group, settings, recorder, notes, self._templates)
            with recorder.collect_errors(f"{name} was not kept"):
                recorder.add_cases(run_id, result, figures)
        return json.dumps(
            {
                "figures": [[at, to_data(one)] for at, one in figures],
                "phases": {} if result is None else dict(result.method.phases),
                "notes": notes.texts,
                "stored": not recorder.storage_warnings,
            }
        )

    def close(self) -> None:
        """End the templates and remove their folder; a worker that is killed leaves it."""
        self._own.close()


class _Notes(Silent):
    """Collects what the driver will tell."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@dataclass
class _Node:
    """A node as the driver sees it: it joins, measures a group, or waits for one."""

    id: str
    name: str
    options: Mapping[str, Any]
    worker: Any = None
    answer: Any = None
    """What it is expected to say; None while it waits."""
    group: Group | None = None
    since: float = 0.0
    limit_s: float = math.inf
    facts: NodeFacts | None = None

    def expect(self, answer: Any, group: Group | None, limit_s: float) -> None:
        """From now on it is about that."""
        self.answer, self.group = answer, group
        self.since, self.limit_s = time.monotonic(), limit_s

    @property
    def is_late(self) -> bool:
        """Whether it should have answered."""
        return self.seconds > self.limit_s

    @property
    def seconds(self) -> float:
        """Since it was asked."""
        return time.monotonic() - self.since


@dataclass
class RayEngine:
    """`--engine ray`: the cluster at `address`, at RAY_ADDRESS, or one started on this machine."""

    address: str = ""
    _db: str | None = None
    _nodes: list[_Node] = field(default_factory=list)
    _own: ExitStack = field(default_factory=ExitStack)

    def machine(self, db: str | None, like: str = "") -> Machine:
        """Ask every node what it is; those unlike most of them, or unlike `like`, are left out."""
        self._db = db
        self._connect()
        self._nodes = self._found()
        for node in self._nodes:
            self.join(node)
        why_not = self._ask()
        own = describe_node(_folder_of(locate(db)))
        for node in self._nodes:
            if node.facts is not None and (reason := _unlike(node.facts, own)):
                why_not[node.name] = reason
        fitting = [node for node in self._nodes if node.facts and node.name not in why_not]
        kinds = Counter(node.facts.machine_id for node in fitting if node.facts)
        kind = like if like in kinds else max(kinds, key=lambda one: kinds[one], default="")
        for node in fitting:
            if node.facts and node.facts.machine_id != kind:
                why_not[node.name] = "another kind of machine, and figures of two do not mix"
        for node in [one for one in self._nodes if one.name in why_not]:
            self.drop(node)
        left_out = [f"node {name} is not used: {why}" for name, why in why_not.items()]
        if not self._nodes:
            raise UsageError(
                f"No node of the cluster can be used; {'; '.join(left_out) or 'it has none'}.",
                "Give every node the same Python environment and the run's folder, or use --shard.",
            )
        _check_reach(locate(db), self._nodes, own)
        names = ", ".join(node.name for node in self._nodes)
        facts = self._nodes[0].facts
        assert facts is not None
        notes = (f"{count(len(self._nodes), 'node')}: {names}", *left_out)
        return Machine(facts.machine_id, facts.machine, facts.cores, 1, notes)

    def carry_out(self, work: Work) -> str:
        """Give out groups until none is left."""
        return _HandingOut(self, work).run()

    def close(self) -> None:
        """Leave the cluster; workers that are still there end with us."""
        idle = [node.worker for node in self._nodes if node.answer is None]
        if idle:  # asked for nothing, `ray.get` would start a cluster
            with suppress(Exception):  # one may be gone
                _ray().get([worker.close.remote() for worker in idle], timeout=CLOSE_S)
        self._own.close()

    def _connect(self) -> None:
        ray = _ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = self.address or os.environ.get("RAY_ADDRESS", "")
        own: dict[str, Any] = {}
        if not address:
            own = {"include_dashboard": False, "resources": {SLOT: 1}}
            folder = str(self._own.enter_context(own_folder()))
            if len(folder) <= LONGEST_FOLDER:
                own["_temp_dir"] = folder  # its default stays: /tmp/ray
        try:
            _knock(address)
            ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **own)
            self._own.callback(ray.shutdown)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise UsageError(
                f"There is no Ray cluster at {address or 'this machine'}: {said[0]}",
                "Start one with `ray start --head`, or check --address.",
            ) from None

    def _found(self) -> list[_Node]:
        """Those that may measure, each with what it takes to hold it."""
        alive = [one for one in _ray().nodes() if one["Alive"]]
        slots = [one for one in alive if one["Resources"].get(SLOT, 0) >= 1]
        hosts = Counter(one["NodeManagerHostname"] for one in alive)
        found = []
        for one in slots or [one for one in alive if one["Resources"].get("CPU", 0) >= 1]:
            host, resources = one["NodeManagerHostname"], one["Resources"]
            name = host if hosts[host] == 1 else f"{host}/{one['NodeID'][:6]}"
            options = {
                "num_cpus": int(resources.get("CPU", 0)),
                "num_gpus": int(resources.get("GPU", 0)),
                "resources": {SLOT: 1} if slots else {},
            }
            found.append(_Node(one["NodeID"], name, options))
        return sorted(found, key=lambda node: node.name)

    def join(self, node: _Node) -> None:
        """Start a worker on the node, and ask it what it is."""
        ray = _ray()
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        setup = {
            "cwd": os.getcwd(),
            "variables": {name: os.environ.get(name) for name in COPIED},
            "node": node.name,
            "nice": os.nice(0),
            "db": locate(self._db).url or os.path.abspath(locate(self._db).path),
            "folder": _folder_of(locate(self._db)),
        }
        actor = ray.remote(NodeWorker).options(
            scheduling_strategy=affinity(node.id, soft=False),
            max_restarts=0,
            max_task_retries=0,
            **node.options,
        )
        node.worker = actor.remote(json.dumps(setup))
        node.expect(node.worker.describe.remote(), None, JOIN_S)

    def _ask(self) -> dict[str, str]:
        """Fill in what nodes say; why those that do not are left out."""
        ray, why_not = _ray(), {}
        until = time.monotonic() + JOIN_S
        for node in self._nodes:
            try:
                said = ray.get(node.answer, timeout=max(0.1, until - time.monotonic()))
                node.facts = from_data(NodeFacts, json.loads(said))
            except ray.exceptions.GetTimeoutError:
                why_not[node.name] = f"no answer within {JOIN_S:.0f} s (is its slot in use?)"
            except ray.exceptions.RayError as error:
                why_not[node.name] = _last_line(error)
            node.answer = None
        return why_not

    def drop(self, node: _Node) -> None:
        """Do without the node."""
        self._nodes.remove(node)
        with suppress(Exception):  # it may be gone already
            _ray().kill(node.worker)

    def is_alive(self, node: _Node) -> bool:
        """Whether the cluster still counts on it."""
        return any(one["Alive"] and one["NodeID"] == node.id for one in _ray().nodes())

    @property
    def nodes(self) -> tuple[_Node, ...]:
        """Those in use."""
        return tuple(self._nodes)


class _HandingOut:
    """The groups of one run, on their way to nodes and back."""

    def __init__(self, engine: RayEngine, work: Work) -> None:
        self._engine, self._work = engine, work
        self._queue = longest_first(work.groups, earlier_times(work))
        self._tries: Counter[Group] = Counter()
        self._index, self._ended = work.before, ""

    def run(self) -> str:
        """Why it ended."""
        ray = _ray()
        while True:
            self._hand_out()
            busy = {node.answer: node for node in self._engine.nodes if node.answer is not None}
            if not busy:
                return self._ended or ("nodes" if self._queue else "done")
            ready, _ = ray.wait(list(busy), num_returns=1, timeout=WAIT_S)
            for answer in ready:
                self._take(busy[answer])
            for node in self._engine.nodes:
                if node.answer is not None and node.is_late:
                    self._give_up(node)

    def _hand_out(self) -> None:
        work = self._work
        for node in self._engine.nodes:
            if node.answer is not None or self._ended or not self._queue:
                continue
            if work.clock.is_over:
                self._ended = "total budget"
                return
            group = self._queue.pop(0)
            self._tries[group] += 1
            shown = group.cases[0][1].key
            work.events.case_started(self._index, work.total, shown, work.clock.seconds_left)
            work.events.phase(f"on {node.name}")
            work.sign.now("", self._index, work.total)
            positions = [at for at, _ in group.cases]
            answer = node.worker.measure.remote(work.run.id, positions)
            node.expect(answer, group, limit_of(group, work.settings))

    def _take(self, node: _Node) -> None:
        """What a node has said, or that it is gone."""
        ray, group, answer = _ray(), node.group, node.answer
        node.answer = node.group = None
        try:
            said = json.loads(ray.get(answer))
        except ray.exceptions.RayTaskError as error:  # our own fault, and it would be again
            if group is None:
                self._engine.drop(node)
            else:
                self._end(group, Outcome.ERROR, f"on {node.name}: {_last_line(error)}")
        except ray.exceptions.RayError as error:
            self._lost(node, group, error)
        else:
            if group is not None:
                self._measured(node, group, said)

    def _measured(self, node: _Node, group: Group, said: Mapping[str, Any]) -> None:
        work = self._work
        for text in said["notes"]:
            work.events.note(f"{node.name}: {text}")
        figures = [(at, from_data(CaseMetrics, one)) for at, one in said["figures"]]
        if not said["stored"]:
            self._ended = "storage"
        work.show(figures)
        work.events.note(f"    on {node.name}, {node.seconds:.0f} s")
        if said["phases"]:
            work.events.case_times(said["phases"])
        self._count(group)

    def _lost(self, node: _Node, group: Group | None, error: Exception) -> None:
        """Its worker or all of it: another one takes its place where the node lives."""
        engine, work = self._engine, self._work
        if group is None or not engine.is_alive(node):
            engine.drop(node)
            work.events.note(f"node {node.name} is lost; {count(len(engine.nodes), 'node')} left.")
        else:
            engine.join(node)
        if group is None or self._is_stored(group):
            return
        if is_oom(error):
            self._end(group, Outcome.OOM, f"ended by Ray for lack of memory on {node.name}")
        elif self._tries[group] < TRIES:
            self._queue.insert(0, group)
        else:
            why = f"its worker was lost {TRIES} times, last on {node.name}: {_last_line(error)}"
            self._end(group, Outcome.CRASH, why)

    def _give_up(self, node: _Node) -> None:
        """A worker that hangs itself: what its cases do is bounded by their own time-outs."""
        group, limit = node.group, node.limit_s
        with suppress(Exception):
            _ray().kill(node.worker)
        node.answer = node.group = None
        if group is None or not self._engine.is_alive(node):
            self._engine.drop(node)
        else:
            self._engine.join(node)
        if group is not None and not self._is_stored(group):
            self._end(group, Outcome.TIMEOUT, f"no answer from {node.name} within {limit:.0f} s")

    def _is_stored(self, group: Group) -> bool:
        """Whether it was stored before its worker was lost: then it is told, and not done again."""
        work = self._work
        view = work.recorder.read(lambda store: store.run_view(work.run.id))
        known = {case.key: case for case in view.cases} if view else {}
        if not all(case.key in known for _, case in group.cases):
            return False
        work.show([(at, known[case.key]) for at, case in group.cases])
        self._count(group)
        return True

    def _end(self, group: Group, outcome: Outcome, reason: str) -> None:
        if not self._work.keep(None, ended_as(group, self._work.settings, outcome, reason)):
            self._ended = "storage"
        self._count(group)

    def _count(self, group: Group) -> None:
        self._index += len(group.cases)
        self._work.clock.tick()


def longest_first(groups: Sequence[Group], times: Mapping[CaseKey, float]) -> list[Group]:
    """By what they took before. Unknown ones come first: one of them may be the longest."""

    def seconds(group: Group) -> float:
        return max(times.get(case.key, math.inf) for _, case in group.cases)

    return sorted(groups, key=seconds, reverse=True)


def earlier_times(work: Work) -> dict[CaseKey, float]:
    """What the cases took in the last runs on such a machine."""

    def ask(store: Store) -> dict[CaseKey, float]:
        found: dict[CaseKey, float] = {}
        for one in store.list_runs(EARLIER_RUNS + 1):
            if one.id == work.run.id:
                continue
            view = store.run_view(one.id)
            if view.run.machine_id == work.run.machine_id:
                for case in view.cases:
                    if case.elapsed_s:
                        found.setdefault(case.key, case.elapsed_s)
        return found

    return work.recorder.read(ask) or {}


def limit_of(group: Group, settings: Settings) -> float:
    """What a group may take: each arm can hang once, and what is doubted is measured again."""
    arms = len(group.cases) + 1
    hangs = arms * (settings.build_timeout_s + settings.step_timeout_s)
    return GRACE_S + 3 * settings.budget_s + 2 * hangs


def is_oom(error: Exception) -> bool:
    """Whether Ray ended a worker because the node's memory was nearly full."""
    ray = _ray()
    return isinstance(error, ray.exceptions.OutOfMemoryError) or "running low on memory" in str(
        error
    )


def _unlike(node: NodeFacts, own: NodeFacts) -> str:
    """In what a node's software differs from the driver's."""
    for name in ("torchstone", "torch", "commit"):
        there, here = getattr(node, name), getattr(own, name)
        if there != here:
            return f"it has {name} {there or 'none'}, and here is {here or 'none'}"
    return ""


def _check_reach(location: Location, nodes: Iterable[_Node], own: NodeFacts) -> None:
    """A SQLite file is locked by one host's kernel; over a network file system it breaks."""
    if location.url:
        return
    for node in nodes:
        if node.facts is not None and (not own.place or node.facts.place != own.place):
            raise UsageError(
                f"The node {node.name} cannot store into {location}: it is another machine's file.",
                "Give a database that all nodes reach: --db postgresql+psycopg://USER@HOST/NAME.",
            )


def _folder_of(location: Location) -> str:
    """Of a database file; of one in the data directory, the part of its path that exists."""
    folder = os.path.abspath(location.path.parent)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _knock(address: str) -> None:
    """Fail at once where nobody listens: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), KNOCK_S).close()


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _ray() -> Any:
    """The library, which few installations have."""
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
    except ImportError:
        raise UsageError(
            "The engine ray needs Ray, which is not installed.", "pip install 'torchstone[ray]'"
        ) from None
    return ray
