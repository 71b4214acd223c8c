"""A run in words and counts: what terminal, Markdown and the live display all say of it."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, ne

from torchstone.records import (
    CaseFigures,
    CaseKey,
    Level,
    Mean,
    Outcome,
    PassRate,
    Run,
    RunView,
    SuiteSummary,
    Verdict,
)
from torchstone.show.commands import in_database
from torchstone.show.heading import allocator_title, processor_name, revision
from torchstone.show.listing import when
from torchstone.show.rows import VERDICT_ROLES
from torchstone.show.units import (
    COARSE,
    FINE,
    fewer_decimals,
    format_bytes,
    format_interval,
    format_ratio,
    format_seconds,
    ratio_decimals,
)

APART = (Outcome.OK, Outcome.NOT_SUPPORTED, Outcome.NOT_RUN)
"""Outcomes that are no failure of the case itself; the last one still counts against the rate."""
HERE = "here"
LOST = "*"
_SETTINGS = ("mode", "precision", "device", "threads", "allocator")
GroupKey = tuple[str, str, str, str, str, str, int, str]


def word(outcome: Outcome) -> str:
    """`wrong answer`."""
    return outcome.value.replace("_", " ")


def count(number: int, one: str, many: str = "") -> str:
    """`1 case`, `2 cases`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def group_of(key: CaseKey | SuiteSummary) -> GroupKey:
    """What cases of one row of the suites' table have in common."""
    named = (key.suite, key.scale, key.mode, key.precision, key.variant, key.device)
    return (*named, key.threads, key.allocator)


def suite_of(key: CaseKey | SuiteSummary) -> str:
    """`huggingface@small`."""
    return f"{key.suite}@{key.scale}" if key.scale else key.suite


def short_names(key: CaseKey) -> list[str]:
    """The case's name, each time a little shorter: what is not the model's name goes first."""
    precision = "" if key.precision == "fp32" else f"{key.precision} "
    settings = f"{key.mode} {precision}{key.variant}"
    scale = suite_of(key).removeprefix(key.suite)
    return [
        key.name,
        f"{key.suite}/{key.model}{scale} {settings}",
        f"{key.suite}/{key.model} {settings}",
        f"{key.model} {settings}",
        f"{key.model} {key.variant}",
        key.model,
    ]


@dataclass(frozen=True)
class Labels:
    """How groups are called: settings that all cases share are said once, in the heading."""

    varying: frozenset[str]

    @classmethod
    def of(cls, keys: Iterable[CaseKey | SuiteSummary]) -> Labels:
        """The settings in which these differ."""
        known = list(keys)
        return cls(frozenset(s for s in (*_SETTINGS, "scale") if _differs(known, s)))

    def group(self, key: CaseKey | SuiteSummary) -> str:
        """`huggingface@small training inductor`: suite, what varies, variant."""
        return f"{suite_of(key)} {self.settings(key)}"

    def settings(self, key: CaseKey | SuiteSummary) -> str:
        """`training inductor`: the label without the suite."""
        before, after = (
            [_setting(key, name) for name in half if name in self.varying]
            for half in (_SETTINGS[:2], _SETTINGS[2:])
        )
        return " ".join([*before, key.variant, *after])

    def within_suite(self, key: CaseKey | SuiteSummary) -> str:
        """`full training inductor`: the same with the scale, where nothing beside it says that."""
        scale = key.scale if "scale" in self.varying else ""
        return f"{scale} {self.settings(key)}".lstrip()

    def shared(self, key: CaseKey | SuiteSummary) -> list[str]:
        """The settings that are not in the labels."""
        return [text for s in _SETTINGS if s not in self.varying if (text := _setting(key, s))]


def _differs(keys: Sequence[CaseKey | SuiteSummary], name: str) -> bool:
    """Looks no further than the first two that differ: there may be thousands."""
    values = map(attrgetter(name), keys)
    first = next(values, None)
    return any(map(ne, values, repeat(first)))


def _setting(key: CaseKey | SuiteSummary, name: str) -> str:
    if name == "allocator":
        return allocator_title(key.allocator)
    if name != "threads":
        return str(getattr(key, name))
    return count(key.threads, "thread") if key.threads else ""


@dataclass(frozen=True)
class Tally:
    """How many cases ended in which way. The counts add up to `planned`."""

    planned: int
    outcomes: Mapping[Outcome, int]

    @classmethod
    def of(cls, view: RunView) -> Tally:
        """Every planned case, counted once."""
        found = Counter(case.outcome for case in view.complete)
        return cls(len(view.run.plan), {o: found[o] for o in Outcome if found[o]})

    @property
    def not_run(self) -> int:
        """Planned but not measured (yet)."""
        return self.outcomes.get(Outcome.NOT_RUN, 0)

    @property
    def parts(self) -> list[str]:
        """`44 of 48 cases done`, then each outcome with its count."""
        done = f"{self.planned - self.not_run} of {count(self.planned, 'case')} done"
        return [done, *(f"{number} {word(o)}" for o, number in self.outcomes.items())]


