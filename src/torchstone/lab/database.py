"""`torchstone db`: what the database weighs, what of it may go, and what can be made again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torchstone
from torchstone.interop import Imported, find_format, medians_of
from torchstone.lab.bench import new_id
from torchstone.lab.metrics import metrics_of
from torchstone.lab.peaks import evaluate_again
from torchstone.lab.sweep import evaluate_sweep
from torchstone.records import (
    CaseMetrics,
    Check,
    Evaluation,
    Level,
    PlannedCase,
    Result,
    RunView,
    UsageError,
)
from torchstone.store import PruneReport, Rebuilt, SizeReport, open_store
from torchstone.store.limits import now
from torchstone.store.location import locate

if TYPE_CHECKING:
    from torchstone.store.copying import CopyReport

Tell = Callable[[str, int, int], None]
LEAST_AGE_S = 86_400.0
"""A run of today may still go on."""


def prune(
    db: str | None,
    older_than_s: float,
    keep_every: int,
    command: Sequence[str],
    tell: Tell,
    *,
    trial: bool = False,
    compact: bool = False,
) -> tuple[PruneReport, int]:
    """Remove the raw samples of old results of runs; and, if asked to, shrink the file.

    Figures of an older definition are derived again before: afterwards they could not be. What is
    removed, and the bytes that the file got smaller by.
    """
    if older_than_s < LEAST_AGE_S:
        raise UsageError(
            "Samples of less than a day ago are not removed.", "Give --older-than 1d or more."
        )
    before = time.time() - older_than_s
    with open_store(db, create=False) as store:
        report = store.prune(
            before,
            command,
            torchstone.__version__,
            keep_every=keep_every,
            trial=trial,
            tell=tell,
            derive=_derive,
        )
        return report, store.compact() if compact and not trial else 0


def size(db: str | None) -> SizeReport:
    """What is on disk, by table and by case."""
    with open_store(db, create=False, read_only=True) as store:
        return store.size()


def rebuild(db: str | None, tell: Tell, *, every: bool = False) -> Rebuilt:
    """Make the derived tables again; with `every`, figures from the samples of all cases, too."""
    with open_store(db, create=False) as store:
        return store.rebuild(_derive, every=every, tell=tell)


def _derive(result: Result, planned: PlannedCase, arm: str) -> CaseMetrics:
    """The store puts back the command that was printed."""
    return metrics_of(result, planned, arm, ())


def copy_database(source: str, target: str, tell: Tell) -> CopyReport:
    """Copy everything into a database that is empty or not there yet, of either kind."""
    from torchstone.store.copying import copy  # late: SQLAlchemy comes with it

    with open_store(source, create=False, read_only=True) as one, open_store(target) as other:
        return copy(one, other, tell)


# `torchstone export` and `torchstone import`: runs out of the store and into it.


@dataclass(frozen=True)
class Exported:
    """Files by name, and what they leave out."""

    files: Mapping[str, bytes]
    remarks: Sequence[str]


def export_run(wanted: str, format_name: str, db: str | None) -> Exported:
    """The files of a run in another tool's format. Its medians come from the raw samples."""
    wanted_format = find_format(format_name)
    with open_store(db, create=False, read_only=True) as store:
        view = store.run_view(wanted)

        @cache  # asked for twice; the samples themselves need not stay in memory
        def medians(case: CaseMetrics) -> tuple[float, float] | None:
            return medians_of(store.load(case.result_id), case) if case.result_id else None

        return Exported(wanted_format.write(view, medians), wanted_format.remarks(view, medians))


def import_files(format_name: str, paths: Sequence[str], label: str, db: str | None) -> Imported:
    """Read the files, and store what they hold as one run with their origin."""
    imported = find_format(format_name).read([Path(path) for path in paths])
    run = replace(imported.run, id=new_id(), label=label or imported.run.label)
    imported = replace(imported, run=run)
    with open_store(db) as store:
        store.import_run(run, imported.cases, run.origin)
    return imported


def join_databases(paths: Sequence[str], db: str | None) -> list[str]:
    """Copy runs from other databases; shards of one run become one run here."""
    lines = []
    for path in paths:
        location = locate(path)
        if not location.url and not location.path.is_file():
            raise UsageError(f"There is no database {location}.")
        with open_store(path, create=False, read_only=True) as other, open_store(db) as store:
            for summary in other.list_runs(limit=1_000_000):
                copied = store.merge_run(other, summary.id)
                lines.append(f"{summary.id}: {copied} cases from {location.name}")
    return lines


# `torchstone validate`: evaluate stored results by the rules of today, without measuring.


@dataclass(frozen=True)
class Reevaluated:
    """A stored result before and after."""

    before: Result
    after: Result

    @property
    def skipped(self) -> bool:
        """Its samples were removed, so that it keeps what was said of it."""
        return self.before.pruned is not None

    @property
    def changes(self) -> tuple[str, ...]:
        """What is said now and was not, and the other way round; one line each."""
        old, new = _levels(self.before.checks), _levels(self.after.checks)
        lines = []
        for key in dict.fromkeys((*old, *new)):
            before, after = (levels.get(key, "not said") for levels in (old, new))
            if before != after:
                rule, arms = key
                of = f" ({', '.join(arms)})" if arms else ""
                lines.append(f"{rule}{of}: {before} → {after}")
        pairs = zip(self.before.comparisons, self.after.comparisons, strict=True)
        lines += [
            f"{one.new} against {one.base}: {one.verdict.value} → {again.verdict.value}"
            for one, again in pairs
            if one.verdict is not again.verdict
        ]
        return tuple(lines)

    @property
    def failed(self) -> bool:
        """Whether a rule says that a number is not to be believed."""
        return any(check.level is Level.FAIL for check in self.after.checks)


def validate_stored(wanted: str, db: str | None, *, save: bool) -> list[Reevaluated]:
    """Evaluate the result, or every result of the run, again; what changed is kept beside it."""
    with open_store(db, create=False, read_only=True) as store:
        found = store.find(wanted)
        if isinstance(found, RunView):
            stored = [store.load(one) for one in store.result_ids(found.run.id)]
        else:
            stored = [found]
    if stored and all(result.pruned for result in stored):
        raise _pruned(wanted, stored[0])
    evaluated = [Reevaluated(one, one if one.pruned else _again(one)) for one in stored]
    changed = [one for one in evaluated if one.after != one.before]
    if save and changed:
        with open_store(db) as store:
            for one in changed:
                said = one.after.checks, one.after.comparisons
                evaluation = Evaluation(now(), torchstone.__version__, *said)
                store.add_evaluation(one.after, evaluation, _derive)
    return evaluated


def _again(result: Result) -> Result:
    return evaluate_sweep(result) if result.sweep else evaluate_again(result)


def _pruned(wanted: str, result: Result) -> UsageError:
    when = result.pruned.created[:10] if result.pruned else ""
    return UsageError(
        f"The samples of {wanted} were removed on {when} (`torchstone db prune`), and without them "
        "it cannot be evaluated again.",
        f"What was said of it then stands: torchstone show {wanted}. To measure it again: "
        f"torchstone repro {result.id}.",
    )


def _levels(checks: Sequence[Check]) -> dict[tuple[str, tuple[str, ...]], str]:
    """The worst level of each rule for each arm or pair of arms."""
    order = list(Level)
    worst: dict[tuple[str, tuple[str, ...]], Level] = {}
    for check in checks:
        key = (check.rule, check.arms)
        worst[key] = max(worst.get(key, check.level), check.level, key=order.index)
    return {key: level.value for key, level in worst.items()}
