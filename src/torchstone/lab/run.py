"""`torchstone run`: suites × variants, one case after another, stored as they end."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Protocol

import torchstone
from torchstone.conductor import Settings
from torchstone.lab.bench import new_id
from torchstone.lab.engines import CaseEvents, Clock, Engine, Local, Machine, Placed, Work
from torchstone.lab.metrics import unmeasured
from torchstone.lab.recording import Recorder, StorageWarning
from torchstone.lab.request import method_of, settings_from
from torchstone.lab.run_plan import (
    TORCHBENCH_CHECKOUT,
    TORCHBENCH_VARIABLE,
    Group,
    Plan,
    RunRequest,
    command_of_case,
    groups,
    make_plan,
    shard_of,
    use_checkout,
)
from torchstone.lab.secrets import public_words
from torchstone.machine.software import git_state, run_links
from torchstone.records import (
    CaseMetrics,
    Outcome,
    PlannedCase,
    Result,
    Run,
    RunView,
    UsageError,
    to_data,
)
from torchstone.store import check_store, open_store
from torchstone.store.heartbeat import Heartbeat, Part, start_heartbeat
from torchstone.store.limits import HERE, now
from torchstone.store.location import locate
from torchstone.workloads.suites import known_suites, load_suite
from torchstone.workloads.target import check_target, parse_target

# The record of a run before anything is measured: what tells it from other runs.


Shard = tuple[int, int]
CHECKOUT = "pytorch/benchmark"
"""How the checkout is called among a run's packages."""
_LIBRARIES = {
    "hf": ("transformers",),
    "timm": ("timm", "torchvision"),
    "torchvision": ("torchvision",),
    "torchbench": ("timm", "torchvision", "transformers"),
    TORCHBENCH_CHECKOUT: ("timm", "torchvision", "transformers"),
}
"""What the models of the built-in suites are made from, by the prefix of their targets."""


def describe_run(
    request: RunRequest,
    plan: Plan,
    command: tuple[str, ...],
    shard: Shard | None,
    machine: Machine | None = None,
) -> Run:
    """The run's record, before anything is measured; without `machine` it is this one."""
    machine = machine or Local().machine(None)
    run = Run(
        id=new_id(),
        created=now(),
        command=command,
        plan=plan.cases,
        label=request.label,
        machine_id=machine.id,
        machine=machine.name,
        torch=version_of("torch"),
        git=git_state(os.getcwd()),
        links=run_links(os.getcwd(), os.environ),
        packages=packages_of(plan.cases),
        tier=plan.tier,
        method=method_of(request.settings),
        notes=(*plan.notes, *machine.notes),
        version=torchstone.__version__,
    )
    return run if shard is None else replace(run, id=_shared_id(run))


def _shared_id(run: Run) -> str:
    """The same for all shards of a label: by what is run, from which code, how, and where.

    Not by the reasons why some cases cannot run, which are those of one machine.
    """
    plan = [(to_data(case.key), case.target) for case in run.plan]
    code = [run.git.commit, run.git.dirty] if run.git is not None else []
    packages = sorted(run.packages.items())
    parts = (run.label, run.machine_id, run.torch, code, packages, plan, to_data(run.method))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def packages_of(cases: Iterable[PlannedCase]) -> dict[str, str]:
    """The libraries that the cases' models come from, each with its version; empty: not there.

    What a target of the user's own imports is the user's to know: it stands at the run's commit.
    """
    targets = map(parse_target, {case.target for case in cases})
    prefixes = {target.place for target in targets if target.kind == "suite"}
    found: dict[str, str] = {}
    for prefix in sorted(prefixes):
        names = _LIBRARIES.get(prefix)
        for name in names if names is not None else _plug_in(prefix):
            found[name] = version_of(name)
    if TORCHBENCH_CHECKOUT in prefixes:
        found[CHECKOUT] = _checkout_state()
    return found


def _plug_in(prefix: str) -> tuple[str, ...]:
    """The package that brings a suite which is none of ours."""
    point = known_suites().get(prefix)
    return (point.dist.name,) if point is not None and point.dist is not None else ()


def _checkout_state() -> str:
    """`COMMIT`, `COMMIT with changes`, or that it is in no repository; empty without a checkout."""
    folder = os.environ.get(TORCHBENCH_VARIABLE, "")
    if not folder:
        return ""
    state = git_state(folder)
    if state is None:
        return "in no repository"
    return state.commit + (" with changes" if state.dirty else "")