def title(run: Run) -> str:
    """`run 1jz3k nightly`."""
    return " ".join(part for part in ("run", run.id, run.label) if part)


def circumstances(run: Run) -> list[str]:
    """Machine, libraries, revision and origin."""
    parts = (
        processor_name(run.machine),
        f"torch {run.torch}" if run.torch else "",
        *(f"{name} {version}" for name, version in sorted(run.packages.items()) if version),
        revision(run.git),
        f"torchstone {run.version}" if run.version else "",
        "" if run.origin == HERE else f"from {run.origin}",
    )
    return [part for part in parts if part]


def subject(view: RunView) -> list[str]:
    """Title, date, tier and the settings that all cases share."""
    run, labels = view.run, labels_of(view)
    shared = labels.shared(run.plan[0].key) if run.plan else []
    parts = (title(run), when(run.created), f"{run.tier} tier" if run.tier else "", *shared)
    return [part for part in parts if part]


def labels_of(view: RunView) -> Labels:
    """The labels of a run's groups."""
    return Labels.of(case.key for case in view.run.plan)


def resume_command(view: RunView, db: str = "") -> str:
    """How to go on with a run that is not complete; empty where it is, or came from elsewhere."""
    run = view.run
    if run.origin != HERE or not Tally.of(view).not_run:
        return ""
    return in_database(f"torchstone run --resume {run.id}", db)


def grouped(cases: Iterable[CaseFigures]) -> dict[GroupKey, list[CaseFigures]]:
    """Cases by group, groups and cases in the order in which they come."""
    found: dict[GroupKey, list[CaseFigures]] = {}
    for case in cases:
        found.setdefault(group_of(case.key), []).append(case)
    return found


def failures(view: RunView) -> list[CaseFigures]:
    """Cases that ran and did not end well."""
    return [case for case in view.complete if case.outcome not in APART]


def by_reason(view: RunView, outcome: Outcome) -> list[tuple[str, list[CaseFigures]]]:
    """Cases of one outcome by their reason, the commonest first."""
    found: dict[str, list[CaseFigures]] = {}
    for case in view.complete:
        if case.outcome is outcome:
            found.setdefault(case.reason or "no reason given", []).append(case)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def model_names(cases: Sequence[CaseFigures], most: int) -> tuple[list[str], int]:
    """`suite/model` of the cases, each once; and how many more there are than `most`."""
    names = list(dict.fromkeys(f"{case.key.suite}/{case.key.model}" for case in cases))
    return names[:most], max(0, len(names) - most)


def only_variants(view: RunView, cases: Sequence[CaseFigures]) -> list[str]:
    """The variants of these cases, where they are not all variants of the run."""
    found = list(dict.fromkeys(case.key.variant for case in cases))
    return found if set(found) != {one.key.variant for one in view.run.plan} else []


def check_counts(view: RunView) -> dict[str, int]:
    """In how many cases each rule found something worse than a note, the commonest first."""
    counts = Counter(rule for case in view.complete for rule in case.checks)
    return dict(counts.most_common())


def failure_text(case: CaseFigures) -> str:
    """`crash (inductor): first call: the worker died`."""
    arm = case.failed_arm
    if arm and arm != case.key.variant:
        arm += ", the baseline"
    return word(case.outcome) + (f" ({arm})" if arm else "") + f": {case.reason}".rstrip(": ")


def command_text(case: CaseFigures) -> str:
    """The command as a shell takes it."""
    return shlex.join(case.command)


def check_mark(case: CaseFigures, cross: str = "✗") -> str:
    """A sign where a rule warns or fails."""
    return {Level.WARN: "!", Level.FAIL: cross}.get(case.worst_check, "")


def run_verdicts(view: RunView) -> dict[CaseKey, Verdict | None]:
    """The verdicts held against each other: many cases find differences that are not there."""
    from torchstone.stats import verdicts  # numpy comes with it: only when it is wanted

    cases = view.complete
    return {case.key: found for case, found in zip(cases, verdicts(cases), strict=True)}


