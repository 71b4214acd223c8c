"""What fails in the newest run, since when, and the first bad commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchstone.records import CaseMetrics, FailureSpan, RunHead
from torchstone.show.run_table import Labels, command_text, failure_text
from torchstone.web.cells import (
    LazyRows,
    arranged,
    case_place,
    commit_of,
    number_cell,
    outcome_word,
    run_cell,
    run_title,
    text_cell,
    when,
)
from torchstone.web.context import controls, resolve
from torchstone.web.page import Cell, Column, Link, Page, Table
from torchstone.web.query import Query
from torchstone.web.sources import DataAccess
from torchstone.web.views import parts

OPTIONAL = ("suite", *parts.SETTINGS, *parts.RUNS_OF)
CONTROLS = (*OPTIONAL, "new", "filter")
NOTE = (
    "Runs of one machine and branch are lined up. The first bad commit is that of the first run "
    "after the last one in which the case passed."
)


def failures(source: DataAccess, query: Query) -> Page:
    """Every case that fails now."""
    context = resolve(source, query, modes=False)
    here = Link("failures", "", query.params)
    if context.new is None:
        return Page("failures", "Failures", parts.nothing_stored(), params=query.params)
    table = table_of(source.failures(context.new, context.cases), context.carried)
    table = arranged(table, query, here)
    return Page(
        "failures",
        "Failures",
        (*parts.chosen_words(context), replace(table, title="", note=NOTE if table.rows else "")),
        lead=f"In {run_title(context.new)}: {table.total} failing.",
        controls=controls(context, here, CONTROLS, OPTIONAL),
        params=query.params,
    )


# The table of what fails: since when, and the first bad commit.


KEY = parts.SETTINGS[1:]
COLUMNS = (
    *parts.NAMED,
    Column("outcome", "Outcome"),
    Column("reason", "Reason"),
    Column("runs_failing", "Runs failing", True),
    Column("first_bad", "First bad commit"),
    Column("last_good", "Last good"),
)
HIDDEN = (
    Column("first_bad_run", "First bad run", shown=False),
    Column("first_bad_created", "Failing since", shown=False),
    Column("last_good_run", "Last good run", shown=False),
    *parts.columns(KEY),
    Column("result_id", "Result", shown=False),
    Column("command", "Command", shown=False),
)


def table_of(spans: Sequence[FailureSpan], carried: tuple[tuple[str, str], ...] = ()) -> Table:
    """One row a failing case."""
    labels = Labels.of(span.figures.key for span in spans)
    rows = LazyRows(spans, lambda span: _row(span, labels, carried))
    return Table("failures", "Failures", (*COLUMNS, *HIDDEN), rows, empty="Nothing fails.")


def _row(
    span: FailureSpan, labels: Labels, carried: tuple[tuple[str, str], ...]
) -> tuple[Cell, ...]:
    case, key = span.figures, span.figures.key
    to = case_place(key, carried)
    return (
        *parts.named(key, labels, to),
        outcome_word(case.outcome, case.reason),
        _reason(case),
        number_cell(span.runs_failing, to),
        _commit(span.first_bad),
        _commit(span.last_good, "never seen to pass"),
        Cell(span.first_bad.id if span.first_bad else ""),
        Cell(span.first_bad.created if span.first_bad else ""),
        Cell(span.last_good.id if span.last_good else ""),
        *parts.cells(key, KEY),
        Cell(case.result_id),
        Cell(command_text(case)),
    )


def _reason(case: CaseMetrics) -> Cell:
    words = failure_text(case).partition(": ")[2]
    to = Link("result", case.result_id) if case.result_id else None
    return text_cell(words, to, 100)


def _commit(head: RunHead | None, none: str = "") -> Cell:
    if head is None:
        return Cell("", none, mark="quiet" if none else "")
    cell = run_cell(head, commit_of(head) or head.id[:10])
    detail = "" if none else when(head.created)
    return Cell(head.commit, cell.text, cell.to, detail=detail, title=cell.title)
