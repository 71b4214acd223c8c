"""The terminal report of two runs set against each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchstone.records import (
    CaseChange,
    CaseMetrics,
    GroupChange,
    Mean,
    Ratio,
    RunComparison,
    RunHead,
    Verdict,
)
from torchstone.records.format import COARSE, FINE, count, fewer_decimals, format_percent
from torchstone.show.evidence import compare_advice, hang
from torchstone.show.listing import when
from torchstone.show.rows import VERDICT_ROLES, flow, processor_name
from torchstone.show.run_report import command_lines
from torchstone.show.run_table import (
    LOST,
    Labels,
    case_speedup,
    check_mark,
    failure_text,
    ratio_word,
    speedup_words,
)
from torchstone.show.table import Cell, Column, Style, cells, pack, pad, shorten, wrap
from torchstone.show.terminal import LEAST_WIDTH

MOST_NAMES = 12
"""Cases named that one of the runs alone has; the rest is counted."""


def compare_report(
    comparison: RunComparison,
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    everything: bool = False,
) -> str:
    """Heading, marks, groups, the cases that changed, what newly fails and passes.

    `everything` shows every paired case. No line is wider than `width` (or 40).
    """
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    sections = [
        _heading(comparison, width, style),
        _groups(comparison, width, style),
        _cases(comparison, width, style, everything),
        _failing(comparison, width, style),
        _other(comparison, NEWLY_PASSING, width, style),
        _other(comparison, FAILING, width, style),
        _other(comparison, ONLY_BASE, width, style),
        _other(comparison, ONLY_NEW, width, style),
        _closing(comparison, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(comparison: RunComparison, width: int, style: Style) -> list[str]:
    base, new = comparison.base, comparison.new
    lines = []
    for name, head, other in (("base", base, new), ("new ", new, base)):
        first, *rest = flow([f"{name}  {title(head)}", *circumstances(head, other)], width, style)
        lines += [style.paint(first, "title"), *rest]
    lines += [style.paint(line, "dim") for line in flow(shared(comparison), width, style)]
    for mark in comparison.marks:
        lines += [style.paint(line, "warn") for line in hang("! ", style.safe(mark), width, style)]
    lines += flow([coverage(comparison)], width, style)
    return lines + flow(tally(comparison), width, style)


def _groups(comparison: RunComparison, width: int, style: Style) -> list[str]:
    groups = comparison.groups
    if not groups:
        return []
    labels, ascii_only, arrow = labels_of(comparison), style.ascii_only, style.glyphs.arrow
    names = Column("", tuple(Cell(style.safe(labels.group(g.key)), "title") for g in groups))
    means = [(g.base_common, g.new_common) for g in groups]
    level = min((g.speedup.level for g in groups if g.speedup), default=0.95)
    first = [
        _texts("in both", [coverage_words(g) for g in groups]),
        _texts("base", [mean_word(b, ascii_only=ascii_only) for b, _ in means], right=True),
        _texts("new", [mean_word(n, ascii_only=ascii_only) for _, n in means], right=True),
        Column(
            f"new / base ({format_percent(level)})",
            _aligned([ratio_words(g.speedup, ascii_only=ascii_only) for g in groups]),
        ),
        Column("verdict", tuple(_group_verdict(g) for g in groups)),
    ]
    costs = [
        _cost("compile", groups, "compile_cold", style),
        _cost("memory", groups, "memory", style),
        Column("passed", tuple(Cell(passed_words(g, arrow), _passed(g)) for g in groups)),
        _texts("over all", [over_all(g, arrow, ascii_only=ascii_only) for g in groups]),
    ]
    lines = _joined(pack(names, [first, costs], width, style))
    legend = (
        "speed-ups: geometric means over the cases that pass in both runs; over all: of each run "
        "over all its passing cases; compile and memory: new / base, above 1 is worse"
    )
    return lines + _dim(legend, width, style)


def _group_verdict(group: GroupChange) -> Cell:
    if group.verdict is None:
        return Cell("no verdict" if group.paired else "", "doubt")
    return Cell(group.verdict.value, VERDICT_ROLES[group.verdict])


def _passed(group: GroupChange) -> str:
    if group.base is None or group.new is None:
        return ""
    worse = group.counts.get(NEWLY_FAILING, 0)
    return "fail" if worse else "good" if group.new.passes.passed == counted(group, "new") else ""


def _cost(title: str, groups: Sequence[GroupChange], name: str, style: Style) -> Column:
    found = []
    for group in groups:
        mean, beyond = getattr(group, name), name in group.costs_changed
        text = cost_words(mean.value, beyond, ascii_only=style.ascii_only)
        found.append(Cell(f"{text} of {mean.n}" if text else "", "warn" if beyond else ""))
    return Column(title, tuple(found))


def _cases(comparison: RunComparison, width: int, style: Style, everything: bool) -> list[str]:
    found = changed(comparison, everything=everything)
    paired = len(of_kind(comparison, PAIRED))
    if not paired:
        return []
    if not found:
        return [
            f"none of the {paired} paired cases changed"
            if paired > 1
            else "the case did not change"
        ]
    said = (
        f"all {count(paired, 'paired case')}"
        if everything
        else f"{len(found)} of {paired} paired cases changed"
    )
    called = Names.of(comparison)
    names = Column("", tuple(Cell(f"  {style.safe(called.case(c))}") for c in found))
    lines = [style.paint(said, "title")]
    lines += _joined(pack(names, _case_columns(found, style), width, style))
    if any(case.alone is not case.verdict for case in found):
        note = f"{LOST} {LOST_NOTE}"
        lines += _dim(note, width, style)
    legend = (
        "moved: the side whose time left the machine's drift; eager, compiled: its time, new / base"
    )
    return lines + _dim(legend, width, style)


def _case_columns(cases: Sequence[CaseChange], style: Style) -> list[list[Column]]:
    ascii_only, arrow = style.ascii_only, style.glyphs.arrow
    level = min((c.speedup.level for c in cases if c.speedup), default=0.95)
    pairs = [
        [case_speedup(f, ascii_only=ascii_only)[0] if f else "" for f in (c.base, c.new)]
        for c in cases
    ]
    first = [
        _texts(
            "speed-up",
            [f" {arrow} ".join(part or "-" for part in pair) for pair in pairs],
            right=True,
        ),
        Column(
            f"new / base ({format_percent(level)})",
            _aligned([ratio_words(c.speedup, ascii_only=ascii_only) for c in cases]),
        ),
        Column("verdict", tuple(Cell(*verdict_words(c, style.glyphs.cross)) for c in cases)),
        _texts("moved", [c.moved for c in cases]),
    ]
    sides = [
        _ratios("eager", cases, "baseline_time", style),
        _ratios("compiled", cases, "arm_time", style),
        _ratios("compile", cases, "compile_cold", style),
        _ratios("memory", cases, "memory", style),
    ]
    return [first, sides]


def _ratios(title: str, cases: Sequence[CaseChange], name: str, style: Style) -> Column:
    found = []
    for case in cases:
        beyond = name in case.costs_changed
        text = cost_words(getattr(case, name), beyond, ascii_only=style.ascii_only)
        found.append(Cell(text, "warn" if beyond else ""))
    return Column(title, tuple(found))


def _failing(comparison: RunComparison, width: int, style: Style) -> list[str]:
    """What newly fails, each with its reason and the command that repeats it."""
    found = of_kind(comparison, NEWLY_FAILING)
    if not found:
        return []
    names, glyphs = Names.of(comparison), style.glyphs
    lines = [style.paint(f"{len(found)} newly failing", "title")]
    for case in found:
        name = shorten(style.safe(names.case(case)), width - 4, glyphs.ellipsis)
        lines.append(f"  {style.paint(glyphs.cross, 'fail')} {style.paint(name, 'title')}")
        lines += hang("    ", style.safe(failure_words(case.new)), width, style)
        if case.new is not None and case.new.command:
            rows = command_lines(case.new.command, width, style)
            lines += [style.paint(row, "dim") for row in rows]
    return lines


def _other(comparison: RunComparison, kind: str, width: int, style: Style) -> list[str]:
    found = of_kind(comparison, kind)
    if not found:
        return []
    title = f"{len(found)} {kind}{' in both' if kind == FAILING else ''}"
    named = absent_words(found, Names.of(comparison), MOST_NAMES)
    return [style.paint(title, "title"), *hang("  ", style.safe(named), width, style)]


def _closing(comparison: RunComparison, width: int, style: Style) -> list[str]:
    if not comparison.groups:
        return []
    said = (
        compare_advice(comparison),
        threshold_words(comparison),
        drift_words(comparison),
        cost_threshold_words(comparison.groups),
    )
    return [line for text in said if text for line in _dim(text, width, style, indent="")]


def _dim(text: str, width: int, style: Style, indent: str = "  ") -> list[str]:
    rows = wrap(style.safe(text), width - len(indent), ellipsis=style.glyphs.ellipsis)
    return [style.paint(f"{indent}{row}", "dim") for row in rows]


def _texts(title: str, texts: Sequence[str], *, right: bool = False) -> Column:
    return Column(title, tuple(Cell(text) for text in texts), right)


def _aligned(rows: Sequence[tuple[str, str]]) -> tuple[Cell, ...]:
    """A value on the right of its place and its interval on the left of the next."""
    width = max((cells(value) for value, _ in rows), default=0)
    return tuple(
        Cell(f"{pad(value, width, right=True)} {ends}".rstrip() if value else "")
        for value, ends in rows
    )


def _joined(tables: Sequence[Sequence[str]]) -> list[str]:
    lines: list[str] = []
    for index, table in enumerate(tables):
        lines += ["", *table] if index else table
    return lines


# A comparison of two runs in words and counts: what terminal and Markdown both say of it.


PAIRED, NEWLY_FAILING, NEWLY_PASSING, FAILING = (
    "paired",
    "newly failing",
    "newly passing",
    "failing",
)
ONLY_BASE, ONLY_NEW = "only in base", "only in new"
COSTS = {"compile_cold": "compile", "compile_warm": "warm compile", "memory": "memory"}
LOST_NOTE = "changed by itself, but among all cases of its suite such a change is likely by chance"
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
    paired = [case for case in comparison.cases if case.kind == PAIRED]
    told = Counter(case.verdict for case in paired)
    words = [f"{told[v]} {v.value}" for v in VERDICT_ORDER if v is not None and told[v]]
    words += [f"{told[None]} without a verdict"] if told[None] else []
    kinds = Counter(case.kind for case in comparison.cases if case.kind != PAIRED)
    return [*words, *(f"{number} {kind}" for kind, number in kinds.items())]


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
    """`38 of 40 / 41`: cases that pass in both, of those of base and of new."""
    return f"{group.paired} of {counted(group, 'base')} / {counted(group, 'new')}"


def passed_words(group: GroupChange, arrow: str) -> str:
    """`40 → 39`: how many pass in each run."""
    passed = [s.passes.passed if s else None for s in (group.base, group.new)]
    shown = ["-" if number is None else str(number) for number in passed]
    return shown[0] if shown[0] == shown[1] else f" {arrow} ".join(shown)


def over_all(group: GroupChange, arrow: str, *, ascii_only: bool = False) -> str:
    """The mean speed-up of each run over all its passing cases, with how many those are."""
    means = [s.speedup if s else None for s in (group.base, group.new)]
    shown = ["-" if m is None else mean_word(m, ascii_only=ascii_only) or "-" for m in means]
    counts = " / ".join(str(m.n) if m else "0" for m in means)
    return f"{f' {arrow} '.join(shown)} of {counts}"


def mean_word(mean: Mean, *, ascii_only: bool = False) -> str:
    """`1.32×`."""
    return speedup_words(mean.value, None, ascii_only=ascii_only)[0]


def ratio_words(ratio: Ratio | None, *, ascii_only: bool = False) -> tuple[str, str]:
    """`0.947×` and `0.931–0.963`: one digit more than a speed-up, because changes are small."""
    if ratio is None:
        return "", ""
    decimals = FINE if fewer_decimals(ratio.value, FINE) == FINE else COARSE
    return speedup_words(ratio.value, ratio.interval, decimals, ascii_only=ascii_only)


def verdict_words(change: CaseChange, cross: str = "✗") -> tuple[str, str]:
    """The verdict and its role; a star where the case by itself would have another, and a sign
    where a check doubts one of the two numbers."""
    if change.verdict is None:
        return "no verdict", "doubt"
    lost = LOST if change.alone is not None and change.alone is not change.verdict else ""
    known = [one for one in (change.base, change.new) if one is not None]
    mark = max((check_mark(one, cross) for one in known), key=len, default="")
    words = (change.verdict.value, lost, mark)
    return " ".join(word for word in words if word), VERDICT_ROLES[change.verdict]


def cost_words(
    value: float | None, changed: bool, sign: str = "!", *, ascii_only: bool = False
) -> str:
    """`1.08×`, with a sign where it lies beyond its threshold."""
    shown = ratio_word(value, ascii_only=ascii_only)
    return f"{shown} {sign}" if shown and changed else shown


def changed(comparison: RunComparison, *, everything: bool = False) -> list[CaseChange]:
    """Paired cases that changed, or all of them: by verdict, then the largest effect first."""
    paired = [case for case in comparison.cases if case.kind == PAIRED]
    kept = [c for c in paired if everything or _differs(c) or c.costs_changed]
    return sorted(kept, key=lambda case: (VERDICT_ORDER.index(case.verdict), -_effect(case)))


def _differs(case: CaseChange) -> bool:
    return case.verdict is not None and case.verdict.different


def _effect(case: CaseChange) -> float:
    value = case.speedup.value if case.speedup else 1.0
    return abs(math.log(value)) if 0.0 < value < math.inf else 0.0


def of_kind(comparison: RunComparison, kind: str) -> list[CaseChange]:
    """The cases of one kind, in their order."""
    return [case for case in comparison.cases if case.kind == kind]


def failure_words(case: CaseMetrics | None) -> str:
    """`crash (inductor): first call: the worker died`."""
    return "" if case is None else failure_text(case).rstrip(".")


def absent_words(cases: Sequence[CaseChange], names: Names, most: int) -> str:
    """Names of cases that one run alone has; the rest is counted."""
    named = ", ".join(names.case(case) for case in cases[:most])
    return named + (f" and {len(cases) - most} more" if len(cases) > most else "")


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
