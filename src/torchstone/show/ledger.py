"""The ledger in the terminal: lines by level with a bar each, findings, doubts."""

from __future__ import annotations

from collections.abc import Iterable

from torchstone.records import (
    LEVEL_NAMES,
    Ledger,
    LedgerLine,
    LedgerPart,
    Prediction,
    SourceLine,
    Verification,
)
from torchstone.show.heading import allocator_title, flow
from torchstone.show.style import Style
from torchstone.show.text import cells, clip, pad, shorten, wrap
from torchstone.show.units import format_percent, format_seconds

LEAST_WIDTH = 60
BAR = 20
"""Columns of a whole step."""
TITLE = 33
LEAST_PART = 0.01
"""Of the step: parts below are not named."""
LEAST_DRIFT = 0.0005
MOST_PARTS = 4
MOST_PLACES = 4


def ledger_report(
    ledger: Ledger, *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """The whole report; no line is wider than `width` (60 at least)."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    sections = [
        [style.paint(line, "title") for line in flow(heading(ledger), width, style)],
        _table(ledger, width, style),
        _words(ledger, width, style),
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
    time = about + format_seconds(line.seconds, 3, ascii_only=style.ascii_only)
    text = f"{'  ' if head else '    '}{title}{'  ' if head else ''} {_share(line.share)}"
    text += f" {pad(spread, 5)} {pad(time, 9, right=True)}"
    room = width - cells(text) - 2
    bar = _bar(line.share, min(BAR, room), style) if room > 4 else ""
    role = "doubt" if head and abs(line.share) > 0.05 else ""
    return style.paint(f"{text}  {bar}".rstrip(), role)


def _share(share: float) -> str:
    return pad(f"{100 * share:.1f} %", 8, right=True)


def _bar(share: float, room: int, style: Style) -> str:
    full = style.glyphs.bars[-1]
    return full * max(0, min(room, round(share * room)))


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


def _words(ledger: Ledger, width: int, style: Style) -> list[str]:
    return words_lines(told(ledger), ledger.checks, ledger.notes, width, style)


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
