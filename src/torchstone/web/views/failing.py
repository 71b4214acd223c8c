"""The table of what fails: since when, and the first bad commit."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import CaseFigures, FailureSpan, RunHead
from torchstone.show.run_words import Labels, command_text, failure_text
from torchstone.web.cells import (
    case_place,
    commit_of,
    number_cell,
    outcome_word,
    run_cell,
    text_cell,
    when,
)
from torchstone.web.page import Cell, Column, Place, Table
from torchstone.web.tables import LazyRows
from torchstone.web.views import keyed

KEY = keyed.SETTINGS[1:]
COLUMNS = (
    *keyed.NAMED,
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
    *keyed.columns(KEY),
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
        *keyed.named(key, labels, to),
        outcome_word(case.outcome, case.reason),
        _reason(case),
        number_cell(span.runs_failing, to),
        _commit(span.first_bad),
        _commit(span.last_good, "never seen to pass"),
        Cell(span.first_bad.id if span.first_bad else ""),
        Cell(span.first_bad.created if span.first_bad else ""),
        Cell(span.last_good.id if span.last_good else ""),
        *keyed.cells(key, KEY),
        Cell(case.result_id),
        Cell(command_text(case)),
    )


def _reason(case: CaseFigures) -> Cell:
    words = failure_text(case).partition(": ")[2]
    to = Place("result", case.result_id) if case.result_id else None
    return text_cell(words, to, 100)


def _commit(head: RunHead | None, none: str = "") -> Cell:
    if head is None:
        return Cell("", none, mark="quiet" if none else "")
    cell = run_cell(head, commit_of(head) or head.id[:10])
    detail = "" if none else when(head.created)
    return Cell(head.commit, cell.text, cell.to, detail=detail, title=cell.title)
