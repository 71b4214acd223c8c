"""On what terms two runs are compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from torchstone.records import (
    CaseMetrics,
    Method,
    Outcome,
    Run,
    RunHead,
    RunView,
    Selection,
    SuiteSummary,
    UsageError,
)
from torchstone.stats import Rules
from torchstone.store.limits import seconds_of

MACHINES, TORCH, THREADS, DEVICES, METHODS = "machines", "torch", "threads", "devices", "methods"
ACROSS = {
    MACHINES: "another machine",
    TORCH: "another build of torch",
    THREADS: "another number of threads: cases are paired without it",
    DEVICES: "another device: cases are paired without it",
    METHODS: "another way of measuring",
}
"""What may differ between two runs when it is asked for, and nothing else."""
ALWAYS = frozenset({TORCH})
"""What may differ unasked, and is marked: a nightly of another torch is compared to see its doing
(docs/decisions.md)."""


@dataclass(frozen=True)
class Terms:
    """What is compared, what may differ, and what verdicts are given by.

    `selection` keeps some cases of both runs (only what belongs to a case is looked at); it
    changes no verdict, because those are given over the whole runs. `variants` names the base
    run's variant and the new run's; its cases are paired as if they were one. `only_common` leaves
    out what one of the runs did not plan.
    """

    selection: Selection = field(default_factory=Selection)
    variants: tuple[str, str] | None = None
    across: frozenset[str] = frozenset()
    only_common: bool = False
    rules: Rules = field(default_factory=Rules)

    @property
    def whole(self) -> Terms:
        """The same with every case selected: what verdicts are given over."""
        return self if self.selection == Selection() else replace(self, selection=Selection())

    @property
    def everything(self) -> bool:
        """Whether every case of each run is looked at, under its own key."""
        whole = self.selection == Selection() and self.variants is None and not self.only_common
        return whole and not self.across & {THREADS, DEVICES}

    def __post_init__(self) -> None:
        if self.variants and self.variants[0] == self.variants[1]:
            # That selects, and pairs nothing.
            one = replace(self.selection, variant=self.variants[0])
            object.__setattr__(self, "selection", one)
            object.__setattr__(self, "variants", None)
        unknown = sorted(self.across - set(ACROSS))
        if unknown:
            raise UsageError(
                f"{unknown[0]!r} is nothing that two runs may be compared across.",
                f"There are: {', '.join(ACROSS)}.",
            )


# One of two runs that are set against each other, wherever it came from.


@dataclass(frozen=True)
class Side:
    """A run with one entry for every planned case; those that never ran as `not_run`.

    `groups` are the figures of its suites over all these cases, where they are available.
    """

    head: RunHead
    cases: tuple[CaseMetrics, ...]
    method: Method | None = None
    version: str = ""
    groups: tuple[SuiteSummary, ...] = ()


def side_of(view: RunView) -> Side:
    """A run that is available as a whole."""
    cases = view.complete
    return Side(head_of(view.run, cases), cases, view.run.method, view.run.version)


def head_of(run: Run, cases: tuple[CaseMetrics, ...]) -> RunHead:
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
