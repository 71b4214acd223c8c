"""A run as a report: its words, its two tables, and what stands below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from operator import attrgetter, ne

from torchstone.records import (
    WIDEST,
    CaseKey,
    CaseMetrics,
    Level,
    Outcome,
    Run,
    RunView,
    SuiteSummary,
    Verdict,
)
from torchstone.records.format import count, format_change, format_percent
from torchstone.show.blocks import (
    HEADED,
    MOST_CHARACTERS,
    Block,
    Commands,
    Entry,
    Grid,
    Listed,
    Parts,
    Report,
    Sentence,
)
from torchstone.show.cells import (
    compile_cell,
    foreign_cell,
    foreign_columns,
    foreign_note,
    mean_bytes_cell,
    mean_cell,
    mean_decimals,
    mean_memory_cell,
    memory_cell,
    nanoseconds_cell,
    number_cell,
    pass_cell,
    speedup_cell,
    suite_of,
    text_cell,
)
from torchstone.show.evidence import in_database, run_advice
from torchstone.show.listing import when
from torchstone.show.page import Cell, Column, Field, Item, Link, Table, field, make_table
from torchstone.show.rows import (
    LEAST_COMPILE_NS,
    VERDICT_MARKS,
    allocator_title,
    processor_name,
    revision,
)

HERE = "here"
LOST = "*"
FEW_CASES = 12
"""So many cases are shown at once in Markdown; more wait behind a click."""
MOST_CASES = 200
"""Rows of a report: what nobody reads line by line is in the CSV."""
MOST_NAMES = 8
"""Models named beside a reason; the rest is counted."""
_SETTINGS = ("mode", "precision", "device", "threads", "allocator")
GroupKey = tuple[str, str, str, str, str, str, int, str]
PASSED = "passed: of all planned cases but those not supported"
MEANS = (
    "; of 5: a mean over five passing cases (geometric for ratios), 4 of 5: over four of them; "
    "memory 2×: the arm's tensors need twice as much as the baseline's"
)


def run_report(
    view: RunView,
    summaries: Sequence[SuiteSummary],
    *,
    commands: bool = False,
    db: str = "",
    told: Sequence[Verdict | None] | None = None,
) -> Report:
    """Heading, suites, cases, failures, what did not run, and what to do next.

    `commands` adds the command that repeats each case; failures have theirs. `db` is the database
    that was named, for the commands that are printed. `told`: `stats.verdicts` of the view's
    complete cases, where known: many cases find differences that are not there.
    """
    from torchstone.stats import verdicts  # numpy comes with it: only when it is wanted

    run, tally = view.run, Tally.of(summaries)
    told = verdicts(view.complete) if told is None else told
    resume = resume_command(run, tally, db)
    shown = chosen(view, told)
    cases = view.whole(shown)
    heading: list[Block] = [
        Parts(subject(run, summaries), "title"),
        Parts(circumstances(run), "dim"),
        *(Sentence(note, "", "") for note in filter(str.strip, run.notes)),
        Parts(tally.parts),
    ]
    if resume:
        heading.append(Commands((("To go on", resume),), inline=True))
    return [
        heading,
        _suites(view, summaries),
        _cases(view, summaries, told, dict(zip(shown, cases, strict=True))),
        [_failed(run, tally, cases, db)],
        [_not_supported(view, summaries)],
        [_not_run(view, resume)],
        [_commands(view, db)] if commands else [],
        [_closing(view, commands, db)],
        [_next(view, db)],
    ]


def _suites(view: RunView, summaries: Sequence[SuiteSummary]) -> list[Block]:
    """Rows without a single supported case have nothing to show: they are listed apart."""
    shown = [summary for summary in summaries if summary.passes.counted]
    if not shown:
        return []
    means = MEANS if any(one.speedup.value is not None for one in shown) else ""
    wide = sum(case.outcome is Outcome.OK and case.too_wide for case in view.complete)
    means += f"; {wide_words(wide)}" if wide and means else ""
    return [Grid(suites_table(shown, summaries, Labels.of(summaries))), Sentence(PASSED + means)]


def wide_words(number: int) -> str:
    """What is said of cases that no mean speed-up has."""
    return (
        f"{count(number, 'case')} in no mean speed-up: the interval reaches further than a factor "
        f"of {WIDEST:g} either way"
    )


def itself(summary: SuiteSummary) -> SuiteSummary:
    """Of a row that is made from nothing else."""
    return summary


def suites_table(
    shown: Sequence[SuiteSummary], summaries: Sequence[SuiteSummary], labels: Labels
) -> Table:
    """One row a suite, mode, precision and variant; a suite with several has its own heading."""
    suites: dict[str, list[SuiteSummary]] = {}
    for one in shown:
        suites.setdefault(suite_of(one), []).append(one)
    if len(suites) == len(shown):
        name: Field[SuiteSummary] = field(
            "name", "Suite", lambda s: Cell(None, labels.group(s), mark="title")
        )
        return make_table("suites", "", (name, *suite_fields(shown, itself)), shown)
    heads: dict[int, tuple[str, str]] = {}
    ordered: list[SuiteSummary] = []
    for suite, found in suites.items():
        heads[len(ordered)] = suite, _left_out(suite, summaries)
        ordered += found
    fields = (
        field("name", "Settings", lambda s: Cell(None, labels.settings(s))),
        field(HEADED, "Suite", lambda s: Cell(None, suite_of(s))),
        *suite_fields(ordered, itself),
    )
    return make_table("suites", "", fields, ordered, heads=heads)


def _left_out(suite: str, summaries: Sequence[SuiteSummary]) -> str:
    """How many cases of the suite are in no row's denominator."""
    mine = [summary.passes for summary in summaries if suite_of(summary) == suite]
    number = sum(passes.planned - passes.counted for passes in mine)
    return f"{count(number, 'case')} not supported" if number else ""


