"""The part of a report below the table: what went wrong, what is in doubt, what was checked."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.records import (
    CASE_KIND,
    CaseMetrics,
    Check,
    Comparison,
    Level,
    Measurement,
    Method,
    Outcome,
    Result,
    RunComparison,
    RunView,
    Verdict,
)
from torchstone.records.format import (
    count,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    percent,
    ratio_decimals,
)
from torchstone.show.rows import LEAST_COMPILE_NS, VERDICT_ROLES, flow, speedup_interval
from torchstone.show.table import Style, cells, shorten, wrap

# Commands that a report prints, so that they work as they stand.


def in_database(command: str, db: str) -> str:
    """The command on the database that was named; `db` is empty where it is the default one."""
    return f"{command} --db {shlex.quote(db)}" if db else command


def flow_commands(parts: Iterable[str], width: int, style: Style) -> list[str]:
    """Parts joined by dots; one wider than a line is broken, not cut, to be copied."""
    lines: list[str] = []
    fitting: list[str] = []
    for part in parts:
        if cells(style.safe(part)) <= width:
            fitting.append(part)
            continue
        lines += flow(fitting, width, style) + break_command(
            style.safe(part).split(" "), width, style
        )
        fitting = []
    return lines + flow(fitting, width, style)


def break_command(
    words: Iterable[str], width: int, style: Style, lead: str = "", indent: str = "  "
) -> list[str]:
    """Between words, with a backslash at the end of a line; a word wider than a line anywhere."""
    room = max(10, width - 2 - cells(indent))
    rows: list[str] = []
    for word in words:
        if rows and cells(rows[-1]) + 1 + cells(word) <= room:
            rows[-1] += f" {word}"
        elif cells(word) <= room:
            rows.append(word)
        else:
            rows += wrap(word, room, ellipsis=style.glyphs.ellipsis)
    last = len(rows) - 1
    return [
        (indent if number else lead) + row + ("" if number == last else " \\")
        for number, row in enumerate(rows)
    ]


# What the machine did to an arm's turns, in one small table of totals and shares.


PROBE_SLOW = 1.03
"""A probe this much above its own floor ran on a slow core: in trials on a shared machine the
samples beside probes within 3 % had a spread of about 1 %, all samples together 50 to 90 %."""


def summary(measurement: Measurement) -> dict[str, Any] | None:
    """Totals over all turns in seconds; None for what the system does not tell, or no turns."""
    noises = [turn.noise for turn in measurement.turns]
    if not noises:
        return None

    def total(name: str, unit: float = 1e9) -> float | None:
        known = [value for noise in noises if (value := getattr(noise, name)) is not None]
        return sum(known) / unit if known else None

    wall, switches = sum(noise.wall_ns for noise in noises), total("involuntary_switches", 1)
    probes: dict[int, list[int]] = {}
    for turn in measurement.turns:
        probes.setdefault(turn.replicate, []).extend(probe for probe in turn.probe_ns if probe > 0)
    # Each against the floor of its own process, as the rule `probe` has it.
    of_each = [own for own in probes.values() if own]
    slow = sum(probe > min(own) * PROBE_SLOW for own in of_each for probe in own)
    return {
        "wall_s": wall / 1e9,
        "cpu_per_wall": sum(noise.cpu_ns for noise in noises) / wall if wall else None,
        "wait_s": total("wait_ns"),
        "involuntary_switches": None if switches is None else int(switches),
        "steal_s": total("steal_ns"),
        "pressure_s": total("pressure_ns"),
        "throttled_s": total("throttled_ns"),
        "late_cpu_s": total("late_cpu_ns"),
        "never_quiet_turns": sum(noise.quiet_after_ns is None for noise in noises),
        "probe_bits": measurement.probe_bits,
        "probe_floor_s": min(map(min, of_each)) / 1e9 if of_each else None,
        "probe_slow_share": slow / sum(map(len, of_each)) if of_each else None,
    }


# How long a budget would probably decide what is still open, in words that can be typed.


BENCH, RUN, CALL = "--budget ", "--budget-per-case ", "budget="
"""How a budget is given: to `bench`, to `run`, and to a function."""


def duration(seconds: float) -> str:
    """`45s`, `2m`, `1h`: as the options take it."""
    for unit, size in (("h", 3600.0), ("m", 60.0)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def budget_advice(
    seconds: float | None, margin: float, flag: str = BENCH, method: Method | None = None
) -> str:
    """`--budget 45s would probably tell 2 %.`; empty where no budget is known to."""
    if seconds is None:
        return ""
    given = f"{seconds:g}" if flag == CALL else duration(seconds)
    asked = f"{flag}{given}{_processes(seconds, method)}"
    return f"{asked} would probably tell {100 * margin:g} %."


def advice_of(comparison: Comparison, result: Result | None = None) -> str:
    """The advice on a comparison that leaves something open, for the command that made it."""
    if not comparison.verdict.undecided:
        return ""
    flag = RUN if result is not None and result.kind == CASE_KIND else BENCH
    method = None if result is None else result.method
    return budget_advice(comparison.deciding_budget_s, comparison.margin, flag, method)


def _processes(seconds: float, method: Method | None) -> str:
    """A number of processes that was asked for has to grow with the budget: more turns in the same
    ones do not show how processes differ."""
    if method is None or not method.asked_replicates or not 0 < method.budget_s < seconds:
        return ""
    return f" --replicates {math.ceil(method.asked_replicates * seconds / method.budget_s)}"


def run_advice(view: RunView, told: Sequence[Verdict | None]) -> str:
    """The same for the cases of a run that are still open; empty where there are none."""
    said = zip(view.complete, told, strict=True)
    still = [case for case, verdict in said if verdict is not None and verdict.undecided]
    known = [(case.deciding_budget_s, case.margin) for case in still if case.deciding_budget_s]
    if not known:
        return ""
    most, margin = max(seconds for seconds, _ in known), max(size for _, size in known)
    advice = budget_advice(most, margin, RUN, view.run.method).rstrip(".")
    return f"{advice} in {_open(len(known), len(still))}"


def compare_advice(comparison: RunComparison) -> str:
    """The same for two runs, both of which would have to be measured for longer."""
    still = [c for c in comparison.cases if c.verdict is not None and c.verdict.undecided]
    known = [case.deciding_budget_s for case in still if case.deciding_budget_s]
    if not known:
        return ""
    asked = f"{RUN}{duration(max(known))} for both runs, with --replicates raised as much,"
    told = f"{100 * comparison.margin:g} %"
    return f"{asked} would probably tell {told} in {_open(len(known), len(still))}"


def _open(known: int, still: int) -> str:
    of = f"{known} of " if known < still else ""
    return f"{of}{count(still, 'case')} still open"


STDERR_LINES = 8
"""The last lines of stderr say what happened; the rest is in the JSON."""
_STDERR_ROWS = 3
_STOPPED = {
    "precision": "precise enough",
    "decided": "stopped when the verdict was clear",
    "total": "time of --total over: this is what was known by then",
    "budget": "budget spent",
    "replicates": "as many processes as asked",
    "interrupt": "interrupted",
    "no arm left": "no arm could run",
}


def hang(lead: str, text: str, width: int, style: Style, role: str = "") -> list[str]:
    """A paragraph with a hanging indent; `role` paints the lead."""
    indent = cells(lead)
    lines = wrap(text, max(10, width - indent), ellipsis=style.glyphs.ellipsis)
    return [
        (style.paint(lead, role) if i == 0 else " " * indent) + line for i, line in enumerate(lines)
    ]


@dataclass(frozen=True)
class Note:
    """A paragraph under a table: whom it speaks of, what it says, and what goes with it."""

    role: str
    text: str
    name: str = ""
    head: str = ""
    """The outcome or the verdict of the arm that is named; the text goes on from it."""
    quoted: tuple[str, ...] = ()
    remedy: str = ""


def note_lines(notes: Iterable[Note], width: int, style: Style) -> list[str]:
    """For the terminal."""
    glyphs = style.glyphs
    marks = {"fail": f"{glyphs.cross} ", "doubt": "? ", "warn": "! ", "note": "- "}
    marks |= dict.fromkeys(("good", "bad", "even"), f"{glyphs.arrow} ")
    lines: list[str] = []
    for note in notes:
        lead, text = f"  {marks.get(note.role, '')}", style.safe(f"{note.head}{note.text}")
        if note.name:
            name = shorten(style.safe(note.name), width // 3, glyphs.ellipsis)
            lines += hang(f"{lead}{name}  ", text, width, style, note.role)
        else:
            lines += [style.paint(line, note.role) for line in hang(lead, text, width, style)]
        for said in note.quoted:
            # Leading blanks are kept: a traceback is read by its indent.
            body = style.safe(said.rstrip().expandtabs(4))
            blank = min(len(body) - len(body.lstrip(" ")), 12)
            for row in wrap(body, width - 6 - blank, rows=_STDERR_ROWS, ellipsis=glyphs.ellipsis):
                lines.append(style.paint(f"    {glyphs.quote} {' ' * blank}{row}".rstrip(), "dim"))
        if note.remedy:
            lines += hang(f"    {glyphs.arrow} ", style.safe(note.remedy), width, style)
    return lines


def problems(result: Result) -> list[Note]:
    """Arms that did not end well: what, where, the last words, the remedy. Then why a verdict is
    withheld, and the smallest change that this data could have shown."""
    notes = [_outcome(m) for m in result.arms if m.outcome is not Outcome.OK]
    for comparison in result.comparisons:
        text = doubt_text(comparison, result)
        if text:
            notes.append(Note("doubt", f": {text}", comparison.new, comparison.verdict.value))
    return notes


def answers(result: Result, style: Style) -> list[Note]:
    """What was asked, answered: every verdict with its ratio or its reason, after the arms that
    did not end well."""
    notes = [_outcome(m) for m in result.arms if m.outcome is not Outcome.OK]
    told = {m.arm.name for m in result.arms if not m.outcome.comparable}
    for one in result.comparisons:
        if one.new in told:
            continue
        said = ratio_words(one, style) if one.verdict.different or not one.verdict.undecided else ""
        text = " ".join(filter(None, (said, doubt_text(one, result))))
        if text:
            role = VERDICT_ROLES[one.verdict]
            notes.append(Note(role, f": {text}", one.new, one.verdict.value))
    return notes


def left_out(result: Result) -> list[Note]:
    """What the effort asked for leaves out."""
    return [Note("dim", FAST_LEAVES_OUT)] if result.method.effort == "fast" else []


def ratio_words(comparison: Comparison, style: Style) -> str:
    """`1.42× as fast as eager (1.38–1.46).`"""
    speedup, ends = comparison.speedup, speedup_interval(comparison)
    if speedup is None or not math.isfinite(speedup):
        return ""
    decimals, plain = ratio_decimals(speedup, ends), style.ascii_only
    ratio = format_ratio(speedup, decimals, ascii_only=plain)
    between = format_interval(ends, decimals, ascii_only=plain)
    base = shorten(style.safe(comparison.base), 30, style.glyphs.ellipsis)
    return f"{ratio} as fast as {base}{f' ({between})' if between else ''}."


def _outcome(measurement: Measurement) -> Note:
    detail = measurement.detail
    told = detail.signal in detail.message  # as in "killed by SIGSEGV"
    ends = [detail.signal] if detail.signal and not told else []
    ends += [f"exit code {detail.exit_code}"] if detail.exit_code is not None else []
    text = f" ({detail.phase})" if detail.phase else ""
    text += f": {detail.message}" if detail.message else ""
    text += f" [{', '.join(ends)}]" if ends else ""
    head, quoted = measurement.outcome.words, detail.stderr[-STDERR_LINES:]
    return Note("fail", text, measurement.arm.name, head, quoted, detail.remedy)


def doubt_text(comparison: Comparison, result: Result | None = None) -> str:
    """The comparison's reason and, where something is open, what it could have shown and the budget
    that would probably decide."""
    said = [comparison.reason.rstrip(".") + "."] if comparison.reason else []
    least = comparison.smallest_detectable
    if comparison.verdict is Verdict.CANNOT_TELL and least is not None and math.isfinite(least):
        shown = format_percent(least) if least <= 1 else "more than 100 %"
        said.append(f"The smallest change this data could have shown is {shown}.")
    said.append(advice_of(comparison, result))
    return " ".join(filter(None, said))


def checks(result: Result, style: Style) -> list[Note]:
    """Fails in full, warnings and notes once a rule, those that passed only counted."""
    notes = []
    for level in (Level.FAIL, Level.WARN, Level.NOTE):
        for alike in _by_rule([c for c in result.checks if c.level is level]):
            text = check_text(alike[0], result, style) + _others(alike[1:], style)
            notes.append(Note(level.value, text))
    passed = sum(check.level is Level.OK for check in result.checks)
    return notes + ([Note("dim", f"{count(passed, 'check')} ok")] if passed else [])


BUSY = ("noise", "probe", "steady")
"""Rules that say the same where the machine was busy."""
CROWDED = "threads"
"""The rule that knows better than they do: the arm's own threads were too many."""
SESSION = "session"
"""The rule that says what one process leaves out: a label of the figure, so it is never hidden."""
VERBOSE = "--verbose"
QUIETER = "Stop other work, use fewer --threads, or give a longer --budget."


