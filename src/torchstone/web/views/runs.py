"""Stored runs, and one run with how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from torchstone.records import Outcome, RunHead, Selection, SuiteSummary
from torchstone.records.format import count
from torchstone.show.cells import (
    LONGEST_LABEL,
    commit_cell,
    cut,
    nanoseconds_cell,
    number_cell,
    run_cell,
    run_title,
    state_cell,
    suite_title,
    text_cell,
    when,
)
from torchstone.show.page import (
    Cell,
    Choice,
    Code,
    Controls,
    Facts,
    Field,
    Group,
    Link,
    Notice,
    Page,
    Progress,
    Section,
    Table,
    ends,
    field,
    hidden,
    make_table,
)
from torchstone.show.rows import processor_name
from torchstone.show.run import Labels, itself, suite_fields
from torchstone.show.table import sanitise
from torchstone.store.heartbeat import Part
from torchstone.web.context import newer_than
from torchstone.web.query import BadQuery, Query, selection
from torchstone.web.sources import DataAccess
from torchstone.web.tables import arranged
from torchstone.web.views import failures, parts
from torchstone.web.views.headline import summary_words

PAGE_RUNS = 50
AT_ONCE = 1000
"""Runs read at once where all are asked for."""


def _outcomes(head: RunHead, *wanted: Outcome) -> int:
    return sum(head.outcomes.get(one.value, 0) for one in wanted)


def _own(head: RunHead) -> Link:
    return Link("run", head.id)


def _failed(head: RunHead) -> Cell:
    failed = _outcomes(head, *(one for one in Outcome if one.failed))
    return Cell(failed, f"{failed:,}", _own(head), "fail" if failed else "quiet")


def _machine(head: RunHead, longest: int = LONGEST_LABEL) -> Cell:
    to = Link("machine", head.machine_id) if head.machine_id else None
    return text_cell(processor_name(head.machine), to, longest)


RUNS: tuple[Field[RunHead], ...] = (
    field("run", "Run", run_cell),
    field("state", "State", state_cell),
    field("commit", "Commit", commit_cell),
    field("label", "Label", lambda h: text_cell(h.label, longest=32)),
    field("suites", "Suites", lambda h: text_cell(", ".join(h.suites), longest=48)),
    field("passed", "Passed", lambda h: number_cell(_outcomes(h, Outcome.OK), _own(h)), True),
    field("failed", "Failed", _failed, True),
    field(
        "not_supported",
        "Not supported",
        lambda h: number_cell(_outcomes(h, Outcome.NOT_SUPPORTED), _own(h)),
        True,
    ),
    field("torch", "Torch", lambda h: text_cell(h.torch, longest=20)),
    field("origin", "Origin", lambda h: text_cell(h.origin, longest=20)),
    field("machine", "Machine", lambda h: _machine(h, 36)),
    hidden("created", "Made", lambda h: h.created, number=False),
    hidden("branch", "Branch", lambda h: h.branch, number=False),
    hidden("done", "Done", lambda h: h.done),
    hidden("planned", "Planned", lambda h: h.planned),
)


def runs(source: DataAccess, query: Query) -> Page:
    """The newest first, a page of them."""
    _refuse_order(query)
    wanted = selection(replace(query, range="all"))
    found = list(islice(_searched(source, wanted, query), PAGE_RUNS + 1))
    shown = found[:PAGE_RUNS]
    more = None
    if len(found) > PAGE_RUNS:
        kept = tuple(item for item in query.params if item[0] != "before")
        more = Link("runs", "", (*kept, ("before", shown[-1].id)))
    here = all(head.origin == "here" for head in shown)
    made = make_table("runs", "", RUNS, (), without=("origin",) if here else ())
    table = replace(
        made,
        rows=tuple(source.row(head, _row) for head in shown),
        empty="No run is stored yet. Make one with `torchstone run`.",
        more=more,
        total=None if more or query.before else len(found),
        whole=(lambda: _every_row(source, wanted, query)) if more else None,
    )
    top = parts.running(source, shown)
    search = Choice("filter", "Filter", query.filter, kind="search")
    kept = tuple(item for item in query.params if item[0] not in ("filter", "before"))
    form = Controls(Link("runs", "", query.params), (search,), kept)
    return Page("runs", "Runs", (*top, table), controls=form, params=query.params, live=True)


def _refuse_order(query: Query) -> None:
    """Only a part is read, so no order could be kept over all of them."""
    if query.sort:
        raise BadQuery(
            "The list of runs takes no sort: it is read in parts, the newest first.",
            "Take the whole table as CSV, or filter it.",
        )
    if query.page_number > 1:
        raise BadQuery(
            "The list of runs has no numbered pages.",
            "Follow its link to more; `before` names the run to go on from.",
        )


def _searched(source: DataAccess, wanted: Selection, query: Query) -> Iterator[RunHead]:
    """The runs after the one that the URL names, the newest first, whose names hold the text."""
    text = query.filter.casefold()
    at_once = AT_ONCE if text else PAGE_RUNS + 1
    found = source.heads(wanted, at_once, query.before)
    while found:
        yield from (head for head in found if not text or text in _said(head))
        found = source.heads(wanted, AT_ONCE, found[-1].id)


def _said(head: RunHead) -> str:
    words = (head.id, run_title(head), head.label, head.branch, head.commit, *head.suites)
    return "\n".join((*words, head.torch, head.state, head.machine)).casefold()


def _every_row(source: DataAccess, wanted: Selection, query: Query) -> Iterator[tuple[Cell, ...]]:
    return (source.row(head, _row) for head in _searched(source, wanted, query))


def _row(head: RunHead) -> tuple[Cell, ...]:
    return tuple(field.cell(head) for field in RUNS)


def run(source: DataAccess, query: Query, ident: str) -> Page:
    """One run: what was planned, how far it is, its suites and what fails in it."""
    head = source.head(ident)
    plan = source.about(head)
    groups = source.groups(head, Selection())
    labels = Labels.of(groups)
    shared = ", ".join(labels.shared(groups[0])) if groups else ""
    sections: list[Section] = [progress_of_run(source, head.id)]
    if head.state == "interrupted" and head.origin == "here":
        words = f"torchstone run --resume {head.id}"
        sections.append(
            Notice(f"This run was interrupted. Go on with it: {words}", "warn"),
        )
    sections += [*failures.not_run(head), *(Notice(sanitise(note)) for note in plan.notes)]
    sections.append(_facts(head, plan.version, shared))
    sections.append(make_table("groups", "Suites", _group_fields(groups, labels, head), groups))
    sections.append(_failures(source, head, query))
    command = Code("command", "Command", " ".join(sanitise(word) for word in plan.command))
    sections.append(Group("How it was made", (command,)))
    return Page(
        "run",
        f"Run {cut(sanitise(head.label or head.id), 60)}",
        tuple(sections),
        ident=head.id,
        lead=run_title(head),
        crumbs=(("Runs", Link("runs")),),
        params=query.params,
        actions=_actions(source, head),
        watched=head.id,
        live=True,
    )


def _actions(source: DataAccess, head: RunHead) -> tuple[tuple[str, Link], ...]:
    """What a run can be held against; an old one is in no droplist."""
    made = [
        ("Compare with the run before", Link("compare", "", (("new", head.id),))),
        ("Use as base", Link("landing", "", (("base", head.id),))),
        ("Overview of it", Link("landing", "", (("new", head.id),))),
    ]
    newest = newer_than(source, head)
    if newest is not None:
        runs = (("base", head.id), ("new", newest.id))
        made.insert(1, ("Compare with the newest", Link("compare", "", runs)))
    return (*made, *parts.outside_actions(source, head))


def _group_fields(
    groups: Sequence[SuiteSummary], labels: Labels, head: RunHead
) -> tuple[Field[SuiteSummary], ...]:
    def to(one: SuiteSummary) -> Link:
        return parts.suite_place(parts.group_key(one), (("new", head.id),))

    passed, speedup, compiled, memory, *_ = suite_fields(groups, itself, to)
    return (
        field("suite", "Suite", lambda s: text_cell(suite_title(s.suite, s.scale), to(s))),
        field("settings", "Variant", lambda s: text_cell(labels.settings(s))),
        Field(passed.column, lambda s: parts.pass_level(passed.cell(s), s.passes)),
        Field(speedup.column, lambda s: parts.speedup_level(speedup.cell(s), s.speedup)),
        field("verdicts", "Cases", lambda s: summary_words(s, to(s)), help="Their own verdicts"),
        compiled,
        Field(memory.column, lambda s: parts.memory_level(memory.cell(s), s.memory_ratio.value)),
        hidden("passed", "Passed", lambda s: s.passes.passed),
        hidden("counted", "Counted", lambda s: s.passes.counted),
        hidden("planned", "Planned", lambda s: s.passes.planned),
        *ends("speedup", "Speed-up", lambda s: s.speedup.interval),
        hidden("speedup_n", "Cases in the mean", lambda s: s.speedup.n),
        field(
            "compile_warm",
            "Compile, warm",
            lambda s: nanoseconds_cell(s.compile_warm_ns.value),
            True,
            "s",
            shown=False,
        ),
    )


def _failures(source: DataAccess, head: RunHead, query: Query) -> Table:
    """A page of them, as the URL asks; there is no form here that could ask for another order."""
    asked = Query(sort=query.sort, filter=query.filter, page=query.page)
    here = Link("run", head.id, asked.params)
    table = failures.table_of(source, source.failures(head, Selection()))
    empty = "No failure here holds this text." if query.filter else table.empty
    return replace(arranged(table, asked, here), sortable=False, empty=empty)


def _facts(head: RunHead, version: str, shared: str) -> Facts:
    changed = " (files differ from it)" if head.dirty else ""
    items = [
        ("Id", Cell(head.id, sanitise(head.id))),
        ("Made", Cell(head.created, when(head.created))),
        ("Label", text_cell(head.label)),
        ("Commit", Cell(head.commit, sanitise(head.commit)[:40] + changed)),
        ("Branch", text_cell(head.branch)),
        ("Machine", _machine(head)),
        ("Torch", text_cell(head.torch)),
        ("Torchstone", text_cell(version)),
        ("Tier", text_cell(head.tier)),
        ("All cases", text_cell(shared)),
        ("Origin", text_cell(head.origin)),
    ]
    return Facts("run", "", tuple((name, cell) for name, cell in items if cell.text.strip()))


def progress_of_run(source: DataAccess, wanted: str) -> Progress:
    """How far a run is, and what is measured just now."""
    head = source.head(wanted)
    made = parts.progress_of(head)
    text = f"{head.done} of {count(head.planned, 'case')} done"
    found = source.store.progress(head.id) if head.state == "running" else None
    now = ", ".join(_measured_now(part) for part in found.parts if part.case) if found else ""
    if head.state == "interrupted":
        text += f"; interrupted with {head.planned - head.done} to go"
    return replace(made, text=text, to=None, case=now)


def _measured_now(part: Part) -> str:
    return sanitise(f"{part.case} on {part.node}" if part.node else part.case)
