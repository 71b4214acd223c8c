"""Is anything bad? The first lines of the overview: what changed, and what is bad as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchstone.records import (
    CaseChange,
    CaseMetrics,
    ChangeKind,
    Outcome,
    RunComparison,
    SuiteSummary,
    Verdict,
)
from torchstone.records.format import count
from torchstone.show.cells import commit_of, suite_title, when
from torchstone.show.page import Cell, Headline, Link, Notice, Section
from torchstone.show.table import sanitise
from torchstone.web.context import Context
from torchstone.web.query import ALL
from torchstone.web.sources import DataAccess
from torchstone.web.views.parts import FAILED, cost_mark, hungry

NEWLY_FAILING, GOT_SLOWER, GOT_HUNGRIER, GOT_FASTER, UNCHANGED, UNDECIDED, NEWLY_PASSING = (
    "newly-failing",
    "got-slower",
    "got-hungrier",
    "got-faster",
    "unchanged",
    "undecided",
    "newly-passing",
)
FAILING, SLOWER, FASTER, MORE_MEMORY, CANNOT_TELL = (
    "failing",
    "slower",
    "faster",
    "more-memory",
    "cannot-tell",
)
NOT_RUN = Outcome.NOT_RUN.value
CHANGES = {
    NEWLY_FAILING: ("newly failing", "fail"),
    GOT_SLOWER: ("slower", "worse"),
    GOT_HUNGRIER: ("need more memory", "worse"),
    GOT_FASTER: ("faster", "better"),
    UNCHANGED: ("same or not slower", "quiet"),
    UNDECIDED: ("cannot tell", "quiet"),
    NEWLY_PASSING: ("newly passing", "better"),
}
"""How cases moved against the base: what it is called, and its mark."""
LEVELS = {
    FAILING: ("failing", "fail"),
    NOT_RUN: ("did not run", "fail"),
    SLOWER: ("slower than eager", "worse"),
    MORE_MEMORY: ("need more memory than eager", "worse"),
    FASTER: ("faster than eager", "better"),
    CANNOT_TELL: ("cannot tell", "quiet"),
}
"""What cases are like in the run by itself."""
BAD = ("fail", "worse")
"""Marks of counts that name the suites they are in."""
MOST_SUITES = 3
_Counts = dict[str, Counter[str]]
"""Of every kind: how many in each suite."""
BY_VERDICT = {
    Verdict.SLOWER: SLOWER,
    Verdict.FASTER: FASTER,
    Verdict.CANNOT_TELL: CANNOT_TELL,
}
SHOWN = {
    **{name: words for name, (words, _) in LEVELS.items()},
    **{name: f"since the base: {words}" for name, (words, _) in CHANGES.items()},
}
"""The choices of a table of cases, beside the outcomes themselves."""


def moves(change: CaseChange) -> frozenset[str]:
    """Which of `CHANGES` hold for a case: how its time moved, and its memory beside that."""
    found = {_moved(change)} - {""}
    return frozenset(found | ({GOT_HUNGRIER} if cost_mark("memory", change) == "worse" else set()))


def _moved(change: CaseChange) -> str:
    """How its time moved; empty where only one run has it."""
    if change.kind is ChangeKind.NEWLY_FAILING:
        return NEWLY_FAILING
    if change.kind is ChangeKind.NEWLY_PASSING:
        return NEWLY_PASSING
    if change.verdict is None:
        return ""
    if change.verdict is Verdict.SLOWER:
        return GOT_SLOWER
    if change.verdict is Verdict.FASTER:
        return GOT_FASTER
    # Not faster excludes a gain, not a loss: it is no comfort, and no alarm either.
    return UNCHANGED if change.verdict in (Verdict.SAME, Verdict.NOT_SLOWER) else UNDECIDED


def levels(case: CaseMetrics, verdict: Verdict | None) -> frozenset[str]:
    """Which of `LEVELS` hold for a case, given its verdict among the others of its run."""
    if case.outcome.failed:
        return frozenset({FAILING})
    if case.outcome is not Outcome.OK:
        return frozenset()
    found = {BY_VERDICT[verdict]} if verdict in BY_VERDICT else set()
    return frozenset(found | ({MORE_MEMORY} if hungry(case.memory_ratio) else set()))


def headline(
    context: Context, found: RunComparison | None, cases: Sequence[CaseMetrics]
) -> tuple[Section, ...]:
    """Two lines, each figure a link to its cases. All suites, modes and precisions are in them."""
    return (*since_base(context, found), _by_itself(context, cases))


def since_base(context: Context, found: RunComparison | None) -> tuple[Section, ...]:
    """What changed, in one line."""
    if found is None or found.refused:
        if context.base is not None:
            return ()  # the remarks say why
        return (Notice("There is no earlier run to compare with: changes are not known."),)
    counts: _Counts = {}
    for case in found.cases:
        for kind in moves(case):
            counts.setdefault(kind, Counter())[suite_title(case.key.suite, case.key.scale)] += 1
    base = found.base
    commit = " ".join(part for part in (sanitise(base.branch), commit_of(base)) if part)
    title = f"Since {commit or 'the run'} of {when(base.created)[:10]}"
    runs = (("base", base.id), ("new", found.new.id))
    return (_line("changes", title, counts, CHANGES, context, runs),)


def _by_itself(context: Context, cases: Sequence[CaseMetrics]) -> Headline:
    """The suites' own sums, which are stored; only memory is looked at case by case."""
    counts: _Counts = {}
    passed = counted = 0
    for group in context.groups:
        suite, passes = suite_title(group.suite, group.scale), group.passes
        passed, counted = passed + passes.passed, counted + passes.counted
        told = {kind: group.verdicts.get(verdict.value, 0) for verdict, kind in BY_VERDICT.items()}
        told[FAILING] = sum(passes.outcomes.get(name, 0) for name in FAILED)
        told[NOT_RUN] = passes.outcomes.get(NOT_RUN, 0)
        for kind, n in told.items():
            counts.setdefault(kind, Counter())[suite] += n
    for case in cases:
        if case.outcome is Outcome.OK and hungry(case.memory_ratio):
            suite = suite_title(case.key.suite, case.key.scale)
            counts.setdefault(MORE_MEMORY, Counter())[suite] += 1
    runs = (("new", context.new.id),) if context.new else ()
    title = f"This run, {passed:,} of {counted:,} passed"
    return _line("levels", title, counts, LEVELS, context, runs)