def brief_checks(result: Result, style: Style, more: str = VERBOSE) -> list[Note]:
    """What weighs: fails in full, warnings once a rule, a busy machine in one line, what a session
    leaves out. The rest is counted, and `more` or `show` have it."""
    found = [check for check in result.checks if check.level is not Level.OK]
    busy = [check for check in found if _is_busy(check)]
    crowded = [check for check in found if check.rule == CROWDED]
    if not crowded and not any(check.level is Level.WARN for check in busy):
        busy = []
    notes = []
    for level in (Level.FAIL, Level.WARN):
        own = [c for c in found if c.level is level and c not in busy]
        for alike in _by_rule(own, bool(result.sweep)):
            text = check_text(alike[0], result, style) + _others(alike[1:], style)
            notes.append(Note(level.value, text))
    if busy and not crowded:
        notes.append(Note(Level.WARN.value, busy_text(busy)))
    rest = [c for c in found if c.level is Level.NOTE and c not in busy]
    said = [c for c in rest if c.rule == SESSION]
    notes += [Note(Level.NOTE.value, check_text(c, result, style)) for c in said]
    hidden = len(rest) - len(said)
    passed = sum(check.level is Level.OK for check in result.checks)
    counts = [count(passed, "check") + " ok"] if passed else []
    counts += [count(hidden, "note")] if hidden else []
    if busy or hidden:
        counts.append(f"{more} has them all")
    return notes + ([Note("dim", ", ".join(counts))] if counts else [])


