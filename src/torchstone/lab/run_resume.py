"""What a stored run may go on with: its machine, its code, its libraries, and nobody else at it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from torchstone.lab.run_record import packages_of, version_of
from torchstone.machine.environment import machine_id
from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.machine.repository import git_state
from torchstone.records import PlannedCase, Run, UsageError
from torchstone.store.alive import Part
from torchstone.workloads.suites import load_suite
from torchstone.workloads.target import check_target, parse_target

_SHORT = 12
"""Digits of a commit in a sentence."""


def check_same(run: Run, left: Sequence[PlannedCase]) -> None:
    """Refuse to go on where what is `left` would not be measured as the rest of the run was."""
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
    _check_sources(run, left)
    _check_packages(run, left)


def check_alone(run_id: str, shard: str, others: Iterable[Part]) -> None:
    """Refuse to measure what a living program is measuring; other shards of as many are welcome."""
    for other in others:
        if not _apart(shard, other.shard):
            who = f"process {other.pid}" if other.pid else "another process"
            part = f" (shard {other.shard})" if other.shard else ""
            raise UsageError(
                f"{run_id} is being measured now, by {who}{part}.",
                "Wait until it ends, or stop it first; what it has measured stays.",
            )


def _apart(one: str, other: str) -> bool:
    """Whether two shards have no case in common: different parts of as many."""
    (i, _, n), (j, _, m) = one.partition("/"), other.partition("/")
    return bool(n) and n == m and i != j


def _check_torch(run: Run) -> None:
    """A run bears the name of one torch."""
    installed = version_of("torch")
    if run.torch != installed:
        was = f"torch {run.torch}" if run.torch else "no torch"
        now = f"torch {installed}" if installed else "no torch"
        raise UsageError(
            f"{run.id} was begun with {was}, and here is {now}: figures of two do not mix.",
            f"Begin a run of its own, or go back to {was}.",
        )


def _check_packages(run: Run, left: Sequence[PlannedCase]) -> None:
    """Two versions of a library build two models of one name. Runs stored before the versions were
    kept have none to compare."""
    for name, now in packages_of(left).items():
        was = run.packages.get(name)
        if was is not None and was != now:
            before, here = (f"{name} {text}" if text else f"no {name}" for text in (was, now))
            raise UsageError(
                f"{run.id} was begun with {before}, and here is {here}: figures of two do not mix.",
                f"Begin a run of its own, or go back to {before}.",
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
    if run.git.dirty and not now.dirty:
        raise UsageError(
            f"{run.id} was begun at {was} with changed files, and here none differs from it.",
            "Bring the changes back (`git stash pop`), or begin a run of its own.",
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
