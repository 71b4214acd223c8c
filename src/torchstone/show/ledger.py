"""The ledger in the terminal: lines by level with a bar each, findings, doubts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchstone.records import (
    LEVEL_NAMES,
    Difference,
    Ledger,
    LedgerLine,
    LedgerPart,
    OpChange,
    Prediction,
    SourceLine,
    Verification,
)
from torchstone.records.format import format_percent, format_seconds
from torchstone.show.markdown import plain, to_text
from torchstone.show.rows import allocator_title, flow
from torchstone.show.table import Style, cells, clip, pad, sanitise, shorten, wrap

LEAST_WIDTH = 60
BAR = 20
"""Columns of a whole step."""
TITLE = 33
LEAST_PART = 0.01
"""Of the step: parts below are not named."""
LEAST_DRIFT = 0.0005
MOST_PARTS = 4
MOST_PLACES, MOST_BREAKS = 4, 8


def ledger_report(
    ledger: Ledger, *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """The whole report; no line is wider than `width` (60 at least)."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    sections = [
        [style.paint(line, "title") for line in flow(heading(ledger), width, style)],
        _table(ledger, width, style),
        words_lines(told(ledger), ledger.checks, ledger.notes, width, style),
        findings_lines(ledger, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def heading(ledger: Ledger) -> list[str]:
    """What was looked at, and how long a step takes."""
    arm = ledger.arm
    threads = ledger.facts.get("threads", "")
    parts = [
        f"ledger of {arm.target}",
        arm.variant,
        arm.mode,
        arm.precision,
        arm.device,
        f"{threads} thread{'' if threads == '1' else 's'}" if threads else "",
        allocator_title(arm.allocator),
        f"{format_seconds(ledger.wall_s, 3)} a step",
        f"{ledger.steps} steps in {ledger.rounds} rounds",
    ]
    return [part for part in parts if part]


def _table(ledger: Ledger, width: int, style: Style) -> list[str]:
    lines: list[str] = []
    for level, name in LEVEL_NAMES.items():
        found = ledger.level(level)
        if not found:
            continue
        total = sum(line.share for line in found)
        head = f"{level} {name}" if level > 0 else f"  {name}"
        if level >= 4:
            head += " (the kernels once more)"
        if level == -1:
            lines.append(_row(found[0], width, style, head=True))
            continue
        lines.append(style.paint(f"{pad(head, TITLE + 2)} {_share(total)}", "title"))
        for line in found:
            lines.append(_row(line, width, style))
            lines += _parts(line, ledger, width, style)
    return lines


def _row(line: LedgerLine, width: int, style: Style, head: bool = False) -> str:
    about = "~" if line.estimated else ""
    title = pad(shorten(line.title, TITLE - 2, style.glyphs.ellipsis), TITLE - 2)
    spread = f"{style.glyphs.plus_minus}{100 * line.spread:.1f}" if line.spread >= 0.0005 else ""
    time = about + _seconds(line.seconds, style)
    text = f"{'  ' if head else '    '}{title}{'  ' if head else ''} {_share(line.share)}"
    text += f" {pad(spread, 5)} {pad(time, 9, right=True)}"
    room = width - cells(text) - 2
    bar = style.glyphs.bars[-1] * round(min(max(line.share, 0.0), 1.0) * min(BAR, room))
    role = "doubt" if head and abs(line.share) > 0.05 else ""
    return style.paint(f"{text}  {bar if room > 4 else ''}".rstrip(), role)


def _share(share: float) -> str:
    return pad(f"{100 * share:.1f} %", 8, right=True)


def parts_worth_naming(line: LedgerLine, ledger: Ledger) -> list[LedgerPart]:
    """The largest parts of a line."""
    return [p for p in line.parts if p.seconds >= LEAST_PART * ledger.wall_s][:MOST_PARTS]


def has_amounts(line: LedgerLine) -> bool:
    """Not the interpreter's: by cProfile there are names, and in what order, but no amounts."""
    return line.name != "interpreter"


def _parts(line: LedgerLine, ledger: Ledger, width: int, style: Style) -> list[str]:
    shown = parts_worth_naming(line, ledger)
    if not has_amounts(line):
        said = ", ".join(f"{part.name} ({_short(part.note)})" for part in shown)
        rows = wrap(style.safe(f"most in {said}"), width - 8, rows=2) if shown else []
        return [style.paint(f"        {row}", "dim") for row in rows]
    return [_part(part, ledger.wall_s, width, style) for part in shown]


def _part(part: LedgerPart, wall_s: float, width: int, style: Style) -> str:
    calls = f" ×{part.calls:.0f}" if part.calls >= 1.5 else ""
    note = f"  {_short(part.note)}" if part.note else ""
    text = (
        f"        {format_percent(part.seconds / wall_s):>7} "
        f"{style.safe(part.name)}{style.safe(calls)}{style.safe(note)}"
    )
    return style.paint(clip(text, width, style.glyphs.ellipsis), "dim")


def _short(place: str) -> str:
    """A path of which only the end tells something."""
    return "/".join(place.replace("\\", "/").split("/")[-2:])


def told(ledger: Ledger) -> tuple[str, ...]:
    """Sentences on the interpreter's lock, the hardware and the drift."""
    said = (ledger.interpreter, *ledger.hardware, drift_words(ledger))
    return tuple(text for text in said if text)


def words_lines(
    said: Iterable[str], doubts: Iterable[str], notes: Iterable[str], width: int, style: Style
) -> list[str]:
    """What stands below the table: sentences, then doubts, then notes."""
    lines: list[str] = []
    for text in said:
        lines += wrap(style.safe(text), width, ellipsis=style.glyphs.ellipsis)
    for mark, role, texts in (("! ", "warn", doubts), ("- ", "dim", notes)):
        for text in texts:
            lines += _wrapped(text, width, style, role, mark, "  ")
    return lines


def drift_words(ledger: Ledger) -> str:
    """By how much traced times were scaled to those of plain steps; empty where by nothing."""
    try:
        drift = float(ledger.facts.get("drift", "1"))
    except ValueError:
        return ""
    if abs(drift - 1) < LEAST_DRIFT:
        return ""
    return f"Traced times were scaled by {drift:.3f} to those of the plain steps."


def findings_lines(ledger: Ledger, width: int, style: Style) -> list[str]:
    """Numbered, each with evidence, advice and what it would bring; tests beside them."""
    if not ledger.findings:
        return [style.paint("Nothing stands out: no finding.", "dim")]
    tests = {one.finding: one for one in ledger.verifications}
    lines: list[str] = []
    for number, finding in enumerate(ledger.findings, 1):
        head = f"{number}. {finding.title} (level {finding.level}): {finding.evidence}."
        lines += _wrapped(head, width, style, "title", "", "   ")
        lines += _wrapped(remedy_words(finding), width, style, "", "   ", "   ")
        lines += [_place(place, width, style) for place in finding.places[:MOST_PLACES]]
        test = tests.get(finding.name)
        if test is not None:
            lines += _wrapped(test.sentence, width, style, _role(test), "   ", "   ")
    return lines


def remedy_words(finding: Prediction) -> str:
    """What to do, and what it would bring."""
    said = f"Remedy: {finding.advice}. {predicted_words(finding)}".rstrip()
    return said if finding.remedy.applicable else f"{said} By hand: {finding.why_not}."


def predicted_words(finding: Prediction) -> str:
    """The range; nothing where none is predicted."""
    low, high = finding.time_ratio
    return f"Predicted: {low:.2f} to {high:.2f} of the time." if low < high else ""


def _role(test: Verification) -> str:
    return "good" if test.held else "bad" if test.held is False else "dim"


def _place(place: SourceLine, width: int, style: Style) -> str:
    where = f"{place.file}:{place.line}" if place.line else place.file
    text = f"     {style.safe(_short(where))}  {style.safe(place.reason)}"
    return style.paint(clip(text, width, style.glyphs.ellipsis), "dim")


def _wrapped(text: str, width: int, style: Style, role: str, first: str, then: str) -> list[str]:
    rows = wrap(style.safe(text), width - len(then), ellipsis=style.glyphs.ellipsis)
    return [style.paint((first if i == 0 else then) + row, role) for i, row in enumerate(rows)]


# Two ledgers side by side in the terminal: lines, ops that changed, breaks with their lines.


TIME = 10


def difference_report(
    found: Difference, *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """The whole report."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    base, new = found.base, found.new
    parts = [f"{base.arm.target}", f"{base.arm.variant} against {new.arm.variant}", base.arm.mode]
    sections = [
        [style.paint(line, "title") for line in flow(parts, width, style)],
        [row for text in found.sentences for row in wrap(style.safe(text), width)],
        _both(base, new, min(TITLE, width - 3 * (TIME + 2)), style),
        _changes(found, width, style),
        _breaks(new, width, style),
        _said_of_both(found, width, style),
        _findings(new, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _findings(new: Ledger, width: int, style: Style) -> list[str]:
    """Of the new one, which are also those that `--verify` tests."""
    head = style.safe(f"What would help under {new.arm.variant}:")
    title = style.paint(clip(head, width, style.glyphs.ellipsis), "title")
    return [title, *findings_lines(new, width, style)]


def _both(base: Ledger, new: Ledger, room: int, style: Style) -> list[str]:
    names = (base.arm.variant, new.arm.variant, "change")
    cells = "".join(pad(shorten(name, TIME), TIME + 2, right=True) for name in names)
    lines = [style.paint(pad("", room) + cells, "dim")]
    for level, title in LEVEL_NAMES.items():
        rows = {line.name: line.title for line in (*base.level(level), *new.level(level))}
        if not rows:
            continue
        if level != -1:
            head = f"{level} {title}" if level > 0 else title
            lines.append(style.paint(head, "title"))
        for name, text in rows.items():
            old, now = (found.seconds if (found := one.line(name)) else 0.0 for one in (base, new))
            lines.append(_difference(f"  {text}", old, now, room, style))
    lines.append(_difference("a step", base.wall_s, new.wall_s, room, style))
    return lines


def _difference(title: str, before: float, after: float, room: int, style: Style) -> str:
    shown = [_seconds(value, style) if value else "-" for value in (before, after)]
    shown.append(("+" if after > before else "") + _seconds(after - before, style))
    cells = "".join(pad(text, TIME + 2, right=True) for text in shown)
    role = "good" if after < 0.9 * before else "bad" if after > 1.1 * before else ""
    name = pad(shorten(title, room, style.glyphs.ellipsis), room)
    return name + style.paint(cells, role)


def _seconds(value: float, style: Style) -> str:
    return format_seconds(value, 3, ascii_only=style.ascii_only)


def _changes(found: Difference, width: int, style: Style) -> list[str]:
    if not found.changes:
        return []
    lines = [style.paint("Ops that changed:", "title")]
    for change in found.changes:
        text = f"  {pad(change.kind, 9)} {_amount(change, style)}  {style.safe(change.name)}"
        if change.into:
            text += f" {style.glyphs.arrow} {style.safe(', '.join(change.into))}"
        lines.append(clip(text, width, style.glyphs.ellipsis))
    return lines


def _amount(change: OpChange, style: Style) -> str:
    times = (_seconds(value, style) for value in (change.before_s, change.after_s))
    pair = f" {style.glyphs.arrow} ".join(pad(text, 9, right=True) for text in times)
    calls = f"{change.calls_before:4.0f} {style.glyphs.arrow} {change.calls_after:4.0f} calls"
    return f"{pair}  {calls}"


def _breaks(new: Ledger, width: int, style: Style) -> list[str]:
    lines: list[str] = []
    for title, places in (("Graph breaks:", new.breaks), ("Compiled again:", new.recompiles)):
        if places:
            lines.append(style.paint(title, "title"))
        for place in places[:MOST_BREAKS]:
            text = f"  {style.safe(place.file)}:{place.line}  {style.safe(place.reason)}"
            lines.append(clip(text, width, style.glyphs.ellipsis))
    return lines


def _said_of_both(found: Difference, width: int, style: Style) -> list[str]:
    """What each ledger has to say for itself; once where both say the same."""
    base, new = found.base, found.new

    def of_both(before: Sequence[str], after: Sequence[str]) -> list[str]:
        same = [text for text in before if text in after]
        return [
            *(f"both: {text}" for text in same),
            *(f"{base.arm.variant}: {text}" for text in before if text not in same),
            *(f"{new.arm.variant}: {text}" for text in after if text not in same),
        ]

    return words_lines(
        of_both(told(base), told(new)),
        of_both(base.checks, new.checks),
        of_both(base.notes, new.notes),
        width,
        style,
    )


# The ledger and the difference of two as JSON and as Markdown.
#
# Every key of the JSON is explained in `docs/reference/json.md`.


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """The ledger as plain data."""
    return {"kind": "ledger", **plain(ledger)}


def difference_document(found: Difference) -> dict[str, Any]:
    """Both ledgers and what changed."""
    return {
        "kind": "ledger difference",
        "schema": found.schema,
        "base": ledger_document(found.base),
        "new": ledger_document(found.new),
        "changes": plain(found.changes),
        "sentences": plain(found.sentences),
    }


def ledger_dumps(found: Ledger | Difference) -> str:
    """The document as ASCII text."""
    if isinstance(found, Difference):
        return to_text(difference_document(found))
    return to_text(ledger_document(found))


def difference_markdown(found: Difference) -> str:
    """Why, in sentences; both ledgers, what became of the ops, where compiled code is left."""
    base, new = found.base, found.new
    lines = [
        f"### `{_safe(base.arm.target)}`: {_safe(base.arm.variant)} against "
        f"{_safe(new.arm.variant)}",
        "",
        *(f"- {_safe(text)}" for text in found.sentences),
        "",
    ]
    if found.changes:
        lines += ["| op | | before | after | calls | now in |", "|---|---|---:|---:|---:|---|"]
        lines += [_change_row(change) for change in found.changes]
        lines.append("")
    for title, places in (("Graph breaks", new.breaks), ("Compiled again", new.recompiles)):
        if places:
            lines += [f"{title}:", ""]
            lines += [
                f"- {_safe(place.file)}:{place.line} {_safe(place.reason)}" for place in places
            ]
            lines.append("")
    return "\n".join([*lines, ledger_markdown(base), ledger_markdown(new)])


def _change_row(change: OpChange) -> str:
    before, after = format_seconds(change.before_s, 3), format_seconds(change.after_s, 3)
    calls = f"{change.calls_before:.0f} to {change.calls_after:.0f}"
    into = ", ".join(_safe(name) for name in change.into)
    return f"| {_safe(change.name)} | {change.kind} | {before} | {after} | {calls} | {into} |"


def ledger_markdown(ledger: Ledger) -> str:
    """A table to paste into an issue, the findings, the doubts."""
    arm = ledger.arm
    lines = [
        f"### Ledger of `{_safe(arm.target)}` ({arm.variant}, {arm.mode})",
        "",
        f"{format_seconds(ledger.wall_s, 3)} a step, {ledger.steps} steps.",
        "",
        "| level | line | share | time |",
        "|---|---|---:|---:|",
    ]
    for level, name in LEVEL_NAMES.items():
        for line in ledger.level(level):
            about = "~" if line.estimated else ""
            lines.append(
                f"| {name} | {line.title} | {100 * line.share:.1f} % | "
                f"{about}{format_seconds(line.seconds, 3)} |"
            )
    lines.append("")
    tests = {one.finding: one.sentence for one in ledger.verifications}
    for number, finding in enumerate(ledger.findings, 1):
        said = f"{predicted_words(finding)} {tests.get(finding.name, '')}".strip()
        lines.append(
            f"{number}. **{finding.title}**: {_safe(finding.evidence)}. {_safe(finding.advice)}. "
            f"{_safe(said)}".rstrip()
        )
    if ledger.findings:
        lines.append("")
    lines += [f"- {_safe(text)}" for text in (*told(ledger), *ledger.notes)]
    lines += ["", *(f"> {_safe(text)}" for text in ledger.checks)]
    return "\n".join(lines).rstrip() + "\n"


def _safe(text: str) -> str:
    """Harmless in Markdown: no controls, no tags, no table cells of its own."""
    return sanitise(text).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
