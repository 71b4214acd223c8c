"""The terminal report of a run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TypeVar

from torchstone.records import CaseMetrics, Mean, Outcome, RunView, SuiteSummary, Verdict
from torchstone.records.format import count, format_change, format_percent, format_seconds
from torchstone.show.evidence import flow_commands, hang, in_database, run_advice
from torchstone.show.markdown import code, escape
from torchstone.show.rows import flow
from torchstone.show.run_table import (
    Tally,
    by_reason,
    case_speedup,
    case_table,
    case_verdict,
    check_counts,
    circumstances,
    command_text,
    compile_words,
    failure_text,
    failures,
    foreign_cell,
    foreign_columns,
    foreign_note,
    grouped,
    labels_of,
    lost_note,
    mean_decimals,
    model_names,
    of_words,
    only_variants,
    pass_words,
    ratio_word,
    resume_command,
    run_verdicts,
    speedup_words,
    subject,
    suite_table,
    verdict_words,
)
from torchstone.show.table import (
    Style,
    cells,
    clip,
    fit,
    markdown_table_Column,
    sanitise,
    shorten,
    table,
    wrap,
)
from torchstone.show.terminal import LEAST_WIDTH


def run_report(
    view: RunView,
    summaries: Sequence[SuiteSummary],
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    commands: bool = False,
    db: str = "",
) -> str:
    """Heading, suites, cases, failures, what did not run; no line wider than `width` (or 40).

    `commands` adds the command that repeats each case; failures always have theirs.
    `db` is the database that was named, for the commands that are printed.
    """
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    cases = case_table(view, width, style)
    sections = [
        _heading_run_report(view, db, width, style),
        suite_table(view, summaries, width, style) + _legend(summaries, width, style),
        cases + checks(view, width, style),
        failed(view, db, width, style),
        not_supported(view, width, style),
        not_run(view, db, width, style),
        case_commands(view, db, width, style) if commands else [],
        _closing_run_report(view, commands, db, width, style),
        _next(view, db, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading_run_report(view: RunView, db: str, width: int, style: Style) -> list[str]:
    first, *rest = flow(subject(view), width, style)
    lines = [style.paint(first, "title"), *rest]
    lines += [style.paint(line, "dim") for line in flow(circumstances(view.run), width, style)]
    for note in filter(str.strip, view.run.notes):
        lines += wrap(style.safe(note), width, ellipsis=style.glyphs.ellipsis)
    lines += flow(Tally.of(view).parts, width, style)
    command = resume_command(view, db)
    said = [f"{style.glyphs.arrow} {command}"] if command else []
    return lines + flow_commands(said, width, style)


def _legend(summaries: Sequence[SuiteSummary], width: int, style: Style) -> list[str]:
    """What the columns mean, and that every mean says over how many cases it is."""
    if not summaries:
        return []
    text = "passed: of all planned cases but those not supported"
    if any(summary.speedup.value is not None for summary in summaries):
        text += (
            "; of 5: a mean over five passing cases (geometric for ratios); memory above 1: the "
            "arm's tensors need less than the baseline's"
        )
    rows = wrap(text, width - 2, ellipsis=style.glyphs.ellipsis)
    return [style.paint(f"  {row}", "dim") for row in rows]


def _next(view: RunView, db: str, width: int, style: Style) -> list[str]:
    """What to do now: see it in a browser, and have the slowest case explained."""
    if not view.run.id:
        return []
    commands = [("All of it in a browser", "torchstone serve --open")]
    slowest = slowest_case(view)
    if slowest is not None:
        key = slowest.key
        flags = f" --mode {key.mode}" if key.mode != "inference" else ""
        flags += f" --threads {key.threads}" if key.threads else ""
        target = next(case.target for case in view.run.plan if case.key == key)
        slower = slowest.verdict is Verdict.SLOWER
        why = f"Why {key.model} is slower" if slower else f"Where the time of {key.model} goes"
        commands.append((why, f"torchstone explain {target} --vs {key.variant}{flags}"))
    lines = []
    for why, command in commands:
        lines += wrap(f"{style.safe(why)}:", width, ellipsis=style.glyphs.ellipsis)
        shown = flow_commands([in_database(style.safe(command), db)], width - 2, style)
        lines += [f"  {line}" for line in shown]
    return lines


def slowest_case(view: RunView) -> CaseMetrics | None:
    """The case with the least speed-up."""
    known = [case for case in view.cases if case.outcome is Outcome.OK and case.speedup]
    return min(known, key=lambda case: case.speedup or 0.0, default=None)


def _closing_run_report(
    view: RunView, commands: bool, db: str, width: int, style: Style
) -> list[str]:
    if not view.run.id:
        return []
    show = in_database(f"torchstone show {view.run.id}", db)
    parts = [f"id {view.run.id}", show, f"{show} --csv"]
    if not commands and any(c.command and c.outcome is Outcome.OK for c in view.cases):
        parts.append(f"{show} --commands")
    return [style.paint(line, "dim") for line in flow_commands(parts, width, style)]


# Below a run's tables: failures with their reasons, what cannot run, what was not run.


MOST_NAMES = 8
"""Models named beside a reason; the rest is counted."""


def failed(view: RunView, db: str, width: int, style: Style) -> list[str]:
    """Every failure: which case, how, why, and the command that repeats it."""
    found = failures(view)
    if not found:
        return []
    lines = [style.paint(f"{len(found)} failed", "title")]
    for case in found:
        lines += _failure(case, db, width, style)
    return lines


def _failure(case: CaseMetrics, db: str, width: int, style: Style) -> list[str]:
    glyphs = style.glyphs
    name = shorten(style.safe(case.key.name), width - 4, glyphs.ellipsis)
    lines = [f"  {style.paint(glyphs.cross, 'fail')} {style.paint(name, 'title')}"]
    lines += hang("    ", style.safe(failure_text(case)), width, style)
    return lines + _again(case, db, width, style)


def _again(case: CaseMetrics, db: str, width: int, style: Style) -> list[str]:
    lines = command_lines(case.command, width, style) if case.command else []
    if case.result_id:
        show = in_database(f"torchstone show {case.result_id}", db)
        lines += hang("    evidence: ", style.safe(show), width, style)
    return [style.paint(line, "dim") for line in lines]


def command_lines(words: Sequence[str], width: int, style: Style) -> list[str]:
    """A command that can be copied: broken between words, with a backslash at the end of a line."""
    lead = f"    {style.glyphs.arrow} "
    indent = " " * cells(lead)
    room = max(10, width - cells(lead) - 2)
    rows: list[str] = []
    for one in (shlex.quote(style.safe(item)) for item in words):
        if rows and cells(rows[-1]) + 1 + cells(one) <= room:
            rows[-1] += f" {one}"
        elif cells(one) <= room:
            rows.append(one)
        else:  # one word wider than the terminal: nothing but breaking it is left
            rows += wrap(one, room, ellipsis=style.glyphs.ellipsis)
    last = len(rows) - 1
    return [
        (indent if number else lead) + row + ("" if number == last else " \\")
        for number, row in enumerate(rows)
    ]


def case_commands(view: RunView, db: str, width: int, style: Style) -> list[str]:
    """The command of every case that did not fail: those stand beside their failures."""
    known = [case for case in view.complete if case.outcome is Outcome.OK and case.command]
    if not known:
        return []
    lines = [style.paint("commands", "title")]
    for case in known:
        lines.append(f"  {shorten(style.safe(case.key.name), width - 2, style.glyphs.ellipsis)}")
        lines += _again(case, db, width, style)
    return lines


def not_supported(view: RunView, width: int, style: Style) -> list[str]:
    """What cannot run here, by reason."""
    found = by_reason(view, Outcome.NOT_SUPPORTED)
    if not found:
        return []
    number = sum(len(cases) for _, cases in found)
    lines = _head(f"{number} not supported", "not in the pass rate", width, style)
    for reason, cases in found:
        lines += hang("  - ", style.safe(unsupported_text(view, reason, cases)), width, style)
    return lines


def unsupported_text(view: RunView, reason: str, cases: Sequence[CaseMetrics]) -> str:
    """`cudagraphs needs CUDA: 40 cases of inductor+cudagraphs: huggingface/…, … and 32 more`."""
    names, more = model_names(cases, MOST_NAMES)
    variants = only_variants(view, cases)
    where = f" of {', '.join(variants)}" if variants else ""
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    many = f"{count(len(cases), 'case')}{where}: " if len(cases) > 1 or variants else ""
    return f"{reason.rstrip('.')}: {many}{listed}"


def not_run(view: RunView, db: str, width: int, style: Style) -> list[str]:
    """What was planned and not measured, by reason, and how to go on."""
    found = by_reason(view, Outcome.NOT_RUN)
    if not found:
        return []
    number = sum(len(cases) for _, cases in found)
    lines = _head(f"{number} not run", "they count against the pass rate", width, style)
    for reason, cases in found:
        said = f"{count(len(cases), 'case')}: {style.safe(reason)}"
        lines += hang("  - ", said, width, style)
    command = resume_command(view, db)
    return lines + (
        hang(f"  {style.glyphs.arrow} ", style.safe(command), width, style) if command else []
    )


def _head(text: str, aside: str, width: int, style: Style) -> list[str]:
    if cells(text) + 2 + cells(aside) > width:
        return [style.paint(text, "title")]
    return [f"{style.paint(text, 'title')}  {style.paint(aside, 'dim')}"]


def checks(view: RunView, width: int, style: Style) -> list[str]:
    """Which rules found something, and in how many cases."""
    counts = check_counts(view)
    if not counts:
        return []
    said = ", ".join(f"{style.safe(rule)} in {count(n, 'case')}" for rule, n in counts.items())
    text = f"checks: {said}; `torchstone show` of a case's result says more"
    return [style.paint(line, "warn") for line in hang("  ! ", text, width, style)]


# A run as Markdown, fit for a comment on a pull request.


MOST_CHARACTERS = 60_000
"""GitHub takes 65,536 characters in a comment; whoever posts it may want to say something too."""
FEW_CASES = 12
"""So many cases are shown at once; more wait behind a click."""
NAME_WIDTH = 100
REASON_WIDTH = 400
_SHORT_LIST = MOST_CHARACTERS // 16
T = TypeVar("T")


def run_markdown(view: RunView, summaries: Sequence[SuiteSummary]) -> str:
    """Heading, suites, cases, failures. Text from outside cannot become markup."""
    head = [*_heading_run_markdown(view), *_section(_suites(view, summaries))]
    parts = (_failures(view), _not_supported(view), _not_run(view), _closing_run_markdown(view))
    tail = [line for part in parts for line in _section(part)]
    room = MOST_CHARACTERS - sum(len(line) + 1 for line in (*head, *tail))
    return "\n".join([*head, *_section(_cases(view, room)), *tail]) + "\n"


def _heading_run_markdown(view: RunView) -> list[str]:
    first, *rest = subject(view)
    lines = [f"**{_said(first)}**" + "".join(f" · {_said(part)}" for part in rest)]
    where = " · ".join(_said(part) for part in circumstances(view.run))
    done, *outcomes = Tally.of(view).parts
    lines += ["", where] if where else []
    for note in filter(str.strip, view.run.notes):
        lines += ["", _said(note)]
    lines += ["", f"**{done}**" + "".join(f" · {part}" for part in outcomes)]
    command = resume_command(view)
    return lines + (["", f"To go on: {code(command)}"] if command else [])


def _suites(view: RunView, summaries: Sequence[SuiteSummary]) -> list[str]:
    summaries = [summary for summary in summaries if summary.passes.counted]
    if not summaries:
        return []
    labels = labels_of(view)
    level = min(summary.speedup.level for summary in summaries)
    decimals = mean_decimals(summary.speedup for summary in summaries)
    columns: list[markdown_table_Column[SuiteSummary]] = [
        ("suite", ":--", lambda s: code(_short(labels.group(s)))),
        ("passed", "--:", lambda s: " ".join(pass_words(s.passes)).strip()),
        ("speed-up", "--:", lambda s: _bold(_mean(s, decimals)[0])),
        (format_percent(level), ":--", lambda s: _spread(s, decimals)),
        ("compile cold / warm", "--:", _compile_mean),
        ("memory", "--:", lambda s: _ratio(s.memory_ratio)),
        ("process memory", "--:", lambda s: _ratio(s.process_memory_ratio)),
        ("verdicts", ":--", verdict_words),
        ("not supported", "--:", lambda s: str(s.passes.planned - s.passes.counted or "")),
    ]
    return table(columns, summaries)


def _mean(summary: SuiteSummary, decimals: int) -> tuple[str, str]:
    return speedup_words(summary.speedup.value, summary.speedup.interval, decimals)


def _spread(summary: SuiteSummary, decimals: int) -> str:
    return f"{_mean(summary, decimals)[1]} {of_words(summary.speedup)}".strip()


def _compile_mean(summary: SuiteSummary) -> str:
    means = (summary.compile_cold_ns, summary.compile_warm_ns)
    return f"{compile_words(*means)} {of_words(*means)}".strip()


def _ratio(mean: Mean) -> str:
    return f"{ratio_word(mean.value)} {of_words(mean)}".strip()


def _cases(view: RunView, room: int) -> list[str]:
    """The cases that ran, in a fold where they are many; what has no room is counted."""
    ran = [c for c in view.complete if c.outcome not in (Outcome.NOT_SUPPORTED, Outcome.NOT_RUN)]
    ordered = [case for found in grouped(ran).values() for case in found]
    if not ordered:
        return []
    verdicts, labels = run_verdicts(view), labels_of(view)
    columns: list[markdown_table_Column[CaseMetrics]] = [
        ("case", ":--", lambda c: code(_short(c.key.model))),
        ("suite", ":--", lambda c: code(_short(labels.group(c.key)))),
        ("speed-up", "--:", lambda c: case_speedup(c)[0]),
        (format_percent(min(c.level for c in ordered)), ":--", lambda c: case_speedup(c)[1]),
        ("verdict", ":--", lambda c: _verdict(*case_verdict(c, verdicts[c.key]))),
        ("base → new", "--:", _times),
        ("compile", "--:", lambda c: _seconds(c.compile_cold_ns)),
        ("memory", "--:", lambda c: ratio_word(c.memory_ratio)),
        ("breaks", "--:", lambda c: "" if c.graph_breaks is None else str(c.graph_breaks)),
        ("checks", ":--", lambda c: _said(", ".join(c.checks))),
        *((name, "--:", _foreign_cells(name)) for name in foreign_columns(ordered)),
    ]
    heading, marks, *rows = table(columns, ordered)
    kept, left_out = fit(rows, room - len(heading) - len(marks) - 400)
    lines = [heading, marks, *kept]
    notes = (lost_note(view, verdicts), run_advice(view, verdicts), foreign_note(ordered))
    lines += [line for note in notes if note for line in ("", _said(note))]
    if left_out:
        whole = code(f"torchstone show {view.run.id} --csv")
        lines += ["", f"{count(left_out, 'case')} more did not fit in a comment; {whole} has all."]
    if len(ordered) <= FEW_CASES:
        return lines
    return [
        f"<details><summary>{count(len(ordered), 'case')}</summary>",
        "",
        *lines,
        "",
        "</details>",
    ]


def _foreign_cells(name: str) -> Callable[[CaseMetrics], str]:
    return lambda case: _said(foreign_cell(case, name))


def _times(case: CaseMetrics) -> str:
    base, new = (None if ns is None else ns / 1e9 for ns in (case.base_ns, case.new_ns))
    return format_change(base, new)


def _seconds(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else format_seconds(nanoseconds / 1e9, 3)


def _verdict(text: str, role: str) -> str:
    return _bold(text) if role == "fail" else text


def _bold(text: str) -> str:
    return f"**{text}**" if text else ""


def _failures(view: RunView) -> list[str]:
    lines = []
    for case in failures(view):
        text = _said(failure_text(case).rstrip("."))
        again = f" Again: {code(command_text(case))}" if case.command else ""
        lines.append(f"- {code(_short(case.key.name))} {text}.{again}")
    return _listed(f"**{len(lines)} failed**", lines, MOST_CHARACTERS // 2)


def _not_supported(view: RunView) -> list[str]:
    found = by_reason(view, Outcome.NOT_SUPPORTED)
    number = sum(len(cases) for _, cases in found)
    lines = [f"- {_said(unsupported_text(view, reason, cases))}" for reason, cases in found]
    return _listed(f"**{number} not supported** (not in the pass rate)", lines, _SHORT_LIST)


def _not_run(view: RunView) -> list[str]:
    found = by_reason(view, Outcome.NOT_RUN)
    number = sum(len(cases) for _, cases in found)
    lines = [f"- {count(len(cases), 'case')}: {_said(reason)}" for reason, cases in found]
    return _listed(f"**{number} not run** (they count against the pass rate)", lines, _SHORT_LIST)


def _listed(head: str, lines: Sequence[str], room: int) -> list[str]:
    """A list under its heading, as long as there is room; nothing where it is empty."""
    kept, left_out = fit(lines, room)
    more = [f"- and {left_out} more"] if left_out else []
    return [head, "", *kept, *more] if lines else []


def _closing_run_markdown(view: RunView) -> list[str]:
    counts = check_counts(view)
    lines = []
    if counts:
        said = ", ".join(f"{escape(rule)} in {count(n, 'case')}" for rule, n in counts.items())
        lines += [f"Checks worse than a note: {said}.", ""]
    meaning = (
        "memory: the baseline’s tensors at a step’s peak ÷ the arm’s · “of 5”: the mean of five "
        "passing cases"
    )
    return [*lines, f"<sub>id {escape(view.run.id)} · {meaning}</sub>"]


def _said(text: str) -> str:
    """Text from outside, escaped and of bounded length."""
    return escape(clip(sanitise(text), REASON_WIDTH))


def _short(name: str) -> str:
    return shorten(sanitise(name), NAME_WIDTH)


def _section(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []
