"""Several ways of profiling the same work, side by side in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchstone.profile.agree import Row, SideBySide, side_by_side
from torchstone.records import Estimate, Profile
from torchstone.show.profile_figures import work_of
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.text import wrap
from torchstone.show.units import format_bytes, format_interval, format_percent, format_ratio

LEAST_WIDTH = 60


def ways_text(
    profiles: Sequence[Profile], *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """Of each work that was looked at in several ways (a variant is one): shares by way with
    intervals, what each cost, and where they disagree. Empty where there is none."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    works: dict[str, list[Profile]] = {}
    for profile in profiles:
        works.setdefault(work_of(profile), []).append(profile)
    compared = {
        work: of for work, of in works.items() if len({one.how for one in of}) == len(of) > 1
    }
    texts = [
        _of_one_work(of, work if len(compared) > 1 else "", width, style)
        for work, of in compared.items()
    ]
    return "\n".join(texts)


def _of_one_work(profiles: Sequence[Profile], name: str, width: int, style: Style) -> str:
    found = side_by_side(profiles)
    head = "side by side: share of the time, callees included"
    head = f"{style.safe(name)}, {head}" if name else head
    lines = [style.paint(row, "title") for row in wrap(head, width)]
    if found.rows:
        names = Column("function", tuple(Cell(style.safe(row.name)) for row in found.rows))
        columns = [_column(found, way, style) for way in found.ways]
        places = tuple(Cell(style.safe(f"{row.file}:{row.line}"), "dim") for row in found.rows)
        marks = tuple(Cell("differ" if row.apart else "", "warn") for row in found.rows)
        tables = pack(
            names, [columns, [Column("", marks)], [Column("where", places)]], width, style
        )
        lines += [line for table in tables for line in table]
    lines += _costs(profiles, width, style)
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


def _costs(profiles: Sequence[Profile], width: int, style: Style) -> list[str]:
    """What each cost: time with it against without, beside nothing against nothing."""
    paid = [(profile, profile.cost) for profile in profiles if profile.cost is not None]
    if not paid:
        return []

    def said(estimate: Estimate) -> Cell:
        ratio = format_ratio(estimate.time_ratio, 2, ascii_only=style.ascii_only)
        interval = format_interval(estimate.interval, 2, ascii_only=style.ascii_only)
        return Cell(f"{ratio} ({interval})")

    def column(head: str, cells: Iterable[Cell]) -> Column:
        return Column(head, tuple(cells), right=True)

    names = Column("way", tuple(Cell(style.safe(f"{one.how} ({one.tool})")) for one, _ in paid))
    columns = [
        column("time", (said(cost.ratio) for _, cost in paid)),
        column("control", (said(cost.control) for _, cost in paid)),
        column("written", (Cell(format_bytes(cost.footprint_bytes)) for _, cost in paid)),
        column("memory", (Cell(format_bytes(cost.memory_bytes)) for _, cost in paid)),
    ]
    tables = pack(names, [columns], width, style)
    title = style.paint("what profiling cost: profiled against unprofiled", "title")
    return ["", title, *(line for table in tables for line in table)]
