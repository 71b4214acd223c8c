"""`torchstone run`: suites × variants, one case after another, stored as they end."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from typing import Protocol

import torchstone
from torchstone.conductor import Events, Settings
from torchstone.lab.bench import measure_unkept, new_id
from torchstone.lab.figures import figures_of, unmeasured
from torchstone.lab.keeping import Keeper
from torchstone.lab.request import distinct, method_of, settings_from
from torchstone.lab.run_plan import (
    Group,
    Plan,
    RunRequest,
    arm_of,
    command_of_case,
    groups,
    make_plan,
    shard_of,
)
from torchstone.lab.secrets import public_words
from torchstone.machine.cgroup import usable_cores
from torchstone.machine.environment import machine_id
from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.machine.repository import git_state
from torchstone.records import (
    CASE_KIND,
    CaseFigures,
    CaseKey,
    Outcome,
    PlannedCase,
    Result,
    Run,
    RunView,
    UsageError,
    to_data,
)
from torchstone.store import AlreadyStored, Store, check_store, open_store
from torchstone.store.alive import Beat, beat
from torchstone.store.location import locate
from torchstone.workloads.suites import load_suite
from torchstone.workloads.target import check_target, parse_target

Shard = tuple[int, int]
_SHORT = 12
"""Digits of a commit in a sentence."""


class RunEvents(Events, Protocol):
    """Who wants to know how a run gets on."""

    def run_started(self, run: Run, todo: int, done: int) -> None:
        """The plan is stored and `todo` cases will be measured."""

    def case_started(
        self, index: int, total: int, key: CaseKey, seconds_left: float | None
    ) -> None:
        """A case begins."""

    def case_finished(self, figures: CaseFigures) -> None:
        """A case has ended and is stored."""


@dataclass(frozen=True)
class RunEnd:
    """The run as far as it got, and why it stopped: `done`, `total budget` or `interrupt`."""

    view: RunView
    stopped_by: str


def start_run(
    request: RunRequest,
    command: tuple[str, ...],
    db: str | None,
    events: RunEvents,
    shard: Shard | None = None,
    total_budget_s: float | None = None,
) -> RunEnd:
    """Plan, store the plan, then measure case by case. Shards of one label join into one run."""
    if shard is not None and not request.label:
        raise UsageError(
            "A shard needs to know which run it is a part of.",
            "Give all shards the same --label, such as the commit.",
        )
    check_store(db)
    plan = make_plan(request, usable_cores())
    run = describe_run(request, plan, public_words(command), shard)
    # The sign comes first: a run that is seen is never taken for a dead one.
    with _sign(db, run, shard) as sign:
        with open_store(db) as store:
            store.begin_run(run)
            run = store.load_run(run.id)
        return carry_out(run, db, events, shard, total_budget_s, sign)


def resume_run(
    wanted: str,
    db: str | None,
    events: RunEvents,
    shard: Shard | None = None,
    total_budget_s: float | None = None,
) -> RunEnd:
    """Go on with a stored run: what is done stays, what is missing is measured."""
    with open_store(db, create=False) as store:
        run = store.load_run(wanted)
        done = store.done_positions(run.id)
    if run.origin != "here" or run.method is None:
        raise UsageError(f"{run.id} was imported from {run.origin} and cannot be resumed.")
    here = machine_id(describe_cpu(), cache_sizes(), memory_bytes())
    if run.machine_id != here:
        raise UsageError(
            f"{run.id} was begun on another machine, and figures of two machines do not mix.",
            "Begin a run of its own here, with the same --label.",
        )
    _check_torch(run)
    _check_commit(run)
    _check_sources(run, [case for i, case in enumerate(run.plan) if i not in done])
    with _sign(db, run, shard) as sign:
        return carry_out(run, db, events, shard, total_budget_s, sign)


def _check_torch(run: Run) -> None:
    """A run bears the name of one torch."""
    installed = _version_of("torch")
    if run.torch != installed:
        was = f"torch {run.torch}" if run.torch else "no torch"
        now = f"torch {installed}" if installed else "no torch"
        raise UsageError(
            f"{run.id} was begun with {was}, and here is {now}: figures of two do not mix.",
            f"Begin a run of its own, or go back to {was}.",
        )


def _check_commit(run: Run) -> None:
    """A run bears the name of one commit; one begun outside a repository bears none."""
    if run.git is None:
        return
    now = git_state(os.getcwd())
    was = f"commit {run.git.commit[:_SHORT]}"
    if now is None or now.commit != run.git.commit:
        here = "no repository" if now is None else f"commit {now.commit[:_SHORT]}"
        raise UsageError(
            f"{run.id} was begun at {was}, and here is {here}: figures of two do not mix.",
            f"Begin a run of its own, or resume in the same folder at {was}.",
        )
    if now.dirty and not run.git.dirty:
        raise UsageError(
            f"{run.id} was begun at {was} as it is, and here files differ from it.",
            "Put the changes aside (`git stash -u`), or begin a run of its own.",
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


def carry_out(
    run: Run,
    db: str | None,
    events: RunEvents,
    shard: Shard | None,
    total_budget_s: float | None,
    sign: Beat,
) -> RunEnd:
    """Measure every case that is not stored yet, until all are, or the time is over."""
    settings = settings_of(run)
    with open_store(db) as store:
        done = store.done_positions(run.id)
    todo = _left(shard_of(groups(run.plan), shard), done)
    total = sum(len(group.cases) for group in todo)
    events.run_started(run, total, len(done))
    clock, index, stopped_by = Clock(len(todo), total_budget_s), 0, "done"
    for group in todo:
        if clock.is_over:
            stopped_by = "total budget"
            break
        shown = _shown(group)
        events.case_started(index, total, shown, clock.seconds_left)
        sign.now(shown.name, index, total)
        try:
            figures, result = measure_group(group, settings, Keeper(db), events)
        except KeyboardInterrupt:
            stopped_by = "interrupt"
            break
        with open_store(db) as store:
            kept = _keep(store, run.id, result, figures)
        for one in kept:
            events.case_finished(one)
        index += len(group.cases)
        clock.tick()
    with open_store(db) as store:
        return RunEnd(store.run_view(run.id), stopped_by)


class Clock:
    """What a group takes on average, and what that means for the rest."""

    def __init__(self, groups_left: int, total_budget_s: float | None) -> None:
        self.started = time.monotonic()
        self.left = groups_left
        self.finished = 0
        self.total_budget_s = total_budget_s

    def tick(self) -> None:
        """One more group is done."""
        self.finished += 1
        self.left -= 1

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def is_over(self) -> bool:
        """No further case may be started."""
        return self.total_budget_s is not None and self.elapsed >= self.total_budget_s

    @property
    def seconds_left(self) -> float | None:
        """By the average so far; None before the first has ended."""
        if not self.finished:
            return None
        by_average = self.elapsed / self.finished * self.left
        if self.total_budget_s is None:
            return by_average
        return min(by_average, max(0.0, self.total_budget_s - self.elapsed))


def measure_group(
    group: Group, settings: Settings, keeper: Keeper, events: Events
) -> tuple[list[tuple[int, CaseFigures]], Result | None]:
    """One baseline and the arms compared with it. Whatever happens is a row."""

    def ended(case: PlannedCase, outcome: Outcome, reason: str) -> CaseFigures:
        return unmeasured(case, outcome, reason, command_of_case(case, settings))

    found = [
        (position, ended(case, Outcome.NOT_SUPPORTED, case.not_supported))
        for position, case in group.cases
        if case.not_supported
    ]
    able = [(position, case) for position, case in group.cases if not case.not_supported]
    if not able:
        return found, None
    base = arm_of(able[0][1], "eager", settings.seed)
    arms = distinct([base, *(arm_of(case, seed=settings.seed) for _, case in able)])
    commands = [command_of_case(case, settings) for _, case in able]
    label = able[0][1].key.name
    try:
        result = measure_unkept(arms, settings, keeper, events, commands[0], CASE_KIND, label)
    except UsageError as error:  # the target itself cannot be used: an outcome like others
        words = f"{error.message} {error.remedy}".strip()
        return found + [(p, ended(case, Outcome.ERROR, words)) for p, case in able], None
    if result.method.stopped_by == "interrupt":
        raise KeyboardInterrupt
    for (position, case), arm, command in zip(able, result.arms[1:], commands, strict=True):
        found.append((position, figures_of(result, case, arm.arm.name, command)))
    return sorted(found, key=lambda pair: pair[0]), result


def _sign(db: str | None, run: Run, shard: Shard | None) -> AbstractContextManager[Beat]:
    """The run's sign of life: seen by whoever reads the database, gone when we are."""
    return beat(locate(db), run.id, "" if shard is None else f"{shard[0]}/{shard[1]}")