def _is_busy(check: Check) -> bool:
    """Whether it only says that others had the machine: no limit of ours, no arm that sleeps."""
    if check.rule not in BUSY or check.level is Level.FAIL:
        return False
    other = ("throttled_turns", "idle_turns", "still_compiling")
    if any(check.figures.get(name) for name in other):
        return False
    return check.rule != "steady" or bool(check.figures.get("unsteady"))


def busy_text(busy: Sequence[Check]) -> str:
    """One sentence for all of them, with the worst figure of each, and the remedy."""
    worst = {
        name: max((check.figures.get(name, 0.0) for check in busy), default=0.0)
        for name in ("dirty_share", "slow_share", "half_width")
    }
    steady = [check.figures for check in busy if check.rule == "steady"]
    unsteady, processes = (
        int(sum(figures.get(name, 0.0) for figures in steady)) for name in ("unsteady", "processes")
    )
    parts = [
        f"{percent(worst['dirty_share'])} of turns disturbed" if worst["dirty_share"] else "",
        f"{percent(worst['slow_share'])} of samples on a slowed core"
        if worst["slow_share"]
        else "",
        f"{unsteady} of {processes} processes not settled" if unsteady else "",
    ]
    stands = ""
    if worst["half_width"]:
        stands = f" The interval is within ±{percent(worst['half_width'])} all the same."
    rules = ", ".join(dict.fromkeys(check.rule for check in busy))
    said = ", ".join(filter(None, parts))
    return f"{rules}: The machine was busy: {said}.{stands} {QUIETER}"


