"""Two runs compared, as a report: its words, its two tables, and what stands below them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchstone.records import (
    WIDEST,
    CaseChange,
    ChangeKind,
    GroupChange,
    Mean,
    Ratio,
    RunComparison,
    RunHead,
    Verdict,
)
from torchstone.records.format import COARSE, FINE, count, fewer_decimals, format_percent
from torchstone.show.blocks import (
    MOST_CHARACTERS,
    Block,
    Entry,
    Grid,
    Listed,
    Parts,
    Report,
    Sentence,
)
from torchstone.show.cells import ratio_cell, speedup_cell, speedup_words
from torchstone.show.evidence import compare_advice
from torchstone.show.listing import when
from torchstone.show.page import Cell, Field, field, make_table
from torchstone.show.rows import VERDICT_MARKS, processor_name
from torchstone.show.run import LOST, Labels, check_mark, failure_text

MOST_NAMES = 12
"""Cases named that one of the runs alone has; the rest is counted."""
COSTS = {"compile_cold": "compile", "compile_warm": "warm compile", "memory": "memory"}
LOST_NOTE = "changed by itself, but among all cases of its suite such a change is likely by chance"
MEANING = (
    "speed-ups: geometric means over the cases that pass in both runs; over all: of each run over "
    "all its passing cases; compile and memory: new / base, above 1 is worse"
)
TOO_WIDE = (
    f"; in no mean: cases whose interval reaches further than a factor of {WIDEST:g} either way in "
    "one of the runs"
)
MOVED = "moved: the side whose time left the machine's drift; eager, compiled: its time, new / base"
VERDICT_ORDER = (
    Verdict.SLOWER,
    Verdict.FASTER,
    Verdict.NOT_FASTER,
    Verdict.CANNOT_TELL,
    Verdict.NOT_SLOWER,
    Verdict.SAME,
    None,
)
"""Of cases in a comparison: differences first, then what may be slower, then what is not."""


def compare_report(comparison: RunComparison, *, everything: bool = False) -> Report:
    """Heading, marks, groups, the cases that changed, what newly fails and passes.

    `everything` shows every paired case, not those that changed alone.
    """
    base, new, counts = comparison.base, comparison.new, tally(comparison)
    return [
        [
            Parts([", ".join(counts) or "nothing to compare"], "title", where="markdown"),
            Parts([f"base  {title(base)}", *circumstances(base, new)], "title"),
            Parts([f"new   {title(new)}", *circumstances(new, base)], "title"),
            Parts(shared(comparison), "dim"),
            *(Sentence(mark, "warn", "! ") for mark in comparison.marks),
            Parts([coverage(comparison)]),
            Parts(counts, where="terminal"),
        ],
        _groups(comparison),
        [_newly_failing(comparison)],
        _cases(comparison, everything),
        *([_others(comparison, kind)] for kind in ChangeKind if kind not in _TOLD_ABOVE),
        _closing(comparison),
    ]


_TOLD_ABOVE = (ChangeKind.PAIRED, ChangeKind.NEWLY_FAILING)


def _groups(comparison: RunComparison) -> list[Block]:
    groups = comparison.groups
    if not groups:
        return []
    labels = labels_of(comparison)
    level = format_percent(min((g.speedup.level for g in groups if g.speedup), default=0.95))
    fields: tuple[Field[GroupChange], ...] = (
        field("name", "Suite", lambda g: Cell(None, labels.group(g.key), mark="title")),
        field("paired", "In both", lambda g: Cell(None, coverage_words(g))),
        field("base", "Base", lambda g: Cell(None, mean_word(g.base_common)), True),
        field("new", "New", lambda g: Cell(None, mean_word(g.new_common)), True),
        field("ratio", f"New / base ({level})", lambda g: change_cell(g.speedup), True),
        field("verdict", "Verdict", _group_verdict),
        field("compile_cold", "Compile", lambda g: _mean_cost(g, "compile_cold"), True, band=1),
        field("memory", "Memory", lambda g: _mean_cost(g, "memory"), True, band=1),
        field("passed", "Passed", _passed, band=1),
        field("over_all", "Over all", lambda g: Cell(None, over_all(g)), band=1),
    )
    wide = TOO_WIDE if any(map(some_too_wide, groups)) else ""
    return [Grid(make_table("groups", "", fields, groups)), Sentence(MEANING + wide)]


def some_too_wide(group: GroupChange) -> bool:
    """Whether paired cases with a change are in no mean."""
    return 0 < group.base_common.n < group.base_common.of


def _group_verdict(group: GroupChange) -> Cell:
    if group.verdict is None:
        return Cell(None, "no verdict" if group.paired else "", mark="doubt")
    return Cell(None, group.verdict.value, mark=VERDICT_MARKS[group.verdict])


def _passed(group: GroupChange) -> Cell:
    """`40 → 39`: how many pass in each run."""
    passed = [s.passes.passed if s else None for s in (group.base, group.new)]
    shown = ["-" if number is None else str(number) for number in passed]
    text = shown[0] if shown[0] == shown[1] else " → ".join(shown)
    worse = group.counts.get(ChangeKind.NEWLY_FAILING.value, 0)
    whole = group.base and group.new and group.new.passes.passed == counted(group, "new")
    return Cell(None, text, mark="fail" if worse else "pass" if whole else "")


def _mean_cost(group: GroupChange, name: str) -> Cell:
    mean: Mean = getattr(group, name)
    cell = cost_cell(mean.value, name in group.costs_changed)
    return cell._replace(over=f"of {mean.n}") if cell.text else cell


def cost_cell(value: float | None, changed: bool) -> Cell:
    """`1.08×`, with a sign where it lies beyond its threshold."""
    cell = ratio_cell(value)
    return cell._replace(text=f"{cell.text} !", mark="moved") if changed and cell.text else cell


def change_cell(ratio: Ratio | None) -> Cell:
    """`0.947× 0.931–0.963`: one digit more than a speed-up, because changes are small."""
    if ratio is None:
        return Cell()
    decimals = FINE if fewer_decimals(ratio.value, FINE) == FINE else COARSE
    value, ends = speedup_words(ratio.value, ratio.interval, decimals)
    return Cell(None, value, detail=ends)


def _cases(comparison: RunComparison, everything: bool) -> list[Block]:
    found = changed(comparison, everything=everything)
    paired = len(of_kind(comparison, ChangeKind.PAIRED))
    if not paired:
        return []
    if not found:
        none = f"none of the {paired} paired cases changed"
        return [Parts([none if paired > 1 else "the case did not change"])]
    said = f"{len(found)} of {paired} paired cases changed"
    said = f"all {count(paired, 'paired case')}" if everything else said
    table = make_table("cases", "", _case_fields(found, Names.of(comparison)), found)
    grid = Grid(table, said, fold=True, indent=True, whole="torchstone compare --csv")
    lost = any(case.alone is not case.verdict for case in found)
    return [grid, *([Sentence(f"{LOST} {LOST_NOTE}")] if lost else []), Sentence(MOVED)]


def _case_fields(cases: Sequence[CaseChange], names: Names) -> tuple[Field[CaseChange], ...]:
    level = format_percent(min((c.speedup.level for c in cases if c.speedup), default=0.95))
    return (
        field("name", "Case", lambda c: Cell(None, names.case(c))),
        field("speedup", "Speed-up", _speedups, True),
        field("ratio", f"New / base ({level})", lambda c: change_cell(c.speedup), True),
        field("verdict", "Verdict", _verdict),
        field("moved", "Moved", lambda c: Cell(None, c.moved)),
        field("eager", "Eager", lambda c: ratio_cell(c.baseline_time), True, band=1),
        field("compiled", "Compiled", lambda c: ratio_cell(c.arm_time), True, band=1),
        _cost_field("compile_cold"),
        _cost_field("memory"),
    )


def _cost_field(key: str) -> Field[CaseChange]:
    def cell(case: CaseChange) -> Cell:
        return cost_cell(getattr(case, key), key in case.costs_changed)

    return field(key, COSTS[key].capitalize(), cell, True, band=1)


def _speedups(case: CaseChange) -> Cell:
    """`1.32× → 1.25×`."""
    pair = [speedup_cell(one).text if one else "" for one in (case.base, case.new)]
    return Cell(None, " → ".join(part or "-" for part in pair))


def _verdict(change: CaseChange) -> Cell:
    """A star where the case by itself would have another, and a sign where a check doubts one of
    the two numbers."""
    if change.verdict is None:
        return Cell(None, "no verdict", mark="doubt")
    lost = LOST if change.alone is not None and change.alone is not change.verdict else ""
    known = [one for one in (change.base, change.new) if one is not None]
    mark = max((check_mark(one) for one in known), key=len, default="")
    text = " ".join(word for word in (change.verdict.value, lost, mark) if word)
    return Cell(None, text, mark=VERDICT_MARKS[change.verdict])


def _newly_failing(comparison: RunComparison) -> Listed:
    """Each with its reason and the command that repeats it: a green summary must not hide them."""
    names = Names.of(comparison)
    entries = [
        Entry(failure_text(one.new).rstrip("."), names.case(one), one.new.command, failed=True)
        for one in of_kind(comparison, ChangeKind.NEWLY_FAILING)
        if one.new is not None
    ]
    return Listed(f"{len(entries)} newly failing", entries, room=MOST_CHARACTERS // 3)


def _others(comparison: RunComparison, kind: ChangeKind) -> Block:
    """Names of the cases of one kind; the rest is counted."""
    found, names = of_kind(comparison, kind), Names.of(comparison)
    named = ", ".join(names.case(case) for case in found[:MOST_NAMES])
    named += f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    both = " in both" if kind is ChangeKind.FAILING else ""
    return Listed(f"{len(found)} {kind.value}{both}", [Entry(named)] if found else [])


def _closing(comparison: RunComparison) -> list[Block]:
    if not comparison.groups:
        return []
    said = (
        compare_advice(comparison),
        threshold_words(comparison),
        drift_words(comparison),
        cost_threshold_words(comparison.groups),
    )
    return [Sentence(text, "dim", "") for text in said if text]


# A comparison in words and counts.


def title(head: RunHead) -> str:
    """`1jz3k nightly`."""
    return " ".join(part for part in (head.id, head.label) if part) or "a run without a name"


def circumstances(head: RunHead, other: RunHead) -> list[str]:
    """When and of what; machine and torch only where the two runs differ in them."""
    commit = f"git {head.commit[:10]}{' (changed)' if head.dirty else ''}" if head.commit else ""
    parts = (
        when(head.created),
        " ".join(part for part in (commit, head.branch) if part),
        f"torch {head.torch}" if head.torch != other.torch else "",
        _machine(head) if head.machine_id != other.machine_id else "",
    )
    return [part for part in parts if part]


def shared(comparison: RunComparison) -> list[str]:
    """What both runs have in common: machine, torch, settings of all cases."""
    base, new = comparison.base, comparison.new
    labels = labels_of(comparison)
    parts = [
        _machine(new) if base.machine_id == new.machine_id else "",
        f"torch {new.torch}" if new.torch and base.torch == new.torch else "",
        *(labels.shared(comparison.cases[0].key) if comparison.cases else []),
    ]
    return [part for part in parts if part]


def _machine(head: RunHead) -> str:
    return processor_name(head.machine) or head.machine_id[:12]


def labels_of(comparison: RunComparison) -> Labels:
    """How the groups are called."""
    return Labels.of(group.key for group in comparison.groups)


@dataclass(frozen=True)
class Names:
    """How cases are called: what all of them share is left out."""

    labels: Labels
    suites: bool
    scales: bool
    variants: bool

    @classmethod
    def of(cls, comparison: RunComparison) -> Names:
        """What differs among the groups."""
        keys = [group.key for group in comparison.groups]
        suites, variants = {key.suite for key in keys}, {key.variant for key in keys}
        scales = {(key.suite, key.scale) for key in keys}
        several = len(suites) > 1, len(scales) > len(suites), len(variants) > 1
        return cls(labels_of(comparison), *several)

    def case(self, case: CaseChange) -> str:
        """`timm/resnet18@small training inductor`, or as little as `resnet18`."""
        key = case.key
        settings = self.labels.settings(key) if self.variants else self._settings(case)
        suite = f"{key.suite}/" if self.suites else ""
        scale = f"@{key.scale}" if self.scales and key.scale else ""
        return f"{suite}{key.model}{scale} {settings}".rstrip()

    def _settings(self, case: CaseChange) -> str:
        return " ".join(self.labels.settings(replace(case.key, variant="")).split())


def tally(comparison: RunComparison) -> list[str]:
    """`2 slower`, `36 same`, ...: the paired cases by verdict, then what passes in one run only."""
    paired = [case for case in comparison.cases if case.paired]
    told = Counter(case.verdict for case in paired)
    words = [f"{told[v]} {v.value}" for v in VERDICT_ORDER if v is not None and told[v]]
    words += [f"{told[None]} without a verdict"] if told[None] else []
    kinds = Counter(case.kind for case in comparison.cases if not case.paired)
    return [*words, *(f"{number} {kind.value}" for kind, number in kinds.items())]


def coverage(comparison: RunComparison) -> str:
    """`39 cases pass in both runs, of 40 of base and 41 of new`."""
    groups = comparison.groups
    paired = sum(group.paired for group in groups)
    base, new = (sum(counted(group, name) for group in groups) for name in ("base", "new"))
    verb = "passes" if paired == 1 else "pass"
    return f"{count(paired, 'case')} {verb} in both runs, of {base} of base and {new} of new"


def counted(group: GroupChange, side: str) -> int:
    """The cases of a run in this group: planned ones but those not supported."""
    summary = getattr(group, side)
    return summary.passes.counted if summary is not None else 0


def coverage_words(group: GroupChange) -> str:
    """`38 of 40 / 41`: cases that pass in both, of those of base and of new; `(36 in the means)`
    where some are known too badly for one."""
    said = f"{group.paired} of {counted(group, 'base')} / {counted(group, 'new')}"
    return f"{said} ({group.base_common.n} in the means)" if some_too_wide(group) else said


def over_all(group: GroupChange) -> str:
    """The mean speed-up of each run over all its passing cases, with how many those are."""
    means = [s.speedup if s else None for s in (group.base, group.new)]
    shown = ["-" if m is None else mean_word(m) or "-" for m in means]
    counts = " / ".join(str(m.n) if m else "0" for m in means)
    return f"{' → '.join(shown)} of {counts}"


def mean_word(mean: Mean) -> str:
    """`1.32×`."""
    return speedup_words(mean.value, None)[0]


def changed(comparison: RunComparison, *, everything: bool = False) -> list[CaseChange]:
    """Paired cases that changed, or all of them: by verdict, then the largest effect first."""
    paired = [case for case in comparison.cases if case.paired]
    kept = [c for c in paired if everything or _differs(c) or c.costs_changed]
    return sorted(kept, key=lambda case: (VERDICT_ORDER.index(case.verdict), -_effect(case)))


def _differs(case: CaseChange) -> bool:
    return case.verdict is not None and case.verdict.different


def _effect(case: CaseChange) -> float:
    value = case.speedup.value if case.speedup else 1.0
    return abs(math.log(value)) if 0.0 < value < math.inf else 0.0


def of_kind(comparison: RunComparison, kind: ChangeKind) -> list[CaseChange]:
    """The cases of one kind, in their order."""
    return [case for case in comparison.cases if case.kind is kind]


def drift_words(comparison: RunComparison) -> str:
    """What the machine did between the runs, by the baselines."""
    if comparison.drift is None or not math.isfinite(comparison.drift):
        return ""
    size = format_percent(abs(comparison.drift - 1.0))
    way = "longer" if comparison.drift >= 1.0 else "less"
    many = count(comparison.drift_of, "baseline")
    if comparison.drift_of > 1:
        many = f"spread {format_percent(comparison.drift_spread)}, {many}"
    return f"drift: the baselines of new took {size} {way} in the middle ({many})"


def threshold_words(comparison: RunComparison) -> str:
    """What verdicts were given by."""
    beyond = threshold_span(comparison.cases)
    if not beyond:
        return ""
    return (
        f"verdicts: faster or slower beyond {beyond} ({comparison.threshold_source}) and at a "
        f"false discovery rate of {format_percent(comparison.false_discovery_rate)} over all cases "
        "of a suite in both runs; else same: all of the interval lies within "
        f"{format_percent(comparison.margin)}; not slower, not faster: it excludes that side "
        "beyond it; cannot tell: neither"
    )


def threshold_span(cases: Iterable[CaseChange]) -> str:
    """`0.71 % to 4.4 %`: the smallest changes that are believed; empty where none is evaluated."""
    known = [case.threshold for case in cases if case.threshold is not None]
    return _span(known) if known else ""


def cost_threshold_words(groups: Iterable[GroupChange], mark: str = "!") -> str:
    """Beyond what a cost is called changed, where that is known."""
    found: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        for name, limits in group.cost_thresholds.items():
            found.setdefault(name, []).append(limits)
    if not found:
        return "costs: too few cases to say what a change of compile time or memory is"
    cases, means = (
        ", ".join(f"{COSTS[name]} {_span([one[i] for one in v])}" for name, v in found.items())
        for i in (0, 1)
    )
    return (
        "costs are seen once a run and evaluated by their spread over the group, and the "
        f"machine's drift: {mark} marks a mean beyond {means}; a case beyond {cases}"
    )


def _span(values: Sequence[float]) -> str:
    ends = (format_percent(end) for end in (min(values), max(values)))
    return " to ".join(dict.fromkeys(ends))
