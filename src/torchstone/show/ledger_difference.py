"""Two ledgers side by side in the terminal: lines, ops that changed, breaks with their lines."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import LEVEL_NAMES, Difference, Ledger, OpChange
from torchstone.show.heading import flow
from torchstone.show.ledger import LEAST_WIDTH, TITLE, findings_lines, told, words_lines
from torchstone.show.style import Style
from torchstone.show.text import clip, pad, shorten, wrap
from torchstone.show.units import format_seconds

TIME = 10
MOST_PLACES = 8


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
        _table(base, new, min(TITLE, width - 3 * (TIME + 2)), style),
        _changes(found, width, style),
        _breaks(new, width, style),
        _words(found, width, style),
        _findings(new, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _findings(new: Ledger, width: int, style: Style) -> list[str]:
    """Of the new one, which are also those that `--verify` tests."""
    head = style.safe(f"What would help under {new.arm.variant}:")
    title = style.paint(clip(head, width, style.glyphs.ellipsis), "title")
    return [title, *findings_lines(new, width, style)]


def _table(base: Ledger, new: Ledger, room: int, style: Style) -> list[str]:
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
        lines += [_line(name, text, base, new, room, style) for name, text in rows.items()]
    lines.append(_row("a step", base.wall_s, new.wall_s, room, style))
    return lines


def _line(name: str, title: str, base: Ledger, new: Ledger, room: int, style: Style) -> str:
    old, now = base.line(name), new.line(name)
    return _row(f"  {title}", old.seconds if old else 0.0, now.seconds if now else 0.0, room, style)


def _row(title: str, before: float, after: float, room: int, style: Style) -> str:
    sign = "+" if after > before else ""
    shown = [
        format_seconds(value, 3, ascii_only=style.ascii_only) if value else "-"
        for value in (before, after)
    ]
    shown.append(sign + format_seconds(after - before, 3, ascii_only=style.ascii_only))
    cells = "".join(pad(text, TIME + 2, right=True) for text in shown)
    role = "good" if after < 0.9 * before else "bad" if after > 1.1 * before else ""
    name = pad(shorten(title, room, style.glyphs.ellipsis), room)
    return name + style.paint(cells, role)


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
    before = format_seconds(change.before_s, 3, ascii_only=style.ascii_only)
    after = format_seconds(change.after_s, 3, ascii_only=style.ascii_only)
    pair = f"{pad(before, 9, right=True)} {style.glyphs.arrow} {pad(after, 9, right=True)}"
    return (
        f"{pair}  {change.calls_before:4.0f} {style.glyphs.arrow} {change.calls_after:4.0f} calls"
    )


def _breaks(new: Ledger, width: int, style: Style) -> list[str]:
    lines: list[str] = []
    for title, places in (("Graph breaks:", new.breaks), ("Compiled again:", new.recompiles)):
        if places:
            lines.append(style.paint(title, "title"))
        for place in places[:MOST_PLACES]:
            text = f"  {style.safe(place.file)}:{place.line}  {style.safe(place.reason)}"
            lines.append(clip(text, width, style.glyphs.ellipsis))
    return lines


def _words(found: Difference, width: int, style: Style) -> list[str]:
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
