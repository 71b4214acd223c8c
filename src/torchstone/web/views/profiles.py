"""Stored profiles, and what one of them says in short; its views are a page of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torchstone.records import (
    LEVEL_NAMES,
    ArmSpec,
    Ledger,
    LedgerLine,
    Measurement,
    Profile,
    Result,
    TorchstoneError,
)
from torchstone.records.format import format_percent
from torchstone.show.cells import (
    bytes_cell,
    cut,
    number_cell,
    seconds_cell,
    table_name,
    text_cell,
    when,
)
from torchstone.show.ledger import (
    has_amounts,
    heading,
    parts_worth_naming,
    remedy_words,
)
from torchstone.show.page import (
    Cell,
    Code,
    Column,
    Facts,
    Field,
    Group,
    Link,
    Notice,
    Page,
    Section,
    Table,
    field,
    make_table,
)
from torchstone.show.profile_text import (
    call_tree,
    cost_words,
    facts_of,
    format_amount,
    shares,
    top_functions,
    unit_of,
    whole_of,
)
from torchstone.show.table import sanitise
from torchstone.store.profiles import ProfileSummary
from torchstone.web.query import Query
from torchstone.web.sources import DataAccess
from torchstone.web.tables import PAGE_ROWS, arranged
from torchstone.web.views.parts import explain_commands, machine_of, profile_commands, shapes_words

# Lists of profiles, and those of the same work as a result's arms with the command for more.


MOST_PROFILES = 50
PROFILES: tuple[Field[ProfileSummary], ...] = (
    field("profile", "Profile", lambda p: text_cell(p.id, Link("profile", p.id))),
    field("variant", "Variant", lambda p: text_cell(p.variant)),
    field("how", "How", lambda p: text_cell(p.how)),
    field("tool", "Tool", lambda p: text_cell(p.tool)),
    field("label", "Label", lambda p: text_cell(p.label)),
    field("created", "Taken", lambda p: Cell(p.created, when(p.created))),
    field("bytes", "Size", lambda p: bytes_cell(p.bytes), True, "bytes"),
)


def profile_sections(
    source: DataAccess, result: Result, arms: Sequence[Measurement]
) -> Iterable[Section]:
    """Profiles that `torchstone profile` took of the same work here, and the command for more."""
    wanted = [(one.arm, machine_of(one)) for one in arms if one.arm.target]
    listed = source.store.profiles_of(result.id, wanted, MOST_PROFILES + 1)
    notes = [f"Only the newest {MOST_PROFILES}."] if len(listed) > MOST_PROFILES else []
    notes += [shapes_words(arm for arm, _ in wanted)] if listed else []
    yield replace(profiles_table(listed[:MOST_PROFILES]), note=" ".join(filter(None, notes)))
    command = profile_commands(arms)
    if command:
        yield Code("profile", "Take another" if listed else "Take one", command)


def profiles_table(listed: Sequence[ProfileSummary]) -> Table:
    """Profiles with links to their views."""
    empty = "No profile of this is stored."
    return make_table("profiles", "Profiles", PROFILES, listed, empty=empty)


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


def profiles(source: DataAccess, query: Query) -> Page:
    """The newest first, a page of them."""
    here = Link("profiles", "", query.kept("sort", "filter", "page"))
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


def profile(source: DataAccess, query: Query, ident: str) -> Page:
    """What it is, what profiling cost, and the functions that took most."""
    found = source.profile(ident)
    items = tuple((f"{name[:1].upper()}{name[1:]}", cell) for name, cell in _facts(found))
    result = source.profiled(found.id)
    actions = [("Open the views", Link("profile-view", found.id))]
    actions += [("The result it is of", Link("result", result))] if result else []
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
        crumbs=(("Profiles", Link("profiles")),),
        actions=tuple(actions),
        params=query.params,
    )


def _facts(found: Profile) -> Iterable[tuple[str, Cell]]:
    for name, value in facts_of(found):
        told = when(value) if value == found.created else value
        yield sanitise(name), text_cell(told, longest=300)


def _functions(found: Profile) -> Table:
    tree = call_tree(found)
    top = top_functions(found, tree, TOP + 1)
    unit, whole = unit_of(found, tree), whole_of(found, tree)
    said = UNITS.get(unit, unit)
    columns = tuple(replace(one, unit=said) if one.key in AMOUNTS else one for one in FUNCTIONS)
    rows = []
    for row in top[:TOP]:
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
        note=f"The first {TOP} only; the views have all of them." if len(top) > TOP else "",
        total=len(rows),
    )


# Where the time of a step goes: the newest ledger of each arm of a result.


LINES = (
    Column("level", "Level"),
    Column("line", "What"),
    Column("share", "Share", True, help="Of the step's wall time; levels 4 and 5 divide kernels"),
    Column("spread", "±", True, help="Half the range of the middle half of the rounds"),
    Column("seconds", "Time", True, "s"),
    Column("most", "Most of it"),
)
FINDINGS = (
    Column("finding", "Finding"),
    Column("evidence", "Evidence"),
    Column("remedy", "Remedy, and what it would bring"),
    Column("tested", "Put to the test"),
)


def ledger_sections(source: DataAccess, arms: Sequence[Measurement]) -> Iterable[Section]:
    """Ledgers that `torchstone explain` made of the same work here, and the command for more."""
    sections: list[Section] = []
    taken: set[str] = set()
    for measured in arms:
        try:
            ledger = source.store.ledger_of(measured.arm, machine_of(measured))
        except TorchstoneError as error:
            sections.append(Notice(sanitise(error.message), "warn"))
            continue
        if ledger is not None:
            name = table_name(measured.arm.name, taken)
            taken.add(name)
            sections.append(_ledger(ledger, measured.arm, name))
    command = explain_commands(arms)
    if command:
        title = "Measure it again" if sections else "None stored; run"
        sections.append(Code("explain", title, command))
    if sections:
        yield Group("Time breakdown", tuple(sections))


def _ledger(ledger: Ledger, arm: ArmSpec, name: str) -> Group:
    rows = tuple(_line(line, ledger) for level in LEVEL_NAMES for line in ledger.level(level))
    shapes = shapes_words([arm]) if ledger.arm.shapes != arm.shapes else ""
    said = " · ".join([*heading(ledger)[1:], f"looked at {when(ledger.created)}"])
    said = f"{said}. {shapes}" if shapes else said
    sections: list[Section] = [
        Table(f"ledger-{name}", "", LINES, rows, note=sanitise(said), total=len(rows))
    ]
    sections += [Notice(sanitise(text), "warn") for text in ledger.checks]
    if ledger.findings:
        sections.append(_findings(ledger, name))
    return Group(sanitise(arm.name), tuple(sections))


def _line(line: LedgerLine, ledger: Ledger) -> tuple[Cell, ...]:
    about = "~" if line.estimated else ""
    most = ", ".join(
        f"{part.name} {format_percent(part.seconds / ledger.wall_s)}"
        if has_amounts(line) and ledger.wall_s
        else part.name
        for part in parts_worth_naming(line, ledger)
    )
    return (
        text_cell(LEVEL_NAMES[line.level]),
        text_cell(line.title),
        Cell(line.share, about + format_percent(line.share)),
        Cell(line.spread, f"{100 * line.spread:.1f}"),
        seconds_cell(line.seconds),
        text_cell(most, longest=160),
    )


def _findings(ledger: Ledger, name: str) -> Table:
    tests = {one.finding: one.sentence for one in ledger.verifications}
    rows = tuple(
        (
            text_cell(one.title, longest=160),
            text_cell(one.evidence, longest=300),
            text_cell(remedy_words(one), longest=300),
            text_cell(tests.get(one.name, ""), longest=300),
        )
        for one in ledger.findings
    )
    return Table(f"findings-{name}", "Findings", FINDINGS, rows, total=len(rows))
