"""Rows that were read, joined into the cases of one run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from torchstone.interop.base import Imported, Medians
from torchstone.interop.files import TextFile, positive
from torchstone.interop.rows import (
    ACCURACY,
    HUD_FORMAT,
    KNOWN,
    PERFORMANCE,
    TABLES,
    UNKNOWN,
    Row,
    believed_medians,
    evaluate,
    foreign_rows,
    own_rows,
    plain,
    read_own_ending,
)
from torchstone.records import (
    FOREIGN_DEFINITION,
    CaseKey,
    CaseMetrics,
    ForeignMetrics,
    GitState,
    Outcome,
    PlannedCase,
    Run,
    RunView,
    UsageError,
)

DEFINITIONS_NOTE = (
    "The figures are those of the PyTorch dashboard's runner, by its own definitions and under "
    "its own names; they are never compared with figures of Torchstone."
)
INVISIBLE_NOTE = (
    "The runner writes no row of a model whose process dies: a model that died both times is in "
    "no table and in no denominator here."
)
MEMORY_NOTE = (
    "Memory on the CPU is the resident size at one moment, and the runner writes it 100 times too "
    "large (pytorch/benchmark issue 2707)."
)
UNCHECKED_NOTE = "There is no accuracy table for some cases: their answers were not checked."
UNNAMED_NOTE = (
    "Some file names do not say suite, precision, mode or device; 'unknown' stands for what is "
    "not said."
)
NAMES_IN_NOTE = 3


@dataclass(frozen=True)
class Entry:
    """A row that was read, and the case that it speaks of.

    Rows of one case pile up when a runner is started again: those with the highest `attempt`
    count. `own` holds what the row says in columns of ours.
    """

    key: CaseKey
    figures: ForeignMetrics
    attempt: int = 0
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """What the files say about all of their rows together."""

    created: str = ""
    torch: str = ""
    git: GitState | None = None


Tables = dict[str, list[Entry]]
"""The rows of one case that count, by table."""


def _cell(tables: Tables, table: str, column: str) -> str | None:
    """What the rows of a table say under a column."""
    for entry in tables.get(table, ()):
        text = entry.figures.cell(column)
        if text is not None:
            return plain(text) if entry.figures.format == HUD_FORMAT else text
    return None


def _entries(tables: Tables) -> list[Entry]:
    """All of them, the performance table's first."""
    known = [one for table in TABLES for one in tables.get(table, ())]
    return known or [one for rows in tables.values() for one in rows]


def assemble(
    format_name: str,
    files: Sequence[TextFile],
    entries: Sequence[Entry],
    notes: Iterable[str],
    origin: Origin | None = None,
) -> Imported:
    """The run that the entries make."""
    if not entries:
        raise UsageError(
            "The files hold no result.", "Give files that the PyTorch benchmark runner wrote."
        )
    joined, superseded = _join(entries)
    groups: dict[CaseKey, set[str]] = {}
    for key, tables in joined.items():
        groups.setdefault(replace(key, model=""), set()).update(tables)
    cases = tuple(
        _case(key, tables, groups[replace(key, model="")]) for key, tables in joined.items()
    )
    all_notes = (
        DEFINITIONS_NOTE,
        *notes,
        *_repeated(superseded),
        *_joining(joined, groups),
        *_about(joined),
    )
    run = _run(format_name, files, cases, all_notes, origin or Origin())
    return Imported(run, cases, all_notes)


def _join(entries: Sequence[Entry]) -> tuple[dict[CaseKey, Tables], list[Entry]]:
    last: dict[tuple[CaseKey, str], int] = {}
    for entry in entries:
        place = (entry.key, entry.figures.table)
        last[place] = max(entry.attempt, last.get(place, 0))
    joined: dict[CaseKey, Tables] = {}
    superseded = []
    for entry in entries:
        if entry.attempt < last[entry.key, entry.figures.table]:
            superseded.append(entry)
        else:
            joined.setdefault(entry.key, {}).setdefault(entry.figures.table, []).append(entry)
    return joined, superseded


def _case(key: CaseKey, tables: Tables, expected: set[str]) -> CaseMetrics:
    entries = _entries(tables)
    said = (read_own_ending(one.own) for one in entries)
    ending = next((one for one in said if one is not None), None)
    if ending is None:
        status, tag = (_cell(tables, ACCURACY, column) for column in (ACCURACY, "tag"))
        if tag in KNOWN and status not in KNOWN:
            # With a `tag` column the runner writes a failure's status one column too far left.
            status = tag
        speedup = _cell(tables, PERFORMANCE, "speedup")
        ending = evaluate(status, speedup, tables, expected, key.variant)
    return CaseMetrics(
        key,
        ending.outcome,
        ending.reason,
        ending.failed_arm,
        foreign=tuple(one.figures for one in entries),
        definition=FOREIGN_DEFINITION,
    )