def version_of(package: str) -> str:
    """Its version; empty where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


# What a stored run may go on with: its machine, its code, its libraries, and nobody else at it.


_SHORT = 12
"""Digits of a commit in a sentence."""


def check_same(run: Run, left: Sequence[PlannedCase], machine_id: str) -> None:
    """Refuse to go on where what is `left` would not be measured as the rest of the run was."""
    if run.origin != HERE or run.method is None:
        raise UsageError(f"{run.id} was imported from {run.origin} and cannot be resumed.")
    if run.machine_id != machine_id:
        raise UsageError(
            f"{run.id} was begun on another machine, and figures of two machines do not mix.",
            "Begin a run of its own here, with the same --label.",
        )
    _check_commit(run)
    _check_sources(run, left)
    _check_packages(run, left)


def check_alone(run_id: str, shard: str, others: Iterable[Part]) -> None:
    """Refuse to measure what a living program is measuring; other shards of as many are welcome."""
    for other in others:
        if not _apart(shard, other.shard):
            who = f"process {other.pid}" if other.pid else "another process"
            who += f" on {other.host}" if other.host not in ("", socket.gethostname()) else ""
            part = f" (shard {other.shard})" if other.shard else ""
            raise UsageError(
                f"{run_id} is being measured now, by {who}{part}.",
                "Wait until it ends, or stop it first; what it has measured stays.",
            )


def _apart(one: str, other: str) -> bool:
    """Whether two shards have no case in common: different parts of as many."""
    (i, _, n), (j, _, m) = one.partition("/"), other.partition("/")
    return bool(n) and n == m and i != j


def _check_packages(run: Run, left: Sequence[PlannedCase]) -> None:
    """A run bears the name of one torch, and two versions of a library build two models of one
    name."""
    begun = {**run.packages, "torch": run.torch}
    for name, found in {"torch": version_of("torch"), **packages_of(left)}.items():
        was = begun.get(name, found)
        if was != found:
            before, here = (f"{name} {text}" if text else f"no {name}" for text in (was, found))
            raise UsageError(
                f"{run.id} was begun with {before}, and here is {here}: one run cannot combine "
                "both.",
                f"Begin a run of its own, or go back to {before}.",
            )


def _check_commit(run: Run) -> None:
    """A run bears the name of one commit; one begun outside a repository bears none."""
    if run.git is None:
        return
    state = git_state(os.getcwd())
    was = f"commit {run.git.commit[:_SHORT]}"
    if state is None or state.commit != run.git.commit:
        here = "no repository" if state is None else f"commit {state.commit[:_SHORT]}"
        raise UsageError(
            f"{run.id} was begun at {was}, and here is {here}: one run cannot combine both.",
            f"Begin a run of its own, or resume in the same folder at {was}.",
        )
    if state.dirty != run.git.dirty:
        how, here, what = (
            ("as it is", "files differ", "Put the changes aside (`git stash -u`)")
            if state.dirty
            else ("with changed files", "none differs", "Bring the changes back (`git stash pop`)")
        )
        raise UsageError(
            f"{run.id} was begun at {was} {how}, and here {here} from it.",
            f"{what}, or begin a run of its own.",
        )


def _check_sources(run: Run, left: Sequence[PlannedCase]) -> None:
    """Refuse to go on without what models come from, such as a checkout or a file: each case would
    be stored as an error, and a stored case is not measured again."""
    targets = {case.target: parse_target(case.target) for case in left}
    for prefix in sorted({one.place for one in targets.values() if one.kind == "suite"}):
        load_suite(prefix).models()
    for text, target in targets.items():
        if target.kind != "file":
            continue
        try:
            check_target(text)
        except UsageError as error:
            elsewhere = not os.path.isabs(target.place) and not os.path.exists(target.place)
            raise UsageError(
                f"{run.id} cannot go on: {error.message}",
                "Resume it in the folder in which it was begun." if elsewhere else error.remedy,
            ) from None


class RunEvents(CaseEvents, Protocol):
    """Who wants to know how a run gets on."""

    def run_started(self, run: Run, todo: int, done: int) -> None:
        """The plan is stored and `todo` cases will be measured."""

    def case_finished(self, figures: CaseMetrics) -> None:
        """A case has ended and is stored."""


@dataclass(frozen=True)
class RunEnd:
    """The run as far as it got, and why it stopped: `done`, `total budget`, `interrupt`,
    `storage` or `nodes`."""

    view: RunView
    stopped_by: str
    storage_warnings: tuple[StorageWarning, ...] = ()
    """What the database refused."""


def start_run(
    request: RunRequest,
    command: tuple[str, ...],
    db: str | None,
    events: RunEvents,
    shard: Shard | None = None,
    total_budget_s: float | None = None,
    engine: Engine | None = None,
) -> RunEnd:
    """Plan, store the plan, then measure case by case. Shards of one label join into one run."""
    if shard is not None and not request.label:
        raise UsageError(
            "A shard needs to know which run it is a part of.",
            "Give all shards the same --label, such as the commit.",
        )
    check_store(db)
    engine = engine or Local()
    with use_checkout(request.torchbench):
        machine = engine.machine(db)
        plan = make_plan(request, machine.cores, machine.spare_cores)
        run = describe_run(request, plan, public_words(command), shard, machine)
        # The sign comes first: a run that is seen is never taken for a dead one.
        with _sign(db, run, shard) as sign:
            with open_store(db) as store:
                store.begin_run(run)
                run = store.load_run(run.id)
            return carry_out(run, db, events, shard, total_budget_s, sign, engine)


def resume_run(
    wanted: str,
    db: str | None,
    events: RunEvents,
    shard: Shard | None = None,
    total_budget_s: float | None = None,
    torchbench: str = "",
    engine: Engine | None = None,
) -> RunEnd:
    """Go on with a stored run: what is done stays, what is missing is measured."""
    with open_store(db, create=False) as store:
        run = store.load_run(wanted)
        done = store.done_positions(run.id)
    engine = engine or Local()
    with use_checkout(torchbench):
        left = [case for i, case in enumerate(run.plan) if i not in done]
        check_same(run, left, engine.machine(db, run.machine_id).id)
        with _sign(db, run, shard) as sign:
            return carry_out(run, db, events, shard, total_budget_s, sign, engine)


def carry_out(
    run: Run,
    db: str | None,
    events: RunEvents,
    shard: Shard | None,
    total_budget_s: float | None,
    sign: Heartbeat,
    engine: Engine,
) -> RunEnd:
    """Measure every case that is not stored yet, until all are, or the time is over."""
    settings, recorder = settings_of(run), Recorder(db, events=events)
    done = recorder.read(lambda store: store.done_positions(run.id)) or set()
    left = _only(shard_of(groups(run.plan), shard), lambda at, case: at not in done)
    unable = [pair for group in left for pair in group.cases if pair[1].not_supported]
    todo = _only(left, lambda at, case: not case.not_supported)
    total = sum(len(group.cases) for group in left)
    events.run_started(run, total, len(done))

    ended: dict[int, CaseMetrics] = {}

    def keep(result: Result | None, figures: Sequence[Placed]) -> bool:
        """Whether it is stored. What is not is shown at the end all the same, and measured again by
        `--resume`: with the database full there is no sense in going on."""
        ended.update(figures)
        names = ", ".join(case.key.name for _, case in figures)
        before = len(recorder.storage_warnings)
        with recorder.collect_errors(f"{names} was not kept"):
            for one in recorder.add_cases(run.id, result, figures):
                events.case_finished(one)
        return len(recorder.storage_warnings) == before

    def show(figures: Sequence[Placed]) -> None:
        ended.update(figures)
        for _, one in figures:
            events.case_finished(one)

    clock, stopped_by = Clock(len(todo), total_budget_s), "storage"
    try:
        # All of them first: they take no time, and until they are stored they count as not run.
        if keep(None, [(at, _unsupported(case, settings)) for at, case in unable]):
            before = len(unable)
            work = Work(
                run, todo, settings, recorder, events, sign, clock, before, total, keep, show
            )
            stopped_by = engine.carry_out(work)
    except KeyboardInterrupt:
        stopped_by = "interrupt"
    view = _view(recorder, run, ended)
    return RunEnd(view, stopped_by, tuple(recorder.storage_warnings))


def _view(recorder: Recorder, run: Run, ended: Mapping[int, CaseMetrics]) -> RunView:
    """The run with all figures that are stored, and those of this program that could not be."""
    stored: RunView | None = None
    with recorder.collect_errors("What was stored before cannot be shown"):
        stored = recorder.read(lambda store: store.run_view(run.id))
    if stored is None:
        return RunView(run, tuple(case for _, case in sorted(ended.items())))
    known = {case.key for case in stored.cases}
    unsaved = tuple(case for _, case in sorted(ended.items()) if case.key not in known)
    return replace(stored, cases=(*stored.cases, *unsaved)) if unsaved else stored


def _only(all_groups: Sequence[Group], wanted: Callable[[int, PlannedCase], bool]) -> list[Group]:
    """The groups with the wanted cases alone; empty groups fall away."""
    left = (Group(tuple(one for one in group.cases if wanted(*one))) for group in all_groups)
    return [group for group in left if group.cases]


def _unsupported(case: PlannedCase, settings: Settings) -> CaseMetrics:
    """The row of a case that is known to be unable to run here."""
    command = command_of_case(case, settings)
    return unmeasured(case, Outcome.NOT_SUPPORTED, case.not_supported, command)


@contextmanager
def _sign(db: str | None, run: Run, shard: Shard | None) -> Iterator[Heartbeat]:
    """The run's sign of life: seen by whoever reads the database, gone when we are.

    A `UsageError` where a living program measures the same cases.
    """
    part = "" if shard is None else f"{shard[0]}/{shard[1]}"
    with start_heartbeat(locate(db), run.id, part) as sign:
        check_alone(run.id, part, sign.others())
        yield sign


def settings_of(run: Run) -> Settings:
    """The settings of every case of a run."""
    asked = Settings() if run.method is None else settings_from(run.method)
    return replace(asked, count_flops=True)