def _shown(group: Group) -> CaseKey:
    """The case that stands for the group while it runs."""
    able = [case.key for _, case in group.cases if not case.not_supported]
    return able[0] if able else group.cases[0][1].key


def _keep(
    store: Store, run_id: str, result: Result | None, figures: Sequence[tuple[int, CaseFigures]]
) -> list[CaseFigures]:
    """Store the cases; nothing where another process was quicker with them."""
    try:
        store.add_cases(run_id, result, figures)
    except AlreadyStored:
        return []
    return [one for _, one in figures]


def _left(all_groups: Sequence[Group], done: set[int]) -> list[Group]:
    """The groups without the cases that are stored already; empty groups fall away."""
    left = [
        Group(tuple(pair for pair in group.cases if pair[0] not in done)) for group in all_groups
    ]
    return [group for group in left if group.cases]


def describe_run(
    request: RunRequest, plan: Plan, command: tuple[str, ...], shard: Shard | None
) -> Run:
    """The run's record, before anything is measured."""
    cpu = describe_cpu()
    settings = request.settings
    run = Run(
        id=new_id(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        plan=plan.cases,
        label=request.label,
        machine_id=machine_id(cpu, cache_sizes(), memory_bytes()),
        machine=cpu.get("model", ""),
        torch=_version_of("torch"),
        git=git_state(os.getcwd()),
        tier=plan.tier,
        method=method_of(settings),
        notes=plan.notes,
        version=torchstone.__version__,
    )
    return run if shard is None else replace(run, id=_shared_id(run))


def _shared_id(run: Run) -> str:
    """The same for all shards of a label: by what is run, at which commit, how, and where.

    Not by the reasons why some cases cannot run, which are those of one machine.
    """
    plan = [(to_data(case.key), case.target) for case in run.plan]
    commit = run.git.commit if run.git is not None else ""
    parts = (run.label, run.machine_id, run.torch, commit, plan, to_data(run.method))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def settings_of(run: Run) -> Settings:
    """The settings of every case of a run."""
    if run.method is None:
        return Settings(count_flops=True)
    replicates = run.method.replicates or None
    return replace(settings_from(run.method), replicates=replicates, count_flops=True)


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