def case_verdict(case: CaseFigures, corrected: Verdict | None, cross: str = "✗") -> tuple[str, str]:
    """The outcome where the case failed, else its verdict in this run; and its role.

    A star marks a verdict that the case has by itself and loses among the others; other signs,
    that a check warns or fails.
    """
    if case.outcome is not Outcome.OK:
        return word(case.outcome), "fail"
    mark = check_mark(case, cross)
    role = "fail" if case.worst_check is Level.FAIL else "doubt"
    if corrected is None:
        return ("ok", "good") if case.foreign else (f"no verdict {mark}".rstrip(), role)
    lost = "" if corrected is case.verdict else LOST
    role = role if case.worst_check is Level.FAIL else VERDICT_ROLES[corrected]
    return " ".join(part for part in (corrected.value, lost, mark) if part), role


def group_words(cases: Sequence[CaseFigures], verdicts: Mapping[CaseKey, Verdict | None]) -> str:
    """`3 faster, 1 same, 1 crash`: how the cases of a group ended."""
    passed = Counter(verdicts[case.key] for case in cases if case.outcome is Outcome.OK)
    ended = Counter(case.outcome for case in cases if case.outcome is not Outcome.OK)
    words = [f"{passed[verdict]} {verdict.value}" for verdict in Verdict if passed[verdict]]
    words += [f"{passed[None]} ok"] if passed[None] else []
    return ", ".join([*words, *(f"{n} {word(outcome)}" for outcome, n in ended.items())])


def lost_note(view: RunView, verdicts: Mapping[CaseKey, Verdict | None]) -> str:
    """What the star means, where there is one."""
    ok = [case for case in view.complete if case.outcome is Outcome.OK]
    if not any(case.verdict is not verdicts[case.key] for case in ok):
        return ""
    return (
        f"{LOST} different by itself, but {count(len(ok), 'case')} together make such a "
        "difference likely by chance"
    )


def speedup_words(
    value: float | None,
    interval: tuple[float, float] | None,
    decimals: int = COARSE,
    *,
    ascii_only: bool = False,
) -> tuple[str, str]:
    """`1.32×` and `1.29–1.35`; empty where there is none."""
    if value is None or not math.isfinite(value):
        return "", ""
    ends = interval if interval and all(0 < end < math.inf for end in interval) else None
    decimals = fewer_decimals(value, decimals)
    return (
        format_ratio(value, decimals, ascii_only=ascii_only),
        format_interval(ends, decimals, ascii_only=ascii_only),
    )


def case_speedup(case: CaseFigures, *, ascii_only: bool = False) -> tuple[str, str]:
    """The speed-up of a case that passed: a wrong answer has no speed."""
    if case.outcome is not Outcome.OK:
        return "", ""
    return speedup_words(case.speedup, case.interval, ascii_only=ascii_only)


def ratio_word(value: float | None, *, ascii_only: bool = False) -> str:
    """`1.05×`, or nothing."""
    return speedup_words(value, None, ascii_only=ascii_only)[0]


def mean_decimals(means: Iterable[Mean]) -> int:
    """Decimals for all of these: one more where an interval is so narrow that it shows."""
    known = [(mean.value, mean.interval) for mean in means if mean.value is not None]
    fine = any(ratio_decimals(value, ends) > fewer_decimals(value, COARSE) for value, ends in known)
    return FINE if fine else COARSE


def pass_words(passes: PassRate) -> tuple[str, str]:
    """`5/6` and `83 %`; never 100 % where one failed, never 0 % where one passed."""
    share = ""
    if passes.counted:
        percent = round(100 * passes.passed / passes.counted)
        if 0 < passes.passed < passes.counted:
            percent = min(99, max(1, percent))
        share = f"{percent} %"
    return f"{passes.passed}/{passes.counted}", share


def of_words(*means: Mean) -> str:
    """`of 5`: how many cases a mean is over; `of 5 / 4` where two differ."""
    counts = [mean.n for mean in means if mean.value is not None]
    return f"of {' / '.join(str(n) for n in dict.fromkeys(counts))}" if counts else ""


def compile_words(cold: Mean, warm: Mean, *, ascii_only: bool = False) -> str:
    """`12.1 s / 2.30 s`."""
    if cold.value is None:
        return ""
    known = [mean.value for mean in (cold, warm) if mean.value is not None]
    return " / ".join(format_seconds(value / 1e9, 3, ascii_only=ascii_only) for value in known)


def bytes_words(mean: Mean) -> str:
    """`33.1 MiB`, or nothing."""
    return "" if mean.value is None else format_bytes(mean.value)


def verdict_words(summary: SuiteSummary) -> str:
    """`3 faster, 1 slower`: verdicts after the correction for many cases."""
    named = [(v.value, n) for v in Verdict if (n := summary.verdicts.get(v.value, 0))]
    none = [("without", summary.no_verdict)] if named and summary.no_verdict else []
    return ", ".join(f"{n} {name}" for name, n in (*named, *none))
