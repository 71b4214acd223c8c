"""Stored runs, and one run with how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchstone.records import RunHead, Selection, SuiteSummary
from torchstone.records.format import count
from torchstone.show.rows import processor_name
from torchstone.show.run_table import Labels
from torchstone.show.table import sanitise
from torchstone.store import heartbeat
from torchstone.web.cells import (
    arranged,
    commit_cell,
    compile_cell,
    cut,
    mean_cell,
    nanoseconds_cell,
    number_cell,
    pass_cell,
    ratio_cell,
    run_cell,
    run_title,
    state_cell,
    suite_title,
    text_cell,
    when,
)
from torchstone.web.context import newer_than
from torchstone.web.page import (
    Cell,
    Code,
    Column,
    Facts,
    Group,
    Link,
    Notice,
    Page,
    Progress,
    Section,
    Table,
)
from torchstone.web.query import BadQuery, Query, selection
from torchstone.web.sources import DataAccess
from torchstone.web.views import failures, parts

PAGE_RUNS = 50
AT_ONCE = 1000
"""Runs read at once where all are asked for."""
COLUMNS = (
    Column("run", "Run"),
    Column("state", "State"),
    Column("commit", "Commit"),
    Column("label", "Label"),
    Column("suites", "Suites"),
    Column("passed", "Passed", True),
    Column("failed", "Failed", True),
    Column("not_supported", "Not supported", True),
    Column("torch", "Torch"),
    Column("origin", "Origin"),
    Column("machine", "Machine"),
)
HIDDEN = (
    Column("created", "Made", shown=False),
    Column("branch", "Branch", shown=False),
    Column("done", "Done", True, shown=False),
    Column("planned", "Planned", True, shown=False),
)
GROUPS = (
    Column("suite", "Suite"),
    Column("settings", "Settings"),
    Column("pass_rate", "Pass rate", True),
    Column("speedup", "Speed-up", True, "×"),
    Column("compile_cold", "Compile, cold / warm", True, "s"),
    Column("memory_ratio", "Memory ratio", True, "×"),
    Column("passed", "Passed", True, shown=False),
    Column("counted", "Counted", True, shown=False),
    Column("planned", "Planned", True, shown=False),
    *parts.SPEEDUP_ENDS,
    Column("speedup_n", "Cases in the mean", True, shown=False),
    Column("compile_warm", "Compile, warm", True, "s", shown=False),
)


def runs(source: DataAccess, query: Query) -> Page:
    """The newest first, a page of them."""
    _refuse_order(query)
    wanted = selection(replace(query, range="all"))
    found = source.heads(wanted, PAGE_RUNS + 1, query.before)
    shown = found[:PAGE_RUNS]
    more = None
    if len(found) > PAGE_RUNS:
        kept = tuple(item for item in query.params if item[0] != "before")
        more = Link("runs", "", (*kept, ("before", shown[-1].id)))
    here = all(head.origin == "here" for head in shown)
    table = Table(
        "runs",
        "",
        parts.without((*COLUMNS, *HIDDEN), ("origin",) if here else ()),
        tuple(source.row(head, _row) for head in shown),
        empty="No run is stored yet. Make one with `torchstone run`.",
        more=more,
        total=None if more or query.before else len(found),
        whole=(lambda: _every_row(source, wanted, query.before)) if more else None,
    )
    top = parts.running(source, shown)
    return Page("runs", "Runs", (*top, table), params=query.params, live=True)


def _refuse_order(query: Query) -> None:
    """Only a part is read, so neither an order nor a text could be kept over all of them."""
    for name in ("sort", "filter"):
        if getattr(query, name):
            raise BadQuery(
                f"The list of runs takes no {name}: it is read in parts, the newest first.",
                "Take the whole table as CSV, or choose by suite, machine or branch.",
            )
    if query.page_number > 1:
        raise BadQuery(
            "The list of runs has no numbered pages.",
            "Follow its link to more; `before` names the run to go on from.",
        )


def _every_row(source: DataAccess, wanted: Selection, before: str) -> Iterator[tuple[Cell, ...]]:
    found = source.heads(wanted, AT_ONCE, before)
    while found:
        yield from (source.row(head, _row) for head in found)
        found = source.heads(wanted, AT_ONCE, found[-1].id)


def _row(head: RunHead) -> tuple[Cell, ...]:
    failed = sum(head.outcomes.get(name, 0) for name in parts.FAILED)
    own = run_cell(head)
    return (
        own,
        state_cell(head),
        commit_cell(head),
        text_cell(head.label, longest=32),
        text_cell(", ".join(head.suites), longest=48),
        number_cell(head.outcomes.get("ok", 0), own.to),
        Cell(failed, f"{failed:,}", own.to, "fail" if failed else "quiet"),
        number_cell(head.outcomes.get("not_supported", 0), own.to),
        text_cell(head.torch, longest=20),
        text_cell(head.origin, longest=20),
        text_cell(
            processor_name(head.machine),
            Link("machine", head.machine_id) if head.machine_id else None,
            36,
        ),
        Cell(head.created),
        Cell(head.branch),
        Cell(head.done),
        Cell(head.planned),
    )


def run(source: DataAccess, query: Query, ident: str) -> Page:
    """One run: what was planned, how far it is, its suites and what fails in it."""
    head = source.head(ident)
    plan = source.about(head)
    groups = source.groups(head, Selection())
    labels = Labels.of(groups)
    rows = tuple(_group(one, labels, head) for one in groups)
    shared = ", ".join(labels.shared(groups[0])) if groups else ""
    sections: list[Section] = [progress_of_run(source, head.id)]
    if head.state == "interrupted" and head.origin == "here":
        words = f"torchstone run --resume {head.id}"
        sections.append(
            Notice(f"This run was interrupted. Go on with it: {words}", "warn"),
        )
    sections += [Notice(sanitise(note)) for note in plan.notes]
    sections.append(_facts(head, plan.version, shared))
    sections.append(Table("groups", "Suites", GROUPS, rows, total=len(rows)))
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
    ]
    newest = newer_than(source, head)
    if newest is not None:
        runs = (("base", head.id), ("new", newest.id))
        made.insert(1, ("Compare with the newest", Link("compare", "", runs)))
    return tuple(made)


def _group(one: SuiteSummary, labels: Labels, head: RunHead) -> tuple[Cell, ...]:
    to = parts.suite_place(parts.group_key(one), (("new", head.id),))
    return (
        text_cell(suite_title(one.suite, one.scale), to),
        text_cell(labels.settings(one)),
        pass_cell(one.passes, to),
        mean_cell(one.speedup, to),
        compile_cell(one.compile_cold_ns, one.compile_warm_ns, to),
        ratio_cell(one.memory_ratio.value, to),
        Cell(one.passes.passed),
        Cell(one.passes.counted),
        Cell(one.passes.planned),
        *parts.ends(one.speedup.interval),
        Cell(one.speedup.n),
        nanoseconds_cell(one.compile_warm_ns.value),
    )


def _failures(source: DataAccess, head: RunHead, query: Query) -> Table:
    """A page of them, as the URL asks; there is no form here that could ask for another order."""
    asked = Query(sort=query.sort, filter=query.filter, page=query.page)
    here = Link("run", head.id, asked.params)
    table = failures.table_of(source.failures(head, Selection()))
    empty = "No failure here holds this text." if query.filter else table.empty
    return replace(arranged(table, asked, here), sortable=False, empty=empty)


def _facts(head: RunHead, version: str, shared: str) -> Facts:
    machine = Link("machine", head.machine_id) if head.machine_id else None
    changed = " (files differ from it)" if head.dirty else ""
    items = [
        ("Id", Cell(head.id, sanitise(head.id))),
        ("Made", Cell(head.created, when(head.created))),
        ("Label", text_cell(head.label)),
        ("Commit", Cell(head.commit, sanitise(head.commit)[:40] + changed)),
        ("Branch", text_cell(head.branch)),
        ("Machine", text_cell(processor_name(head.machine), machine)),
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
    found = heartbeat.progress(source.store.path, head.id) if head.state == "running" else None
    now = ", ".join(sanitise(part.case) for part in found.parts if part.case) if found else ""
    if head.state == "interrupted":
        text += f"; interrupted with {head.planned - head.done} to go"
    return replace(made, text=text, to=None, case=now)
