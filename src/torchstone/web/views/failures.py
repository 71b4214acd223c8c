"""What fails in the newest run, since when, and the first bad commit."""

from __future__ import annotations

from dataclasses import replace

from torchstone.web.cells import run_title
from torchstone.web.context import controls, resolve
from torchstone.web.page import Page, Place
from torchstone.web.query import Query
from torchstone.web.sources import Source
from torchstone.web.tables import arranged
from torchstone.web.views import failing, keyed, parts

OPTIONAL = ("suite", *keyed.SETTINGS, *keyed.RUNS_OF)
CONTROLS = (*OPTIONAL, "new", "filter")
NOTE = (
    "Runs of one machine and branch are lined up. The first bad commit is that of the first run "
    "after the last one in which the case passed."
)


def failures(source: Source, query: Query) -> Page:
    """Every case that fails now."""
    context = resolve(source, query, modes=False)
    here = Place("failures", "", query.params)
    if context.new is None:
        return Page("failures", "Failures", parts.nothing_stored(), params=query.params)
    table = failing.table_of(source.failures(context.new, context.cases), context.carried)
    table = arranged(table, query, here)
    return Page(
        "failures",
        "Failures",
        (*parts.chosen_words(context), replace(table, title="", note=NOTE if table.rows else "")),
        lead=f"In {run_title(context.new)}: {table.total} failing.",
        controls=controls(context, here, CONTROLS, OPTIONAL),
        params=query.params,
    )