def suite_fields(
    summaries: Sequence[SuiteSummary],
    of: Callable[[Item], SuiteSummary],
    to: Callable[[Item], Link | None] | None = None,
) -> tuple[Field[Item], ...]:
    """The figures of a suite: one declaration for terminal, Markdown, pages, their CSV and API.

    `of` finds them in what a row is made from; `to` is where its cells lead, on a page.
    """
    live, to = to is not None, to or (lambda _: None)
    decimals = mean_decimals(one.speedup for one in summaries)
    level = min((one.speedup.level for one in summaries), default=0.95)
    mean, peak = "Mean over passing cases", "Tensors at the peak, arm against baseline"

    def ratio(key: str, title: str, help: str, band: int) -> Field[Item]:
        column = Column(key, title, True, "×", help=help, band=band, wide=band > 1)
        return Field(column, lambda r: mean_memory_cell(getattr(of(r), key), to(r)))

    return (
        field(
            "pass_rate",
            "Passed",
            lambda r: pass_cell(of(r).passes, to(r), live=live),
            True,
            help="Passing cases out of those that count",
        ),
        field(
            "speedup",
            f"Speed-up ({format_percent(level)})",
            lambda r: mean_cell(of(r).speedup, to(r), decimals),
            True,
            "×",
            help=mean,
        ),
        field(
            "compile_cold",
            "Compile cold / warm",
            lambda r: compile_cell(of(r).compile_cold_ns, of(r).compile_warm_ns, to(r)),
            True,
            "s",
            help=mean,
            band=1,
        ),
        ratio("memory_ratio", "Memory", peak, 1),
        ratio("process_memory_ratio", "Process memory", "Peaks of the processes", 2),
        field(
            "compiler_bytes",
            "Compiler's memory",
            lambda r: mean_bytes_cell(of(r).compiler_bytes, to(r)),
            True,
            "bytes",
            band=2,
            wide=True,
        ),
    )