FAST_LEAVES_OUT = (
    "--fast: fewer processes, forked where steps are short; fewer outputs of timed turns checked; "
    "not looked at: memory of tensors, operations, remembered answers."
)
"""What the report says of the effort; `conductor.effort` has what it is."""


def _by_rule(found: list[Check], sweep: bool = False) -> list[list[Check]]:
    """Checks that one line can speak for: fails each alone, others by rule. Those of no arm are
    each alone too, but in a sweep, where every case has its own."""
    groups: dict[str, list[Check]] = {}
    for i, check in enumerate(found):
        alone = check.level is Level.FAIL or not (check.arms or sweep)
        key = f"{check.rule} {i}" if alone else check.rule
        groups.setdefault(key, []).append(check)
    return list(groups.values())


def _others(alike: list[Check], style: Style) -> str:
    """Four arms on a noisy machine need not be told four times; the JSON has every figure."""
    names = dict.fromkeys(name for check in alike for name in check.arms)
    return f" Likewise {_named(names, style)}." if names else ""


def check_text(check: Check, result: Result, style: Style) -> str:
    """`rule: message`, with the arms it speaks of where the message does not name them."""
    unnamed = [name for name in check.arms if name not in check.message]
    if len(result.arms) < 2 or len(check.arms) == len(result.arms):
        unnamed = []
    arms = f" ({_named(unnamed, style)})" if unnamed else ""
    return f"{style.safe(check.rule)}{arms}: {style.safe(check.message)}"


