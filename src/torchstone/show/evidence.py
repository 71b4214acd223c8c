"""The part of a report below the table: what went wrong, what is in doubt, what was checked."""

from __future__ import annotations

import math

from torchstone.records import Check, Comparison, Level, Measurement, Outcome, Result, Verdict
from torchstone.show.budget import advice_of
from torchstone.show.style import Style
from torchstone.show.text import cells, shorten, wrap
from torchstone.show.units import format_percent, format_seconds

STDERR_LINES = 8
"""The last lines of stderr say what happened; the rest is in the JSON."""
_STDERR_ROWS = 3
_STOPPED = {
    "precision": "precise enough",
    "budget": "budget spent",
    "replicates": "as many processes as asked",
    "interrupt": "interrupted",
    "no arm left": "no arm left",
}


def hang(lead: str, text: str, width: int, style: Style, role: str = "") -> list[str]:
    """A paragraph with a hanging indent; `role` paints the lead."""
    indent = cells(lead)
    lines = wrap(text, max(10, width - indent), ellipsis=style.glyphs.ellipsis)
    return [
        (style.paint(lead, role) if i == 0 else " " * indent) + line for i, line in enumerate(lines)
    ]


def outcomes(result: Result, width: int, style: Style) -> list[str]:
    """Every arm that did not end well: what, where, the last words, the remedy."""
    lines: list[str] = []
    for measurement in result.arms:
        if measurement.outcome is not Outcome.OK:
            lines += _outcome(measurement, width, style)
    return lines


def _outcome(measurement: Measurement, width: int, style: Style) -> list[str]:
    detail, glyphs = measurement.detail, style.glyphs
    name = shorten(style.safe(measurement.arm.name), width // 3, glyphs.ellipsis)
    head = measurement.outcome.value.replace("_", " ")
    if detail.phase:
        head += f" ({style.safe(detail.phase)})"
    told = detail.signal in detail.message  # as in "killed by SIGSEGV"
    ends = [style.safe(detail.signal)] if detail.signal and not told else []
    ends += [f"exit code {detail.exit_code}"] if detail.exit_code is not None else []
    text = ": ".join(part for part in (head, style.safe(detail.message)) if part)
    text += f" [{', '.join(ends)}]" if ends else ""
    lines = hang(f"  {glyphs.cross} {name}  ", text, width, style, "fail")
    for said in detail.stderr[-STDERR_LINES:]:
        # Leading blanks are kept: a traceback is read by its indent.
        body = style.safe(said.rstrip().expandtabs(4))
        blank = min(len(body) - len(body.lstrip(" ")), 12)
        for row in wrap(body, width - 6 - blank, rows=_STDERR_ROWS, ellipsis=glyphs.ellipsis):
            lines.append(style.paint(f"    {glyphs.quote} {' ' * blank}{row}".rstrip(), "dim"))
    if detail.remedy:
        lines += hang(f"    {glyphs.arrow} ", style.safe(detail.remedy), width, style)
    return lines


def doubts(result: Result, width: int, style: Style) -> list[str]:
    """Why a verdict is withheld, and the smallest change that this data could have shown."""
    lines: list[str] = []
    for comparison in result.comparisons:
        text = doubt_text(comparison, result)
        if text:
            name = shorten(style.safe(comparison.new), width // 3, style.glyphs.ellipsis)
            said = f"{comparison.verdict.value}: {style.safe(text)}"
            lines += hang(f"  ? {name}  ", said, width, style, "doubt")
    return lines


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


def checks(result: Result, width: int, style: Style) -> list[str]:
    """Fails in full, warnings and notes once a rule, those that passed only counted."""
    marks = {Level.FAIL: style.glyphs.cross, Level.WARN: "!", Level.NOTE: "-"}
    lines: list[str] = []
    for level, mark in marks.items():
        for alike in _by_rule([c for c in result.checks if c.level is level]):
            text = check_text(alike[0], result, style) + _others(alike[1:], style)
            found = hang(f"  {mark} ", text, width, style)
            lines += [style.paint(line, level.value) for line in found]
    passed = sum(check.level is Level.OK for check in result.checks)
    if passed:
        lines.append(style.paint(f"  {passed} check{'' if passed == 1 else 's'} ok", "dim"))
    return lines


def _by_rule(found: list[Check]) -> list[list[Check]]:
    """Checks that one line can speak for: fails each alone, others by rule."""
    groups: dict[str, list[Check]] = {}
    for i, check in enumerate(found):
        key = f"{check.rule} {i}" if check.level is Level.FAIL or not check.arms else check.rule
        groups.setdefault(key, []).append(check)
    return list(groups.values())


def _others(alike: list[Check], style: Style) -> str:
    """Four arms on a noisy machine need not be told four times; the JSON has every figure."""
    names = dict.fromkeys(name for check in alike for name in check.arms)
    shown = [shorten(style.safe(name), 30, style.glyphs.ellipsis) for name in names]
    return f" Likewise {', '.join(shown)}." if shown else ""


def check_text(check: Check, result: Result, style: Style) -> str:
    """`rule: message`, with the arms it speaks of where the message does not name them."""
    unnamed = [name for name in check.arms if name not in check.message]
    if len(result.arms) < 2 or len(check.arms) == len(result.arms):
        unnamed = []
    arms = ", ".join(shorten(style.safe(name), 30, style.glyphs.ellipsis) for name in unnamed)
    rule = style.safe(check.rule)
    return f"{rule}{f' ({arms})' if arms else ''}: {style.safe(check.message)}"


def course(result: Result, style: Style) -> list[str]:
    """How the measurement went: processes, turns, samples, time spent, why it stopped."""
    counted = [m for m in result.arms if m.turns]
    parts: list[str] = []
    if counted:
        processes = max(len({turn.replicate for turn in m.turns}) for m in counted)
        turns = max(len(m.turns) for m in counted)
        samples = sum(len(turn.wall_ns) for m in counted for turn in m.turns)
        each = " an arm" if len(result.arms) > 1 else ""
        parts.append(f"{_count(processes, 'process', 'processes')}, {turns} turns{each}")
        parts.append(_count(samples, "sample", "samples"))
    if result.method.elapsed_s:
        parts.append(format_seconds(result.method.elapsed_s, 3, ascii_only=style.ascii_only))
    if result.thinned:
        command = style.safe(" ".join(result.thinned.command))
        parts.append(
            f"its {_count(result.thinned.samples, 'sample', 'samples')} were removed on "
            f"{style.safe(result.thinned.created[:10])} by `{command}`"
        )
    stopped = result.method.stopped_by
    if stopped:
        parts.append(_STOPPED.get(stopped, stopped))
    return parts


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
