"""One of two runs that are set against each other, wherever it came from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torchstone.records import CaseFigures, Method, Outcome, Run, RunHead, RunView, SuiteSummary
from torchstone.store.dates import seconds_of


@dataclass(frozen=True)
class Side:
    """A run with one entry for every planned case; those that never ran as `not_run`.

    `groups` are the figures of its suites over all these cases, where they are at hand.
    """

    head: RunHead
    cases: tuple[CaseFigures, ...]
    method: Method | None = None
    version: str = ""
    groups: tuple[SuiteSummary, ...] = ()


def side_of(view: RunView) -> Side:
    """A run that is at hand as a whole."""
    cases = view.complete
    return Side(head_of(view.run, cases), cases, view.run.method, view.run.version)


def head_of(run: Run, cases: tuple[CaseFigures, ...]) -> RunHead:
    """A run without its plan. What is not complete counts as interrupted: no sign of life is
    looked for here."""
    ended = Counter(case.outcome for case in cases if case.outcome is not Outcome.NOT_RUN)
    return RunHead(
        id=run.id,
        created=run.created,
        created_s=seconds_of(run.created),
        label=run.label,
        commit=run.git.commit if run.git else "",
        branch=run.git.branch if run.git else "",
        dirty=run.git.dirty if run.git else False,
        machine_id=run.machine_id,
        machine=run.machine,
        torch=run.torch,
        origin=run.origin,
        tier=run.tier,
        suites=tuple(dict.fromkeys(one.key.suite for one in run.plan)),
        planned=len(run.plan),
        outcomes={outcome.value: number for outcome, number in ended.items()},
        state="complete" if sum(ended.values()) >= len(run.plan) else "interrupted",
    )
