"""Rows that were read, joined into the cases of one run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from torchstone.interop.base import Imported, Medians
from torchstone.interop.files import TextFile, positive
from torchstone.interop.names import ACCURACY, PERFORMANCE, TABLES, UNKNOWN
from torchstone.interop.own import (
    KNOWN,
    Ending,
    believed_medians,
    evaluate,
    own_rows,
    read_own_ending,
)
from torchstone.interop.rows import HUD_FORMAT, Row, foreign_rows, plain
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


@dataclass
class Joined:
    """The rows of one case that count, by table."""

    tables: dict[str, list[Entry]] = field(default_factory=dict)

    def cell(self, table: str, column: str) -> str | None:
        """What the rows of a table say under a column."""
        for entry in self.tables.get(table, ()):
            text = entry.figures.cell(column)
            if text is not None:
                return plain(text) if entry.figures.format == HUD_FORMAT else text
        return None

    @property
    def entries(self) -> list[Entry]:
        """All of them, the performance table's first."""
        known = [one for table in TABLES for one in self.tables.get(table, ())]
        return known or [one for rows in self.tables.values() for one in rows]


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
    for key, case in joined.items():
        groups.setdefault(replace(key, model=""), set()).update(case.tables)
    cases = tuple(_case(key, case, groups[replace(key, model="")]) for key, case in joined.items())
    all_notes = (
        DEFINITIONS_NOTE,
        *notes,
        *_repeated(superseded),
        *_joining(joined, groups),
        *_about(joined),
    )
    run = _run(format_name, files, cases, all_notes, origin or Origin())
    return Imported(run, cases, all_notes)


def _join(entries: Sequence[Entry]) -> tuple[dict[CaseKey, Joined], list[Entry]]:
    last: dict[tuple[CaseKey, str], int] = {}
    for entry in entries:
        place = (entry.key, entry.figures.table)
        last[place] = max(entry.attempt, last.get(place, 0))
    joined: dict[CaseKey, Joined] = {}
    superseded = []
    for entry in entries:
        if entry.attempt < last[entry.key, entry.figures.table]:
            superseded.append(entry)
            continue
        case = joined.setdefault(entry.key, Joined())
        case.tables.setdefault(entry.figures.table, []).append(entry)
    return joined, superseded


def _case(key: CaseKey, joined: Joined, expected: set[str]) -> CaseMetrics:
    entries = joined.entries
    said = (read_own_ending(one.own) for one in entries)
    ending = next((one for one in said if one is not None), None) or _judged(key, joined, expected)
    return CaseMetrics(
        key,
        ending.outcome,
        ending.reason,
        ending.failed_arm,
        foreign=tuple(one.figures for one in entries),
        definition=FOREIGN_DEFINITION,
    )


def _judged(key: CaseKey, joined: Joined, expected: set[str]) -> Ending:
    status = joined.cell(ACCURACY, "accuracy")
    tag = joined.cell(ACCURACY, "tag")
    if tag in KNOWN and status not in KNOWN:
        # With a `tag` column the runner writes a failure's status one column too far left.
        status = tag
    speedup = joined.cell(PERFORMANCE, "speedup")
    return evaluate(status, speedup, joined.tables, expected, key.variant)


def _repeated(superseded: Sequence[Entry]) -> list[str]:
    if not superseded:
        return []
    first = superseded[0].figures
    return [
        f"{len(superseded)} rows were left out because a later row speaks of the same case; the "
        f"first is line {first.line} of {first.source}."
    ]


def _joining(joined: Mapping[CaseKey, Joined], groups: Mapping[CaseKey, set[str]]) -> list[str]:
    """What is in one table and not in the other."""
    notes = []
    for table in TABLES:
        missing = [
            key.model
            for key, case in joined.items()
            if table not in case.tables and table in groups[replace(key, model="")]
        ]
        if missing:
            notes.append(
                f"{len(missing)} cases have no row in the {table} table and count as failed: "
                f"{some_names(missing)}."
            )
    if any(ACCURACY not in tables for tables in groups.values()):
        notes.append(UNCHECKED_NOTE)
    return notes


def _about(joined: Mapping[CaseKey, Joined]) -> list[str]:
    """What must be known about figures that are not ours."""
    theirs = {
        key: case
        for key, case in joined.items()
        if not any(read_own_ending(one.own) for one in case.entries)
    }
    if not theirs:
        return []
    notes = [INVISIBLE_NOTE]
    if any(
        key.device.startswith("cpu") and positive(case.cell(PERFORMANCE, "dynamo_peak_mem"))
        for key, case in theirs.items()
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
        plan=tuple(_planned(case) for case in cases),
        torch=origin.torch,
        git=origin.git,
        notes=notes,
        origin=format_name,
    )


def _planned(case: CaseMetrics) -> PlannedCase:
    unsupported = case.reason if case.outcome is Outcome.NOT_SUPPORTED else ""
    return PlannedCase(case.key, "", unsupported)


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
