"""A profile in the terminal: what took most, how sure that is, what it cost, what is wrong."""

from __future__ import annotations

from torchstone.records import Counter, Profile
from torchstone.show.heading import flow
from torchstone.show.profile_figures import (
    cost_words,
    facts_of,
    format_amount,
    sampled_interval,
    shares,
)
from torchstone.show.profile_tree import FunctionRow, call_tree, top_functions, unit_of, whole_of
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.text import cells, pad, wrap
from torchstone.show.units import format_bytes, format_percent, format_seconds

LEAST_WIDTH = 60
TOP = 20
MOST_ALIVE = 5
_UNIT_WORDS = {"seconds": "time", "samples": "samples", "bytes": "memory", "calls": "calls"}


def profile_text(
    profile: Profile, *, color: bool = False, width: int = 100, unicode: bool = True, top: int = TOP
) -> str:
    """The whole summary; no line is wider than `width` (60 at least)."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    sections = [
        [style.paint(line, "title") for line in flow(_heading(profile), width, style)],
        *_functions(profile, width, style, top),
        _memory(profile, width, style),
        _counters(profile.counters, width, style),
        _words(profile, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(profile: Profile) -> list[str]:
    facts = dict(facts_of(profile))
    said = [f"profile of {profile.label or profile.id}"]
    return said + [
        facts[name] if name in ("how", "tool") else f"{name} {facts[name]}"
        for name in ("how", "tool", "wall time", "steps", "samples")
        if name in facts
    ]


def _functions(profile: Profile, width: int, style: Style, top: int) -> list[list[str]]:
    tree = call_tree(profile)
    rows = top_functions(profile, tree, top)
    if not rows:
        return []
    unit, whole = unit_of(profile, tree), whole_of(profile, tree)
    names = Column("function", tuple(Cell(style.safe(row.frame.name)) for row in rows))
    groups = [_figures(profile, rows, unit, whole, style), [_places(rows, style)]]
    head = f"most {_UNIT_WORDS.get(unit, unit)} by itself"
    tables = pack(names, groups, width, style)
    return [[style.paint(head, "title"), *tables[0]], *tables[1:]]


def _figures(
    profile: Profile, rows: tuple[FunctionRow, ...], unit: str, whole: float, style: Style
) -> list[Column]:
    def column(title: str, texts: list[str]) -> Column:
        return Column(title, tuple(Cell(text) for text in texts), right=True)

    both = [shares(profile, row, whole) for row in rows]
    intervals = [sampled_interval(profile, row.own, whole, unit) for row in rows]
    columns = [
        column("own", [format_amount(row.own, unit, ascii_only=style.ascii_only) for row in rows]),
        column("share", [format_percent(own) for own, _ in both]),
    ]
    if any(interval is not None for interval in intervals):
        columns.append(column("95 %", [_interval(interval, style) for interval in intervals]))
    columns += [
        column(
            "total", [format_amount(row.total, unit, ascii_only=style.ascii_only) for row in rows]
        ),
        column("share", [format_percent(total) for _, total in both]),
        column("calls", ["" if row.calls is None else f"{row.calls:,}" for row in rows]),
    ]
    return columns


def _interval(interval: tuple[float, float] | None, style: Style) -> str:
    if interval is None:
        return ""
    dash = "-" if style.ascii_only else "–"
    low, high = (format_percent(end).removesuffix(" %") for end in interval)
    return f"{low}{dash}{high} %"


def _places(rows: tuple[FunctionRow, ...], style: Style) -> Column:
    def place(row: FunctionRow) -> str:
        parts = row.frame.file.replace("\\", "/").split("/")
        short = "/".join(parts[-2:])
        return style.safe(f"{short}:{row.frame.line}" if row.frame.line else short)

    return Column("where", tuple(Cell(place(row), "dim") for row in rows))


def _memory(profile: Profile, width: int, style: Style) -> list[str]:
    memory = profile.memory
    if memory is None or not (memory.peak_bytes or memory.alive):
        return []
    head = f"memory: peak {format_bytes(memory.peak_bytes)}"
    if memory.peak_ns:
        head += f" after {format_seconds(memory.peak_ns * 1e-9, 3, ascii_only=style.ascii_only)}"
    alive = sorted(memory.alive, key=lambda tensor: -tensor.bytes)[:MOST_ALIVE]
    lines = [style.paint(head, "title")]
    if memory.source:
        lines += _hung("of", memory.source, width, style)
    for tensor in alive:
        figures = f"{format_bytes(tensor.bytes)} in {tensor.count:,}"
        lines += _hung(pad(figures, 18), tensor.what, width, style)
    return lines


def _counters(counters: tuple[Counter, ...], width: int, style: Style) -> list[str]:
    if not counters:
        return []
    room = max(cells(style.safe(counter.name)) for counter in counters)
    lines = [style.paint("counters", "title")]
    for counter in counters:
        lines += _hung(
            pad(style.safe(counter.name), min(room, width // 2)), _counted(counter), width, style
        )
    return lines


def _counted(counter: Counter) -> str:
    if counter.value is None:
        return counter.note or "not measurable here"
    if counter.unit == "bytes":
        said = format_bytes(counter.value)
    elif counter.unit == "seconds":
        said = format_seconds(counter.value, 3)
    else:
        said = f"{format_amount(counter.value, 'calls')} {counter.unit}".strip()
    return f"{said} ({counter.note})" if counter.note else said


def _words(profile: Profile, width: int, style: Style) -> list[str]:
    lines: list[str] = []
    if profile.cost is not None:
        lines += _hung("cost", cost_words(profile.cost, ascii_only=style.ascii_only), width, style)
    if profile.estimated:
        said = "call paths are estimated: the source knows callers, but not which path led to them"
        lines += _hung("note", said, width, style)
    for problem in profile.problems:
        lines += _hung("warn", problem, width, style, "warn")
    for note in profile.notes:
        lines += _hung("note", note, width, style)
    return lines


def _hung(head: str, text: str, width: int, style: Style, role: str = "dim") -> list[str]:
    """A word and its text beside it, wrapped beneath itself."""
    head = "  " + head + "  "
    room = max(20, width - cells(head))
    rows = wrap(style.safe(text), room, ellipsis=style.glyphs.ellipsis)
    first = style.paint(head, role) + rows[0]
    return [first, *(" " * cells(head) + row for row in rows[1:])]
