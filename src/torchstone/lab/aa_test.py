"""Now and then a duplicate of the baseline runs along: what identical arms differ by, here, today.

No verdict of `faster` or `slower` is given for less than that (see `stats.compare`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchstone import stats
from torchstone.conductor import CaseResult
from torchstone.conductor.case import FAST, RIGOROUS, USUAL
from torchstone.lab.recording import Recorder
from torchstone.records import ArmSpec, Conditions, Estimate, Measurement, Outcome
from torchstone.track.compare import DEFAULT_AA_FLOOR, step_class
from torchstone.validate.base import seconds_per_call

EVERY = 20
"""One comparison in this many carries a duplicate: two arms then take half as long again."""
DUPLICATE = "baseline, a second time"
USELESS = 0.20
"""Ours: who cannot see a fifth cannot answer what people ask of a benchmark."""
STRICT_ALPHA = 0.01
"""Ours: "not fit" is a hard word, so one quiet machine in a hundred may hear it by chance."""
MARGIN = 0.02
"""The default one: what two identical arms differ by does not depend on what was asked."""


def is_due(recorder: Recorder | None, arms: Sequence[ArmSpec], effort: str = USUAL) -> bool:
    """Whether this case should carry a duplicate of its baseline: a rigorous one always, one that
    is to be fast never."""
    if recorder is None or not recorder.saves or len(arms) < 2 or effort == FAST:
        return False
    if effort == RIGOROUS:
        return True
    stored = recorder.read(lambda store: store.count()) or 0
    return stored % EVERY == EVERY - 1


def with_duplicate(arms: Sequence[ArmSpec]) -> tuple[ArmSpec, ...]:
    """The arms and one more, the baseline under another name."""
    return (*arms, replace(arms[0], name=DUPLICATE))


def observe(recorder: Recorder, case: CaseResult) -> CaseResult:
    """Remember what the duplicate differed by, and take it out of the case."""
    base, duplicate = case.arms[0], case.arms[-1]
    if base.outcome is duplicate.outcome is Outcome.OK and base.environment is not None:
        found = stats.ratio(base, duplicate, stats.estimator_of(base))
        if found.replicates > 1 and is_telling(base, duplicate):
            remember(recorder, base, found)
    return replace(case, arms=case.arms[:-1])


def remember(recorder: Recorder, base: Measurement, found: Estimate) -> None:
    """Keep what two identical arms differed by, if the database lets us."""
    if base.environment is not None:
        size = abs(found.time_ratio - 1)
        with recorder.collect_errors("What identical arms differ by was not kept"):
            recorder.remember_aa_floor(base.environment.machine_id, conditions(base), size, found)


def is_telling(base: Measurement, twin: Measurement) -> bool:
    """Whether what two identical arms differ by says something of the machine.

    Not where nothing could be seen at all: such a case says how loaded the machine was then, and
    would hold back verdicts on quiet days.
    """
    evaluated = stats.compare(base, twin, margin=MARGIN, alpha=0.05, aa_floor=DEFAULT_AA_FLOOR)
    least = evaluated.smallest_detectable
    return differ(base, twin) or (least is not None and least <= USELESS)


def differ(base: Measurement, twin: Measurement, margin: float = MARGIN) -> bool:
    """Whether two identical arms would be called different."""
    evaluated = stats.compare(
        base, twin, margin=margin, alpha=STRICT_ALPHA, aa_floor=DEFAULT_AA_FLOOR
    )
    return evaluated.verdict.different


def aa_floor(recorder: Recorder | None, arm: Measurement) -> float:
    """What identical arms have been seen to differ by, on this machine at this size of step."""
    known = None
    if recorder is not None and arm.environment is not None:
        with recorder.collect_errors("What identical arms differ by could not be looked up"):
            known = recorder.aa_floor(arm.environment.machine_id, conditions(arm))
    return max(DEFAULT_AA_FLOOR, known or 0.0)


def conditions(arm: Measurement) -> Conditions:
    """Thread count, allocator and order of magnitude of a step: noise depends on all three.

    The step's time is that of the samples, as for the floors of a run's cases (`track.floors`):
    statements have no compile cost to read it from.
    """
    threads = arm.environment.threads.get("torch", 1) if arm.environment else 1
    seconds = seconds_per_call(arm, stats.estimator_of(arm)) or 0.0
    return Conditions(threads, arm.arm.allocator, step_class(seconds * 1e9))
