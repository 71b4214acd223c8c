"""Stored profiles, and what one of them says in short; its views are a page of their own."""

from __future__ import annotations

from dataclasses import replace

from torchstone.records import Profile
from torchstone.show.profile_figures import cost_words, facts_of, format_amount, shares
from torchstone.show.profile_tree import call_tree, top_functions, unit_of, whole_of
from torchstone.show.text import sanitise
from torchstone.show.units import format_percent
from torchstone.web.cells import cut, number_cell, text_cell
from torchstone.web.page import Cell, Column, Facts, Notice, Page, Place, Section, Table
from torchstone.web.query import Query
from torchstone.web.sources import Source
from torchstone.web.tables import PAGE_ROWS, arranged
from torchstone.web.views.profiled import profiles_table

EVERY = 1_000_000
"""Profiles, where all are asked for."""
TOP = 50
FUNCTIONS = (
    Column("function", "Function"),
    Column("own", "Own", True),
    Column("own_share", "Share", True),
    Column("total", "Total", True),
    Column("total_share", "Share", True),
    Column("calls", "Calls", True),
    Column("place", "Where"),
    Column("unit", "Unit", shown=False),
)
AMOUNTS = ("own", "total")
"""Columns in the unit of the profile's call tree."""
UNITS = {"seconds": "s"}
"""Units of call trees as other tables write them; those that are not here are the same."""


def profiles(source: Source, query: Query) -> Page:
    """The newest first, a page of them."""
    here = Place("profiles", "", query.kept("sort", "filter", "page"))
    # Another order needs all of them; their own order only those up to this page.
    chosen = bool(query.sort or query.filter)
    most = EVERY if chosen else query.page_number * PAGE_ROWS + 1
    table = arranged(profiles_table(source.store.list_profiles(most)), query, here)
    listed = replace(
        table,
        title="",
        empty="No profile here holds this text."
        if query.filter
        else "No profile is stored yet. Take one with `torchstone profile TARGET`.",
        total=None if table.more and not chosen else table.total,
        whole=(lambda: profiles_table(source.store.list_profiles(EVERY)).rows)
        if table.whole and not chosen
        else table.whole,
        sortable=False,
    )
    return Page("profiles", "Profiles", (listed,), params=query.params)


def profile(source: Source, query: Query, ident: str) -> Page:
    """What it is, what profiling cost, and the functions that took most."""
    found = source.profile(ident)
    items = tuple(
        (sanitise(name), text_cell(value, longest=300)) for name, value in facts_of(found)
    )
    sections: list[Section] = [Facts("profile", "", items)]
    sections += [Notice(sanitise(text), "warn") for text in found.problems]
    sections += [Notice(sanitise(text)) for text in found.notes]
    if found.cost is not None:
        sections.append(Notice(cost_words(found.cost)))
    sections.append(source.made_of(found, _functions))
    return Page(
        "profile",
        f"Profile {cut(sanitise(found.label or found.id), 60)}",
        tuple(sections),
        ident=found.id,
        crumbs=(("Profiles", Place("profiles")),),
        actions=(("Open the views", Place("profile-view", found.id)),),
        params=query.params,
    )


def _functions(found: Profile) -> Table:
    tree = call_tree(found)
    unit, whole = unit_of(found, tree), whole_of(found, tree)
    said = UNITS.get(unit, unit)
    columns = tuple(replace(one, unit=said) if one.key in AMOUNTS else one for one in FUNCTIONS)
    rows = []
    for row in top_functions(found, tree, TOP):
        own, total = shares(found, row, whole)
        place = f"{row.frame.file}:{row.frame.line}" if row.frame.line else row.frame.file
        rows.append(
            (
                text_cell(row.frame.name),
                Cell(row.own, format_amount(row.own, unit)),
                Cell(own, format_percent(own)),
                Cell(row.total, format_amount(row.total, unit)),
                Cell(total, format_percent(total)),
                number_cell(row.calls),
                text_cell(place, longest=80),
                Cell(said),
            )
        )
    return Table(
        "functions",
        "Functions that took most",
        columns,
        tuple(rows),
        empty="This profile counts no functions.",
        total=len(rows),
    )
