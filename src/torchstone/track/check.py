"""Does a change make anything slower: from what was measured at two revisions to one answer.

Ratios are times, new / base, measured turn by turn. Of each target, in this order:

1. **Same code.** What it loads from the repository is the same in both trees. Whatever its times
   do, the change did not do it; it serves as a control.
2. **Slower**: the difference is significant after Benjamini and Hochberg's correction over all
   targets, the best estimate lies beyond the margin, and a second measurement in new processes
   agrees: its own estimate is beyond half the margin, and both together are still significant and
   beyond the margin. One measurement in fifty of unchanged code is significant by chance and on
   the slow side; two in a row are one in thousands.
3. **Not slower**: the interval ends below the margin. **Cannot tell**: all else.

**Controls** are a fixed kernel and the targets of the same code. What they share is not the change:
it is the machine, or the two trees' surroundings. Where they moved (beyond what identical arms do,
p <= 0.01), a target is called slower, or not slower, only if it is so with and without that shift.

**The suite** is tested first and as a whole: the mean over all targets whose code changed. Many
small slow-downs, none of them certain by itself, are one there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchstone import stats
from torchstone.records import (
    CheckedTarget,
    CheckReport,
    Comparison,
    Outcome,
    Shift,
    Status,
    Verdict,
)
from torchstone.records.format import format_percent

CONTROL_ALPHA = 0.01
"""A moved control turns answers into "cannot tell", so it has to be sure (as `aa_test`)."""
LEAST_TARGETS = 3
"""Below so many, the mean says nothing that the targets do not."""
NOT_SLOWER, SLOWER, UNKNOWN, NOT_RUN = 0, 1, 3, 4
"""Exit codes; 2 is a mistake in the request."""


@dataclass(frozen=True)
class Seen:
    """One measurement of a target at both revisions. `change` is of its speed: log(base / new)."""

    target: str
    base: Outcome
    new: Outcome
    change: stats.Change | None = None
    floor: float = 0.0
    said: Comparison | None = None
    why: str = ""
    """What is wrong with an arm that did not end well."""
    same_code: bool = False


def is_usable(seen: Seen) -> bool:
    """Whether there is a ratio with an error."""
    ran = seen.base.comparable and seen.new.comparable
    return ran and seen.change is not None and seen.change.error is not None


def suspects(seen: Sequence[Seen], margin: float) -> list[str]:
    """The targets that look slower, and are to be measured a second time."""
    found = evaluate(seen, [None] * len(seen), (), margin)[0]
    return [one.target for one in found if one.status is Status.SLOWER]


def evaluate(
    seen: Sequence[Seen], again: Sequence[Seen | None], kernels: Sequence[Seen], margin: float
) -> tuple[list[CheckedTarget], Shift | None, Shift | None]:
    """Each target in its order, the controls' shift and the suite's.

    `again` is the second measurement of those that have one; `kernels` are controls of our own.
    """
    controls = [*kernels, *(one for one in seen if one.same_code)]
    control_shift = _shift(controls, margin, CONTROL_ALPHA)
    changed = [i for i, one in enumerate(seen) if not one.same_code and is_usable(one)]
    whole = [_together(seen[i], again[i]) for i in changed]
    plain = _statuses(seen, again, changed, whole, margin)
    if control_shift is not None and control_shift.real:
        moved = _mean(controls)
        assert moved is not None
        rest = [_without(change, moved) for change in whole]
        plain = _agreed(plain, _statuses(seen, again, changed, rest, margin), control_shift)
    of_change = dict(zip(changed, plain, strict=True))
    found = [of_change.get(i) or _other(one) for i, one in enumerate(seen)]
    suite = _shift([seen[i] for i in changed], margin) if len(changed) >= LEAST_TARGETS else None
    return found, control_shift, suite


def control(seen: Seen) -> CheckedTarget:
    """A kernel of ours, as a row."""
    return replace(_figures(seen, seen.change), status=Status.SAME_CODE, reason=seen.why)


def exit_code(report: CheckReport) -> int:
    """What a script is told."""
    statuses = [one.status for one in report.targets]
    if any(status.bad for status in statuses) or suite_is_slower(report):
        return SLOWER
    compared = [s for s in statuses if s not in (Status.NOT_COMPARED, Status.ADDED)]
    if Status.NOT_COMPARED in statuses or not compared:
        return NOT_RUN
    if Status.CANNOT_TELL in statuses:
        return {"pass": NOT_SLOWER, "fail": SLOWER}.get(report.on_unknown, UNKNOWN)
    return NOT_SLOWER


def suite_is_slower(report: CheckReport) -> bool:
    """All targets together are, beyond the margin, and the controls did not move."""
    suite, controls = report.suite_shift, report.control_shift
    if suite is None or (controls is not None and controls.real):
        return False
    return suite.real and suite.ratio > 1.0 + report.margin


def _together(first: Seen, second: Seen | None) -> stats.Change:
    """Of both measurements, which are independent, where there are two."""
    assert first.change is not None
    if second is None or second.change is None or not is_usable(second):
        return first.change
    both = stats.mean_change([first.change, second.change])
    assert both is not None
    return both


def _without(change: stats.Change, moved: stats.Change) -> stats.Change:
    """The change beyond what the controls did."""
    if change.error is None or moved.error is None:
        return stats.Change(change.log - moved.log)
    error = stats.rounded_down(stats.error_of_sum([change.error, moved.error]))
    return stats.Change(change.log - moved.log, error)


def _mean(seen: Sequence[Seen]) -> stats.Change | None:
    return stats.mean_change([s.change for s in seen if s.change is not None and is_usable(s)])


def _shift(seen: Sequence[Seen], margin: float, alpha: float = stats.CASE_ALPHA) -> Shift | None:
    """How far these moved together."""
    mean = _mean(seen)
    if mean is None or mean.error is None:
        return None
    usable = [one for one in seen if is_usable(one)]
    floor = stats.mean_floor([one.floor for one in usable])
    p = mean.p_value
    real = p is not None and p <= alpha and abs(mean.log) > math.log1p(floor)
    ratio, interval = _times(mean)
    return Shift(ratio, interval, len(usable), real)


def _statuses(
    seen: Sequence[Seen],
    again: Sequence[Seen | None],
    places: Sequence[int],
    changes: Sequence[stats.Change],
    margin: float,
) -> list[CheckedTarget]:
    """Of the targets at these places, given their changes, corrected over all of them."""
    floors = [seen[i].floor for i in places]
    evaluated = stats.evaluate(changes, floors, stats.Rules(margin=margin))
    return [
        _status(seen[i], again[i], change, one.verdict, margin)
        for i, change, one in zip(places, changes, evaluated, strict=True)
    ]


def _status(
    seen: Seen, again: Seen | None, change: stats.Change, verdict: Verdict, margin: float
) -> CheckedTarget:
    row = _figures(seen, change)
    ratio, interval = _times(change)
    high = interval[1] if interval else math.inf
    if again is not None:
        row = replace(row, first_ratio=_times(seen.change)[0] if seen.change else None)
    if verdict is Verdict.SLOWER and ratio > 1.0 + margin:
        doubt = _doubt(seen, again, margin)
        if not doubt:
            return replace(row, status=Status.SLOWER)
        return replace(row, status=Status.CANNOT_TELL, reason=doubt)
    if verdict is Verdict.FASTER:
        return replace(row, status=Status.FASTER)
    if high <= 1.0 + margin:
        return replace(row, status=Status.NOT_SLOWER)
    return replace(row, status=Status.CANNOT_TELL, reason=_open(verdict, interval, margin))


def _doubt(seen: Seen, again: Seen | None, margin: float) -> str:
    """Why a slow-down is not called one after all."""
    if seen.said is not None and not seen.said.verdict.different and seen.said.reason:
        return seen.said.reason
    if again is None:
        return ""
    if not is_usable(again) or again.change is None:
        return f"Measured a second time, it could not be compared. {again.why}".rstrip()
    ratio = _times(again.change)[0]
    if ratio > 1.0 + stats.LEAST_SHARE * margin:
        return ""
    first = format_percent(_times(seen.change)[0] - 1.0, signed=True) if seen.change else ""
    second = format_percent(ratio - 1.0, signed=True)
    return f"A slow-down of {first} was seen, and {second} when it was measured a second time."


def _open(verdict: Verdict, interval: tuple[float, float] | None, margin: float) -> str:
    shown = format_percent(margin)
    if interval is None:
        return "One process per revision cannot show how much processes differ."
    low, high = (format_percent(end - 1.0, signed=True) for end in interval)
    span = f"The interval runs from {low} to {high}"
    if verdict is Verdict.SLOWER:
        return f"{span}: slower, but perhaps by less than the margin of {shown}."
    return f"{span}, past the margin of {shown}."


def _agreed(
    raw: Sequence[CheckedTarget], rest: Sequence[CheckedTarget], shift: Shift
) -> list[CheckedTarget]:
    """Where the controls moved, only what is so with and without their shift."""
    size = format_percent(shift.ratio - 1.0, signed=True)
    why = f"The controls, which the change cannot touch, moved by {size} as well."
    return [
        a if a.status is b.status else replace(a, status=Status.CANNOT_TELL, reason=why)
        for a, b in zip(raw, rest, strict=True)
    ]


def _other(seen: Seen) -> CheckedTarget:
    """A target without a ratio, or one whose code did not change."""
    row = _figures(seen, seen.change)
    if seen.base.comparable and seen.new.comparable:
        if seen.same_code:
            return replace(row, status=Status.SAME_CODE, same_code=True)
        reason = seen.why or (seen.said.reason if seen.said else "")
        return replace(row, status=Status.CANNOT_TELL, reason=reason)
    if not seen.base.comparable or seen.same_code:
        both = "both revisions" if not seen.new.comparable else "the base"
        where = both if not seen.base.comparable else "the new revision, whose code is the same"
        ended = seen.new if seen.base.comparable else seen.base
        reason = f"It ended as {ended.words} in {where}. {seen.why}".rstrip()
        return replace(row, status=Status.NOT_COMPARED, reason=reason)
    if not seen.new.failed:
        said = f"It ended as {seen.new.words} in the new revision. {seen.why}".rstrip()
        return replace(row, status=Status.NOT_COMPARED, reason=said)
    wrong = seen.new is Outcome.WRONG_ANSWER
    return replace(row, status=Status.WRONG_ANSWER if wrong else Status.FAILS, reason=seen.why)


def _figures(seen: Seen, change: stats.Change | None) -> CheckedTarget:
    row = CheckedTarget(seen.target, Status.CANNOT_TELL, same_code=seen.same_code)
    if change is None or not (seen.base.comparable and seen.new.comparable):
        return row
    ratio, interval = _times(change)
    return replace(row, time_ratio=ratio, interval=interval)


def _times(change: stats.Change) -> tuple[float, tuple[float, float] | None]:
    """The time ratio, new / base, with its interval."""
    found = change.ratio()
    ends = found.interval
    if ends is None or not all(0.0 < end < math.inf for end in ends):
        return 1.0 / found.value, None
    return 1.0 / found.value, (1.0 / ends[1], 1.0 / ends[0])