def _cases(
    view: RunView,
    summaries: Sequence[SuiteSummary],
    told: Sequence[Verdict | None],
    shown: Mapping[int, CaseMetrics],
) -> list[Block]:
    """One row a case that is shown, under the heading of its suite and settings."""
    if not shown:
        return []
    labels, tally = Labels.of(summaries), Tally.of(summaries)
    verdicts = {case.key: told[position] for position, case in shown.items()}
    found: dict[GroupKey, list[CaseMetrics]] = {_group_of(one): [] for one in summaries}
    for case in shown.values():
        found[_group_of(case.key)].append(case)
    heads: dict[int, tuple[str, str]] = {}
    ordered: list[CaseMetrics] = []
    for summary, kept in zip(summaries, found.values(), strict=True):
        if kept:
            heads[len(ordered)] = labels.group(summary), group_words(summary)
            ordered += kept
    fields = (
        field("name", "Case", lambda c: Cell(None, c.key.model)),
        field(HEADED, "Suite", lambda c: Cell(None, labels.group(c.key))),
        *_case_fields(ordered, verdicts),
    )
    table = make_table("cases", "", fields, ordered, heads=heads)
    many = len(ordered) > FEW_CASES
    whole = f"torchstone show {view.run.id} --csv"
    grid = Grid(table, count(len(ordered), "case") if many else "", fold=many, whole=whole)
    more = tally.ran - len(ordered)
    left = f"{count(more, 'case')} more: {whole}" if more else ""
    said = (left, lost_note(view, told), run_advice(view, told), foreign_note(ordered))
    return [grid, *(Sentence(note) for note in said if note), *_checks(view)]


def chosen(view: RunView, told: Sequence[Verdict | None]) -> list[int]:
    """The places in the plan of the cases that ran and are shown: where there are too many, the
    failing, then slower, faster and other ones, as far as there is room."""
    ranked: tuple[list[int], ...] = ([], [], [], [])
    for position, (case, verdict) in enumerate(zip(view.complete, told, strict=True)):
        if case.outcome is Outcome.OK:
            rank = 1 if verdict is Verdict.SLOWER else 2 if verdict is Verdict.FASTER else 3
            ranked[rank].append(position)
        elif case.outcome.failed:
            ranked[0].append(position)
    return sorted(islice(chain(*ranked), MOST_CASES))


def _case_fields(
    cases: Sequence[CaseMetrics], verdicts: Mapping[CaseKey, Verdict | None]
) -> tuple[Field[CaseMetrics], ...]:
    level = format_percent(min(case.level for case in cases))
    return (
        field("speedup", f"Speed-up ({level})", speedup_cell, True),
        field("verdict", "Verdict", lambda c: verdict_cell(c, verdicts[c.key])),
        field("times", "Base → new", _times, True),
        field("compile_cold", "Compile", compile_time_cell, True, band=1),
        field("memory_ratio", "Memory", lambda c: memory_cell(c.memory_ratio), True, band=1),
        field("breaks", "Breaks", lambda c: number_cell(c.graph_breaks), True, band=1),
        *(_foreign_field(name) for name in foreign_columns(cases)),
        field("result", "Result", lambda c: Cell(None, c.result_id), band=3, wide=True),
        field(
            "checks",
            "Checks",
            lambda c: text_cell(", ".join(c.checks), longest=30),
            band=3,
            wide=True,
        ),
    )


def _foreign_field(name: str) -> Field[CaseMetrics]:
    def cell(case: CaseMetrics) -> Cell:
        return text_cell(foreign_cell(case, name), longest=20)

    return field(name, name, cell, True, band=2)


def compile_time_cell(case: CaseMetrics, to: Link | None = None) -> Cell:
    """Cold; nothing to read where a first call was hardly longer than a steady one."""
    cell = nanoseconds_cell(case.compile_cold_ns, to)
    return cell if (case.compile_cold_ns or 0) >= LEAST_COMPILE_NS else cell._replace(text="")


def _times(case: CaseMetrics) -> Cell:
    base, new = (None if ns is None else ns / 1e9 for ns in (case.base_ns, case.new_ns))
    return Cell(None, format_change(base, new))


def verdict_cell(case: CaseMetrics, corrected: Verdict | None) -> Cell:
    """The outcome where the case failed, else its verdict in this run.

    A star marks a verdict that the case has by itself and loses among the others; other signs,
    that a check warns or fails.
    """
    if case.outcome is not Outcome.OK:
        return Cell(case.outcome.value, case.outcome.words, mark="fail")
    sign, failed = check_mark(case), case.worst_check is Level.FAIL
    if corrected is None:
        if case.foreign:
            return Cell("ok", "ok", mark="pass")
        return Cell(None, f"no verdict {sign}".rstrip(), mark="fail" if failed else "doubt")
    lost = "" if corrected is case.verdict else LOST
    text = " ".join(part for part in (corrected.value, lost, sign) if part)
    return Cell(corrected.value, text, mark="fail" if failed else VERDICT_MARKS[corrected])