def _line(
    name: str,
    title: str,
    counts: _Counts,
    kinds: dict[str, tuple[str, str]],
    context: Context,
    runs: tuple[tuple[str, str], ...],
) -> Headline:
    """A count a kind, in the order of how bad it is; zeros are paler and lead nowhere."""
    kept = tuple(item for item in context.carried if item[0] not in ("base", "new"))
    items = []
    for kind, (words, mark) in kinds.items():
        by_suite = counts.get(kind, Counter())
        n = by_suite.total()
        if kind == NOT_RUN and not n:  # as it should be
            continue
        to = Link("suite", "", (("suite", ALL), ("outcome", kind), *kept, *runs))
        none = "pass" if mark in BAD else "quiet"
        cell = Cell(n, f"{n:,}", to if n else None, mark if n else none)
        items.append((words, cell._replace(detail=_suites(by_suite)) if mark in BAD else cell))
    return Headline(f"headline-{name}", title, tuple(items))


def elsewhere(source: DataAccess) -> tuple[Section, ...]:
    """What other pages know: regressions where somebody has looked for them, trainings that are
    monitored now, tunings, scalings. Nothing where there is nothing."""
    items = []
    known = source.changes(look=False)
    if known is not None:
        bad = sum(len(known[0].of_state(state)) for state in ("open", "confirmed"))
        to, mark = Link("regressions"), "worse" if bad else "pass"
        items.append(("open regressions", Cell(bad, f"{bad:,}", to, mark)))
    live = source.monitored()
    if live:
        items.append(("monitored now", Cell(live, f"{live:,}", Link("monitors"), "running")))
    for one in source.store.list_tunings(1):
        gained = f"{one.speedup:.3g}×" if one.speedup else sanitise(one.state)
        to = Link("tuning", one.id)
        items.append((f"in the newest tuning, {_short(one.target)}", Cell(one.speedup, gained, to)))
    for scaled in source.store.list_scalings(1):
        ended = f"{scaled.failed} of {count(scaled.arms, 'arm')} failed"
        words = ended if scaled.failed else count(scaled.arms, "arm")
        mark = "fail" if scaled.failed else ""
        cell = Cell(scaled.failed, words, Link("scaling", scaled.id), mark)
        items.append((f"in the newest scaling, {_short(scaled.target)}", cell))
    return (Headline("headline-elsewhere", "Elsewhere", tuple(items)),) if items else ()


def _short(target: str) -> str:
    """Without the folders that it lies in."""
    return sanitise(target.rpartition("/")[2])


def _suites(counts: Counter[str]) -> str:
    """`timm@small 2, torchbench@small 1`: where it is bad."""
    known = Counter({suite: n for suite, n in counts.items() if n})
    named = [f"{suite} {n:,}" for suite, n in known.most_common(MOST_SUITES)]
    more = len(known) - MOST_SUITES
    return ", ".join([*named, *([f"{more} more"] if more > 0 else [])])


def summary_words(one: SuiteSummary, to: Link | None = None) -> Cell:
    """`3 faster, 1 slower`: the verdicts of a suite's cases, the bad ones first."""
    order = (Verdict.SLOWER, Verdict.FASTER, Verdict.CANNOT_TELL)
    known = one.verdicts or {}
    said = [f"{known[v.value]} {v.value}" for v in order if known.get(v.value)]
    rest = sum(n for name, n in known.items() if n and name not in {v.value for v in order})
    said += [f"{rest} same or near"] if rest else []
    first, rest_of = (said[0], ", ".join(said[1:])) if said else ("", "")
    mark = "worse" if known.get(Verdict.SLOWER.value) else ""
    return Cell(", ".join(said), first, to, mark, rest_of)
