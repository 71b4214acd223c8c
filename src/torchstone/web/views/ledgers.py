"""Where the time of a step goes: the newest ledger of each arm of a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchstone.records import (
    LEVEL_NAMES,
    ArmSpec,
    Ledger,
    LedgerLine,
    Measurement,
    TorchstoneError,
)
from torchstone.show.ledger import (
    has_amounts,
    heading,
    parts_worth_naming,
    remedy_words,
)
from torchstone.show.text import sanitise
from torchstone.show.units import format_percent
from torchstone.web.cells import seconds_cell, table_name, text_cell, when
from torchstone.web.page import Cell, Code, Column, Group, Notice, Section, Table
from torchstone.web.sources import Source
from torchstone.web.views.looks import explain_commands, machine_of, shapes_words

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


def ledger_sections(source: Source, arms: Sequence[Measurement]) -> Iterable[Section]:
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
        title = "Look again" if sections else "Nobody has looked yet"
        sections.append(Code("explain", title, command))
    if sections:
        yield Group("Where the time of a step goes", tuple(sections))


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
