"""One stored result, whole."""

from __future__ import annotations

from torchstone.show.heading import machine, what
from torchstone.show.text import sanitise
from torchstone.web.cells import command_line, cut, text_cell, when
from torchstone.web.page import Cell, Code, Facts, Page, Place
from torchstone.web.query import Query
from torchstone.web.sources import Source
from torchstone.web.views.evidence import evidence


def result(source: Source, query: Query, ident: str) -> Page:
    """A result with its samples and everything that was found about it."""
    found = source.result(ident)
    items = (
        ("Id", text_cell(found.id)),
        ("Made", Cell(found.created, when(found.created))),
        ("Kind", text_cell(found.kind)),
        ("Machine", text_cell(" · ".join(machine(found)), longest=160)),
        ("Origin", text_cell(found.origin)),
    )
    words = what(found)
    return Page(
        "result",
        f"Result {cut(sanitise(found.label or found.id), 60)}",
        (
            Facts("result", "", items),
            *evidence(source, found),
            Code("command", "The command that made it", command_line(found.command)),
            Code("repro", "Measure it again", command_line(["torchstone", "repro", found.id])),
        ),
        ident=found.id,
        lead=cut(sanitise(" · ".join(words)), 300),
        crumbs=(("Overview", Place("landing")),),
        params=query.params,
    )
