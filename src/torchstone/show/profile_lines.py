"""Memory line by line in the terminal, beside the source."""

from __future__ import annotations

from torchstone.records import LineTable, Profile
from torchstone.show.style import Style
from torchstone.show.text import cells, clip
from torchstone.show.units import format_bytes

LEAST_WIDTH = 60
MOST_LINES = 40
"""Of a file: those that added most, in their order."""
_FIGURES = 12


def lines_text(
    profile: Profile, *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """A table for each file; empty where no lines were looked at."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    parts = [_table(table, width, style) for table in profile.lines if table.increment]
    return "\n".join("\n".join(lines) + "\n" for lines in parts)


def _table(table: LineTable, width: int, style: Style) -> list[str]:
    heads = ("line", "runs", "in use", "added")
    lines = [style.paint(style.safe(f"memory by line: {table.file}"), "title")]
    lines.append(
        "  " + "  ".join(head.rjust(_FIGURES if i > 1 else 8) for i, head in enumerate(heads))
    )
    order = sorted(range(len(table.lines)), key=lambda i: -abs(table.increment[i]))[:MOST_LINES]
    for i in sorted(order):
        number = table.lines[i]
        figures = (
            str(number).rjust(8),
            f"{table.hits[i]:,}".rjust(8),
            format_bytes(table.bytes[i]).rjust(_FIGURES),
            _signed(table.increment[i]).rjust(_FIGURES),
        )
        head = "  " + "  ".join(figures) + "  "
        text = table.text[number - 1] if 0 < number <= len(table.text) else ""
        lines.append(
            head
            + clip(
                style.safe(text.replace("\t", "    ")),
                max(10, width - cells(head)),
                style.glyphs.ellipsis,
            )
        )
    left = len(table.lines) - len(order)
    return [*lines, f"  {left:,} more lines added less"] if left > 0 else lines


def _signed(size: int) -> str:
    return "0 B" if not size else ("-" if size < 0 else "+") + format_bytes(abs(size))
