"""What fails in the newest run, since when, and the first bad commit."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from torchstone.records import CaseKey, CaseMetrics, FailureSpan, Outcome, RunHead
from torchstone.records.format import count
from torchstone.show.cells import (
    case_place,
    commit_of,
    number_cell,
    outcome_word,
    run_cell,
    run_title,
    text_cell,
    when,
)
from torchstone.show.page import Cell, Field, Link, Notice, Page, Table, field, hidden, make_table
from torchstone.show.run import Labels, failure_text
from torchstone.web.context import controls, resolve
from torchstone.web.query import Query
from torchstone.web.sources import DataAccess
from torchstone.web.tables import arranged
from torchstone.web.views import parts

NOT_RUN = Outcome.NOT_RUN.value
OPTIONAL = ("suite", *parts.SETTINGS, *parts.RUNS_OF)
CONTROLS = (*OPTIONAL, "new", "filter")
NOTE = (
    "Runs of one machine and branch are lined up. The first bad commit is that of the first run "
    "after the last one in which the case passed."
)


def failures(source: DataAccess, query: Query) -> Page:
    """Every case that fails now."""
    context = resolve(source, query)
    here = Link("failures", "", query.params)
    if context.new is None:
        return Page("failures", "Failures", parts.nothing_stored(), params=query.params)
    table = table_of(source, source.failures(context.new, context.cases), context.carried)
    table = arranged(table, query, here)
    return Page(
        "failures",
        "Failures",
        (
            *parts.chosen_words(context),
            *not_run(context.new),
            replace(table, title="", note=NOTE if table.rows else ""),
        ),
        lead=f"In {run_title(context.new)}: {table.total} failing.",
        controls=controls(context, here, CONTROLS, OPTIONAL),
        params=query.params,
    )


def not_run(head: RunHead) -> tuple[Notice, ...]:
    """That planned cases did not run: whoever waits for their figures has none."""
    left = head.planned - sum(n for name, n in head.outcomes.items() if name != NOT_RUN)
    if left <= 0 or head.state == "running":
        return ()
    return (Notice(f"{count(left, 'case')} of {head.planned:,} did not run.", "fail"),)


# The table of what fails: since when, and the first bad commit.


KEY = parts.SETTINGS[1:]


def table_of(
    source: DataAccess, spans: Sequence[FailureSpan], carried: tuple[tuple[str, str], ...] = ()
) -> Table:
    """One row a failing case: what began to fail last comes first, what never passed last."""
    labels = Labels.of(span.figures.key for span in spans)

    def key(span: FailureSpan) -> CaseKey:
        return span.figures.key

    def to(span: FailureSpan) -> Link:
        return case_place(key(span), carried)

    fields: tuple[Field[FailureSpan], ...] = (
        *parts.named_fields(key, labels, to),
        field("outcome", "Outcome", lambda s: outcome_word(s.figures.outcome, s.figures.reason)),
        field("runs_failing", "Runs failing", lambda s: number_cell(s.runs_failing, to(s)), True),
        field("first_bad", "First bad commit", lambda s: _first_bad(source, s)),
        field("last_good", "Last good", lambda s: _commit(s.last_good, "never seen to pass")),
        field("reason", "Reason", lambda s: _reason(s.figures)),
        _text("first_bad_run", "First bad run", lambda s: s.first_bad.id if s.first_bad else ""),
        _text(
            "first_bad_created",
            "Failing since",
            lambda s: s.first_bad.created if s.first_bad else "",
        ),
        _text("last_good_run", "Last good run", lambda s: s.last_good.id if s.last_good else ""),
        *parts.key_fields(KEY, key),
        _text("result_id", "Result", lambda s: s.figures.result_id),
        _text("command", "Command", lambda s: shlex.join(s.figures.command)),
    )
    newest = sorted(spans, key=lambda span: (span.last_good is None, span.runs_failing))
    return make_table("failures", "Failures", fields, newest, empty="Nothing that ran fails.")


def _text(key: str, title: str, value: Callable[[FailureSpan], str]) -> Field[FailureSpan]:
    return hidden(key, title, value, number=False)


def _reason(case: CaseMetrics) -> Cell:
    words = failure_text(case).partition(": ")[2]
    to = Link("result", case.result_id) if case.result_id else None
    return text_cell(words, to, 100)


def _first_bad(source: DataAccess, span: FailureSpan) -> Cell:
    """With all commits since the last good one. Where no stored run passed, the first bad one is
    not known."""
    cell = _commit(span.first_bad)
    if span.last_good is not None or span.first_bad is None:
        return cell._replace(to=source.commit_link(span.first_bad, span.last_good) or cell.to)
    return cell._replace(text="since the first stored run", detail="", mark="quiet")


def _commit(head: RunHead | None, none: str = "") -> Cell:
    if head is None:
        return Cell("", none, mark="quiet" if none else "")
    cell = run_cell(head, commit_of(head) or head.id[:10])
    detail = "" if none else when(head.created)
    return Cell(head.commit, cell.text, cell.to, detail=detail, title=cell.title)