def group_words(summary: SuiteSummary) -> str:
    """`3 faster, 1 same, 1 crash`: how the cases of a group that ran ended."""
    words = [f"{n} {v.value}" for v in Verdict if (n := summary.verdicts[v.value])]
    words += [f"{summary.no_verdict} ok"] if summary.no_verdict else []
    ended = summary.passes.outcomes
    words += [f"{n} {o.words}" for o in Outcome if o.failed and (n := ended[o.value])]
    return ", ".join(words)


def lost_note(view: RunView, told: Sequence[Verdict | None]) -> str:
    """What the star means, where there is one."""
    ok = [
        (c.verdict, v) for c, v in zip(view.complete, told, strict=True) if c.outcome is Outcome.OK
    ]
    if all(own is found for own, found in ok):
        return ""
    return (
        f"{LOST} different by itself, but {count(len(ok), 'case')} together make such a "
        "difference likely by chance"
    )


def _checks(view: RunView) -> list[Block]:
    """Which rules found something, and in how many cases."""
    counts = check_counts(view)
    if not counts:
        return []
    said = ", ".join(f"{rule} in {count(n, 'case')}" for rule, n in counts.items())
    text = f"checks: {said}; `torchstone show` of a case's result says more"
    return [Sentence(text, "warn", "  ! ")]


