"""Several ways of profiling the same work, side by side in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.profile.agree import Row, SideBySide, side_by_side
from torchstone.records import Profile
from torchstone.show.profile_figures import cost_words
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.text import wrap
from torchstone.show.units import format_bytes, format_percent

LEAST_WIDTH = 60


def ways_text(
    profiles: Sequence[Profile], *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """Shares by way with intervals, what each cost, and where they disagree."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    found = side_by_side(profiles)
    lines = [style.paint("side by side: share of the time, callees included", "title")]
    if found.rows:
        names = Column("function", tuple(Cell(style.safe(row.name)) for row in found.rows))
        columns = [_column(found, way, style) for way in found.ways]
        places = tuple(Cell(style.safe(f"{row.file}:{row.line}"), "dim") for row in found.rows)
        marks = tuple(Cell("differ" if row.apart else "", "warn") for row in found.rows)
        tables = pack(
            names, [columns, [Column("", marks)], [Column("where", places)]], width, style
        )
        lines += [line for table in tables for line in table]
    for profile in profiles:
        lines += _cost(profile, width, style)
    head = "Where they disagree by more than chance:" if found.sentences else ""
    head = head or "No function's shares differ by more than chance."
    lines += ["", *wrap(head, width, ellipsis=style.glyphs.ellipsis)]
    for sentence in found.sentences:
        rows = wrap(style.safe(sentence), width - 2, ellipsis=style.glyphs.ellipsis)
        lines += [f"  {row}" for row in rows]
    return "\n".join(lines) + "\n"


def _column(found: SideBySide, way: str, style: Style) -> Column:
    return Column(way, tuple(Cell(_share(row, way, style)) for row in found.rows), right=True)


def _share(row: Row, way: str, style: Style) -> str:
    share = row.shares.get(way)
    if share is None:
        return ""
    said = format_percent(share.value)
    if share.interval is not None:
        dash = "-" if style.ascii_only else "–"
        low, high = (format_percent(end).removesuffix(" %") for end in share.interval)
        said += f" ({low}{dash}{high})"
    return said


def _cost(profile: Profile, width: int, style: Style) -> list[str]:
    if profile.cost is None:
        return []
    said = f"{profile.how}: {cost_words(profile.cost, ascii_only=style.ascii_only)}"
    said += f"; wrote {format_bytes(profile.cost.footprint_bytes)}"
    return list(wrap(style.safe(said), width, ellipsis=style.glyphs.ellipsis))
