"""Below a run's tables: failures with their reasons, what cannot run, what was not run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from torchstone.records import CaseFigures, Outcome, RunView
from torchstone.show.commands import in_database
from torchstone.show.evidence import hang
from torchstone.show.run_words import (
    by_reason,
    check_counts,
    count,
    failure_text,
    failures,
    model_names,
    only_variants,
    resume_command,
)
from torchstone.show.style import Style
from torchstone.show.text import cells, shorten, wrap

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


def _failure(case: CaseFigures, db: str, width: int, style: Style) -> list[str]:
    glyphs = style.glyphs
    name = shorten(style.safe(case.key.name), width - 4, glyphs.ellipsis)
    lines = [f"  {style.paint(glyphs.cross, 'fail')} {style.paint(name, 'title')}"]
    lines += hang("    ", style.safe(failure_text(case)), width, style)
    return lines + _again(case, db, width, style)


def _again(case: CaseFigures, db: str, width: int, style: Style) -> list[str]:
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


def commands(view: RunView, db: str, width: int, style: Style) -> list[str]:
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


def unsupported_text(view: RunView, reason: str, cases: Sequence[CaseFigures]) -> str:
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