def _failed(run: Run, tally: Tally, cases: Sequence[CaseMetrics], db: str) -> Listed:
    """Which case failed, how, why, and the command that repeats it; the first of many, which are
    all among those that are shown."""
    entries = [
        Entry(failure_text(case), case.key.name, case.command, _evidence(case, db), failed=True)
        for case in cases
        if case.outcome.failed
    ]
    if left := tally.failed - len(entries):
        entries.append(Entry(f"{left} more: torchstone show {run.id} --csv"))
    return Listed(f"{tally.failed} failed", entries, room=MOST_CHARACTERS // 2)


def _evidence(case: CaseMetrics, db: str) -> tuple[str, ...]:
    if not case.result_id:
        return ()
    return (f"evidence: {in_database(f'torchstone show {case.result_id}', db)}",)


def _commands(view: RunView, db: str) -> Listed:
    """The command of every case that did not fail: those stand beside their failures."""
    known = [case for case in view.complete if case.outcome is Outcome.OK and case.command]
    entries = [Entry("", one.key.name, one.command, _evidence(one, db)) for one in known]
    return Listed("commands", entries, where="terminal")


def _not_supported(view: RunView, summaries: Sequence[SuiteSummary]) -> Listed:
    """What cannot run here, by reason."""
    found = by_reason(view, Outcome.NOT_SUPPORTED)
    entries = [Entry(unsupported_text(summaries, reason, cases)) for reason, cases in found]
    number = sum(len(cases) for _, cases in found)
    return Listed(f"{number} not supported", entries, "not in the pass rate")


def unsupported_text(
    summaries: Sequence[SuiteSummary], reason: str, cases: Sequence[CaseMetrics]
) -> str:
    """`cudagraphs needs CUDA: 40 cases of inductor+cudagraphs: huggingface/…, … and 32 more`."""
    names = list(dict.fromkeys(f"{case.key.suite}/{case.key.model}" for case in cases))
    found = list(dict.fromkeys(case.key.variant for case in cases))
    variants = found if set(found) != {one.variant for one in summaries} else []
    where = f" of {', '.join(variants)}" if variants else ""
    more = len(names) - MOST_NAMES
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    many = f"{count(len(cases), 'case')}{where}: " if len(cases) > 1 or variants else ""
    return f"{reason.rstrip('.')}: {many}{listed}"


def _not_run(view: RunView, resume: str) -> Listed:
    """What was planned and not measured, by reason, and how to go on."""
    found = by_reason(view, Outcome.NOT_RUN)
    entries = [Entry(f"{count(len(cases), 'case')}: {reason}") for reason, cases in found]
    number = sum(len(cases) for _, cases in found)
    return Listed(f"{number} not run", entries, "they count against the pass rate", resume)


def _closing(view: RunView, commands: bool, db: str) -> Parts:
    if not view.run.id:
        return Parts(())
    show = in_database(f"torchstone show {view.run.id}", db)
    parts = [f"id {view.run.id}", show, f"{show} --csv"]
    passed = (place for place, case in enumerate(view.complete) if case.outcome is Outcome.OK)
    first = view.whole(list(islice(passed, 1)))  # where one has a command, all that ran have
    if not commands and any(case.command for case in first):
        parts.append(f"{show} --commands")
    return Parts(parts, "dim", commands=True, where="terminal")


def _next(view: RunView, db: str) -> Commands:
    """What to do now: see it in a browser, and have the slowest case explained."""
    if not view.run.id:
        return Commands(())
    commands = [("All of it in a browser", "torchstone serve --open")]
    known = [
        (case.speedup, position)
        for position, case in enumerate(view.complete)
        if case.outcome is Outcome.OK and case.speedup
    ]
    if known:
        _, position = min(known)
        planned, slowest = view.run.plan[position], view.complete[position]
        key = planned.key
        flags = f" --mode {key.mode}" if key.mode != "inference" else ""
        flags += f" --threads {key.threads}" if key.threads else ""
        slower = slowest.verdict is Verdict.SLOWER
        why = f"Why {key.model} is slower" if slower else f"Where the time of {key.model} goes"
        commands.append((why, f"torchstone explain {planned.target} --vs {key.variant}{flags}"))
    return Commands(tuple((why, in_database(command, db)) for why, command in commands))


# A run in words and counts.


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
    def of(cls, summaries: Sequence[SuiteSummary]) -> Tally:
        """Every planned case, counted once."""
        found = {o: sum(one.passes.outcomes[o.value] for one in summaries) for o in Outcome}
        return cls(sum(found.values()), {o: number for o, number in found.items() if number})

    @property
    def not_run(self) -> int:
        """Planned but not measured (yet)."""
        return self.outcomes.get(Outcome.NOT_RUN, 0)

    @property
    def failed(self) -> int:
        """Ran and did not end well."""
        return sum(number for outcome, number in self.outcomes.items() if outcome.failed)

    @property
    def ran(self) -> int:
        """Passed or failed."""
        return self.outcomes.get(Outcome.OK, 0) + self.failed

    @property
    def parts(self) -> list[str]:
        """`44 of 48 cases done`, then each outcome with its count."""
        done = f"{self.planned - self.not_run} of {count(self.planned, 'case')} done"
        return [done, *(f"{number} {o.words}" for o, number in self.outcomes.items())]


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


def subject(run: Run, summaries: Sequence[SuiteSummary]) -> list[str]:
    """Title, date, tier and the settings that all cases share."""
    shared = Labels.of(summaries).shared(summaries[0]) if summaries else []
    parts = (title(run), when(run.created), f"{run.tier} tier" if run.tier else "", *shared)
    return [part for part in parts if part]


def resume_command(run: Run, tally: Tally, db: str = "") -> str:
    """How to go on with a run that is not complete; empty where it is, or came from elsewhere."""
    if run.origin != HERE or not tally.not_run:
        return ""
    return in_database(f"torchstone run --resume {run.id}", db)


def _group_of(key: CaseKey | SuiteSummary) -> GroupKey:
    """What cases under one heading have in common."""
    named = (key.suite, key.scale, key.mode, key.precision, key.variant, key.device)
    return (*named, key.threads, key.allocator)


def by_reason(view: RunView, outcome: Outcome) -> list[tuple[str, list[CaseMetrics]]]:
    """Cases of one outcome by their reason, the commonest first."""
    found: dict[str, list[CaseMetrics]] = {}
    for case in view.complete:
        if case.outcome is outcome:
            found.setdefault(case.reason or "no reason given", []).append(case)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def check_counts(view: RunView) -> dict[str, int]:
    """In how many cases each rule found something worse than a note, the commonest first."""
    counts = Counter(rule for case in view.complete for rule in case.checks)
    return dict(counts.most_common())


def failure_text(case: CaseMetrics) -> str:
    """`crash (inductor): first call: the worker died`."""
    arm = case.failed_arm
    if arm and arm != case.key.variant:
        arm += ", the baseline"
    return case.outcome.words + (f" ({arm})" if arm else "") + f": {case.reason}".rstrip(": ")


def check_mark(case: CaseMetrics, cross: str = "✗") -> str:
    """A sign where a rule warns or fails."""
    return {Level.WARN: "!", Level.FAIL: cross}.get(case.worst_check, "")
