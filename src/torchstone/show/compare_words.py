"""A comparison of two runs in words and counts: what terminal and Markdown both say of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchstone.records import (
    CaseChange,
    CaseFigures,
    GroupChange,
    Mean,
    Ratio,
    RunComparison,
    RunHead,
    Verdict,
)
from torchstone.show.heading import processor_name
from torchstone.show.listing import when
from torchstone.show.rows import VERDICT_ROLES
from torchstone.show.run_words import (
    LOST,
    Labels,
    check_mark,
    count,
    failure_text,
    ratio_word,
    speedup_words,
)
from torchstone.show.units import COARSE, FINE, fewer_decimals, format_percent

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


def failure_words(case: CaseFigures | None) -> str:
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
    """`0.71 % to 4.4 %`: the smallest changes that are believed; empty where none is judged."""
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
        "costs are seen once a run and judged by their spread over the group, and the "
        f"machine's drift: {mark} marks a mean beyond {means}; a case beyond {cases}"
    )


def _span(values: Sequence[float]) -> str:
    ends = (format_percent(end) for end in (min(values), max(values)))
    return " to ".join(dict.fromkeys(ends))
