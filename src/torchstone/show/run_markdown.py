"""A run as Markdown, fit for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torchstone.records import CaseFigures, Mean, Outcome, RunView, SuiteSummary
from torchstone.show.budget import run_advice
from torchstone.show.markdown import code, escape
from torchstone.show.markdown_table import Column, fit, table
from torchstone.show.run_evidence import unsupported_text
from torchstone.show.run_foreign import foreign_cell, foreign_columns, foreign_note
from torchstone.show.run_words import (
    Tally,
    by_reason,
    case_speedup,
    case_verdict,
    check_counts,
    circumstances,
    command_text,
    compile_words,
    count,
    failure_text,
    failures,
    grouped,
    labels_of,
    lost_note,
    mean_decimals,
    of_words,
    pass_words,
    ratio_word,
    resume_command,
    run_verdicts,
    speedup_words,
    subject,
    verdict_words,
)
from torchstone.show.text import clip, sanitise, shorten
from torchstone.show.units import format_change, format_percent, format_seconds

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
    head = [*_heading(view), *_section(_suites(view, summaries))]
    parts = (_failures(view), _not_supported(view), _not_run(view), _closing(view))
    tail = [line for part in parts for line in _section(part)]
    room = MOST_CHARACTERS - sum(len(line) + 1 for line in (*head, *tail))
    return "\n".join([*head, *_section(_cases(view, room)), *tail]) + "\n"


def _heading(view: RunView) -> list[str]:
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
    columns: list[Column[SuiteSummary]] = [
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
    columns: list[Column[CaseFigures]] = [
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


def _foreign_cells(name: str) -> Callable[[CaseFigures], str]:
    return lambda case: _said(foreign_cell(case, name))


def _times(case: CaseFigures) -> str:
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


def _closing(view: RunView) -> list[str]:
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