def _named(names: Iterable[str], style: Style) -> str:
    return ", ".join(shorten(style.safe(name), 30, style.glyphs.ellipsis) for name in names)


def course(result: Result, style: Style) -> list[str]:
    """How the measurement went: processes, turns, samples, time spent, why it stopped."""
    counted = [m for m in result.arms if m.turns]
    parts: list[str] = []
    if counted:
        processes = max(len({turn.replicate for turn in m.turns}) for m in counted)
        turns = max(len(m.turns) for m in counted)
        samples = sum(len(turn.wall_ns) for m in counted for turn in m.turns)
        each = " an arm" if len(result.arms) > 1 else ""
        ran = count(processes, "process", "processes")
        if result.method.session:
            ran = f"this process, {count(processes, 'stretch', 'stretches')}"
        parts.append(f"{ran}, {turns} turns{each}")
        parts.append(count(samples, "sample"))
    if result.method.elapsed_s:
        parts.append(format_seconds(result.method.elapsed_s, 3, ascii_only=style.ascii_only))
    if result.pruned:
        command = style.safe(" ".join(result.pruned.command))
        parts.append(
            f"its {count(result.pruned.samples, 'sample')} were removed on "
            f"{style.safe(result.pruned.created[:10])} by `{command}`"
        )
    stopped = result.method.stopped_by
    return [*parts, _STOPPED.get(stopped, stopped)] if stopped else parts


# What rules of today say of stored results: the changes, then what still stands against them.


def evaluation_report(
    evaluated: Sequence[tuple[Result, Sequence[str]]],
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
) -> str:
    """One paragraph a result that changed or fails, then a sentence that counts them all."""
    style = Style(color, unicode)
    lines: list[str] = []
    for result, changes in evaluated:
        failed = [check for check in result.checks if check.level is Level.FAIL]
        if not (changes or failed or len(evaluated) == 1):
            continue
        name = style.safe(result.label or (result.arms[0].arm.target if result.arms else ""))
        lines.append(style.paint(f"{style.safe(result.id)}  {name}".rstrip(), "title"))
        for change in changes:
            lines += hang(f"  {style.glyphs.arrow} ", style.safe(change), width, style)
        notes = [Note("fail", check_text(check, result, style)) for check in failed]
        lines += note_lines(notes, width, style)
    changed = sum(bool(changes) for _, changes in evaluated)
    failing = sum(any(c.level is Level.FAIL for c in result.checks) for result, _ in evaluated)
    said = f"{changed} changed" if changed else "nothing changed"
    doubt = f"{failing} not to be believed" if failing else "none fails a check"
    results = count(len(evaluated), "result")
    lines.append(f"{results} evaluated by the rules of today: {said}, {doubt}.")
    return "\n".join(lines) + "\n"


# What the figures of a case mean, in a sentence: for who decides, not for who measures.


WORTH_SAYING = 0.05
"""Memory ratios nearer to 1 than this are not mentioned."""
MANY_CALLS = 1e9
"""Beyond so many calls compiling never pays off in practice."""


def meaning(case: CaseMetrics, *, ascii_only: bool = False) -> str:
    """One sentence, or none where the case has no verdict."""
    if case.outcome is not Outcome.OK or case.verdict is None or not case.speedup:
        return ""
    parts = [_speed(case), _times(case, ascii_only), _pays_off(case, ascii_only), _memory(case)]
    return "; ".join(part for part in parts if part) + "."


def _speed(case: CaseMetrics) -> str:
    """What the interval says of the variant; per cent of time a call."""
    low, high = case.interval or (0.0, 0.0)
    name, speedup = case.key.variant, case.speedup or 1.0
    if case.verdict is Verdict.FASTER:
        return f"{name} takes {_less(speedup)} less time a call"
    if case.verdict is Verdict.SLOWER:
        return f"{name} takes {_more(speedup)} more time a call: leave this model eager"
    if case.verdict is Verdict.SAME:
        return f"{name} makes no difference beyond {format_percent(case.margin)}"
    if case.verdict is Verdict.NOT_SLOWER:
        return f"{name} is not slower, and saves at most {_less(high)}"
    if case.verdict is Verdict.NOT_FASTER:
        return f"{name} is not faster, and costs at most {_more(low)}"
    open_ends = f"{name}: anything from {_more(low)} more time to {_less(high)} less"
    advice = budget_advice(case.deciding_budget_s, case.margin, RUN).rstrip(".")
    return "; ".join(part for part in (open_ends, advice) if part)


def _less(speedup: float) -> str:
    """How much of a call's time is saved."""
    return format_percent(max(0.0, 1.0 - 1.0 / speedup)) if speedup > 0 else "nothing"


def _more(speedup: float) -> str:
    """How much longer a call takes."""
    return format_percent(max(0.0, 1.0 / speedup - 1.0)) if speedup > 0 else "any amount"


def _times(case: CaseMetrics, ascii_only: bool) -> str:
    if not case.base_ns or not case.new_ns:
        return ""
    both = (case.base_ns, case.new_ns)
    return " to ".join(format_seconds(ns / 1e9, 3, ascii_only=ascii_only) for ns in both)


def _pays_off(case: CaseMetrics, ascii_only: bool) -> str:
    """After how many calls what is saved makes up for compiling; only of what is faster."""
    saved = (case.base_ns or 0.0) - (case.new_ns or 0.0)
    cold = case.compile_cold_ns or 0
    if case.verdict is not Verdict.FASTER or cold < LEAST_COMPILE_NS or saved <= 0:
        return ""
    calls = cold / saved
    if calls > MANY_CALLS:
        return ""
    took = format_seconds(cold / 1e9, 3, ascii_only=ascii_only)
    return f"{took} of compiling pay off after {_rounded(calls):,} calls"


def _rounded(calls: float) -> int:
    """Two digits: the ratio it comes from is known no better."""
    step = int(10 ** max(0, len(str(int(calls))) - 2))
    return max(1, round(calls / step) * step)


def _memory(case: CaseMetrics) -> str:
    """Of tensors at the step's peak."""
    ratio = case.memory_ratio
    if ratio is None or not ratio > 0.0 or abs(1.0 - 1.0 / ratio) < WORTH_SAYING:
        return ""
    if ratio > 1.0:
        return f"tensors need {format_percent(1.0 - 1.0 / ratio)} less memory"
    return f"tensors need {1.0 / ratio:.2g} times the memory"