def _repeated(superseded: Sequence[Entry]) -> list[str]:
    if not superseded:
        return []
    first = superseded[0].figures
    return [
        f"{len(superseded)} rows were left out because a later row speaks of the same case; the "
        f"first is line {first.line} of {first.source}."
    ]


def _joining(joined: Mapping[CaseKey, Tables], groups: Mapping[CaseKey, set[str]]) -> list[str]:
    """What is in one table and not in the other."""
    notes = []
    for table in TABLES:
        missing = [
            key.model
            for key, tables in joined.items()
            if table not in tables and table in groups[replace(key, model="")]
        ]
        if missing:
            notes.append(
                f"{len(missing)} cases have no row in the {table} table and count as failed: "
                f"{some_names(missing)}."
            )
    if any(ACCURACY not in tables for tables in groups.values()):
        notes.append(UNCHECKED_NOTE)
    return notes


def _about(joined: Mapping[CaseKey, Tables]) -> list[str]:
    """What must be known about figures that are not ours."""
    theirs = {
        key: tables
        for key, tables in joined.items()
        if not any(read_own_ending(one.own) for one in _entries(tables))
    }
    if not theirs:
        return []
    notes = [INVISIBLE_NOTE]
    if any(
        key.device.startswith("cpu") and positive(_cell(tables, PERFORMANCE, "dynamo_peak_mem"))
        for key, tables in theirs.items()
    ):
        notes.append(MEMORY_NOTE)
    if any(UNKNOWN in (key.suite, key.precision, key.mode, key.device) for key in theirs):
        notes.append(UNNAMED_NOTE)
    return notes


def some_names(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    shown = ", ".join(name[:60] for name in names[:NAMES_IN_NOTE])
    more = len(names) - NAMES_IN_NOTE
    return f"{shown} and {more} more" if more > 0 else shown


def _run(
    format_name: str,
    files: Sequence[TextFile],
    cases: Sequence[CaseMetrics],
    notes: tuple[str, ...],
    origin: Origin,
) -> Run:
    digest = hashlib.sha256(format_name.encode())
    for file in files:
        for text in (file.name, file.text):
            digest.update(hashlib.sha256(text.encode("utf-8")).digest())
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Run(
        id=f"{format_name}-{digest.hexdigest()[:12]}",
        created=origin.created or now,
        command=("torchstone", "import", format_name, *(file.name for file in files)),
        plan=tuple(
            PlannedCase(case.key, "", case.reason if case.outcome is Outcome.NOT_SUPPORTED else "")
            for case in cases
        ),
        torch=origin.torch,
        git=origin.git,
        notes=notes,
        origin=format_name,
    )


# A run as rows of the runner's tables, and what those rows cannot say.


COSTS_REMARK = (
    "Memory is the true peak above interpreter and torch in units of 10^9 bytes, where the runner "
    "writes the resident size of a moment, on the CPU times 100; compilation_latency is put "
    "together from the first call's cost and the medians."
)


def export_rows(case: CaseMetrics, medians: Medians | None) -> Sequence[Row]:
    """The rows of a case: ours by the runner's definitions, imported ones as they were."""
    if case.definition != FOREIGN_DEFINITION:
        return own_rows(case, medians)
    rows = foreign_rows(case)
    if not rows:
        raise UsageError(
            f"{case.key.name} was measured by another tool, whose figures this format cannot hold.",
            "Export it in the format that it was imported from.",
        )
    return rows


def export_remarks(view: RunView, medians: Medians | None) -> tuple[str, ...]:
    """What a reader of the exported files must know, a sentence each."""
    ours = [case for case in view.complete if case.definition != FOREIGN_DEFINITION]
    if not ours:
        return ()
    passed = [case for case in ours if case.outcome is Outcome.OK]
    silent = [case.key.model for case in passed if believed_medians(case, medians) is None]
    failed = [case.key.model for case in ours if case.outcome is not Outcome.OK]
    remarks = [COSTS_REMARK] if passed else []
    if silent:
        remarks.append(
            f"{len(silent)} cases have no speedup and no latency, because their samples are not "
            f"available or a check found them unfit: {some_names(silent)}."
        )
    if failed:
        remarks.append(
            f"{len(failed)} cases that did not pass have rows of their own, with a speedup of 0 "
            f"and their status: {some_names(failed)}."
        )
    return tuple(remarks)
