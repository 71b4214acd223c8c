"""`regressions --confirm`: two commits are measured again, interleaved, before a change is called
real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torchstone.lab.check import compare_revisions
from torchstone.lab.recording import this_machine
from torchstone.lab.regressions import metric_title, note_change
from torchstone.lab.revisions import HowToRun
from torchstone.records import CaseKey, CheckedTarget, LevelChange, NotRunError, UsageError
from torchstone.store import open_store
from torchstone.track.regressions import CLOSED, CONFIRMED, REFUTED
from torchstone.track.series import BASE, NEW, SPEEDUP

CompareRevisions = Callable[[str, str, str, HowToRun], CheckedTarget]
"""`compare_revisions(base, head, target, how)`."""


def confirm(
    change: LevelChange, db: str | None, measure: CompareRevisions = compare_revisions
) -> LevelChange:
    """Measure the commits before and after a change side by side, and remember what that says."""
    good, bad = change.last_good, change.first_bad
    case = _refuse_unmeasurable(change)
    with open_store(db, create=False, read_only=True) as store:
        plan = store.load_run(bad.id).plan
    target = next((one.target for one in plan if one.key == case), "")
    if not target:
        raise UsageError(f"The run {bad.id} no longer says how {case.name} was made.")
    eager = change.moved == "eager" or change.key.metric == BASE
    how = HowToRun(
        "eager" if eager else case.variant,
        case.mode,
        case.precision,
        case.device,
        case.threads or None,
        allocator=case.allocator,
    )
    found = measure(good.commit, bad.commit, target, how)
    if found.time_ratio is None or found.interval is None:
        raise NotRunError(f"{target} could not be measured at both commits. {found.reason}".strip())
    ratio, (low, high) = found.time_ratio, found.interval
    # A speed-up falls where eager alone became faster; anything else that is worse is slower.
    slower = change.worse != (eager and change.key.metric == SPEEDUP)
    again = low > 1.0 if slower else high < 1.0
    where = "" if change.key.machine == this_machine() else " on another machine"
    told = (
        f"{how.variant} measured again{where}, interleaved: "
        f"{ratio:.3f}× the time ({low:.3f}–{high:.3f})"
    )
    note_change(change, CONFIRMED if again else REFUTED, told, "", db)
    return replace(change, state=CONFIRMED if again else CLOSED, reason=told)


def _refuse_unmeasurable(change: LevelChange) -> CaseKey:
    """What was measured; a `UsageError` where measuring it again could not tell."""
    good, bad = change.last_good, change.first_bad
    if change.case is None:
        raise UsageError(
            f"{change.id} is a series of {change.key.tool}; only what was measured here can be "
            "measured again.",
            f"Run {change.key.tool} on {good.commit[:10]} and {bad.commit[:10]}.",
        )
    if change.key.metric not in (SPEEDUP, BASE, NEW):
        raise UsageError(
            f"{change.id} is a change of {metric_title(change.key.metric)}; --confirm compares "
            "the times of a step.",
            "Run both commits again with `torchstone run`.",
        )
    if not good.commit or not bad.commit:
        raise UsageError(
            f"The runs around {change.id} name no commit, so they cannot be measured again.",
            "Run suites inside a git repository, and their commits are recorded.",
        )
    if good.commit == bad.commit:
        raise UsageError(
            f"Both runs around {change.id} are of commit {bad.commit[:10]}: the code did not "
            "change between them."
        )
    return change.case
