"""`dynamo-csv`: the tables that the PyTorch dashboard's runner writes (`benchmarks/dynamo`)."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchstone.interop import files
from torchstone.interop.assemble import Entry, assemble, export_remarks, export_rows, some_names
from torchstone.interop.base import Imported, Medians
from torchstone.interop.files import TextFile, bad, check_name
from torchstone.interop.rows import (
    ACCURACY,
    CSV_FORMAT,
    DEFINITION,
    KNOWN,
    OWN_COLUMNS,
    PERFORMANCE,
    Naming,
    Row,
    key_of,
    read_own_key,
    read_stem,
    stem_of,
)
from torchstone.records import CaseKey, ForeignMetrics, RunView

_BESIDE = ("_compilation_metrics", "_graph_breaks", "_graph_breaks_deduped", "_stats")
"""Endings of the tables that the runner writes beside the two that count."""
_NO_TAG = ("", "0", "0.0", "0.000000", "0.0000")
"""What stands under `tag` where the runner filled up or shifted a failure's row."""


@dataclass
class _Reading:
    """What has been read so far."""

    entries: list[Entry]
    notes: list[str]
    attempts: dict[tuple[CaseKey, str], int]
    short: list[str]


class DynamoCsv:
    """The runner's performance and accuracy tables."""

    name = CSV_FORMAT

    def read(self, paths: Sequence[Path], /) -> Imported:
        """The run that the tables hold; performance and accuracy of a case are joined."""
        texts = tuple(files.read_files(paths, (".csv",)))
        reading = _Reading([], [], defaultdict(int), [])
        for file in texts:
            _read_file(file, reading)
        if reading.short:
            reading.notes.append(
                f"{len(reading.short)} rows do not have as many cells as their table has columns: "
                f"{some_names(reading.short)}."
            )
        return assemble(self.name, texts, reading.entries, reading.notes)

    def write(self, view: RunView, medians: Medians | None = None) -> dict[str, bytes]:
        """A performance and an accuracy table for each configuration, as the runner names them."""
        tables: dict[str, list[Row]] = defaultdict(list)
        for case in view.complete:
            for row in export_rows(case, medians):
                tables[row.stem].append(row)
        return {f"{stem}.csv": _table(rows) for stem, rows in tables.items()}

    def remarks(self, view: RunView, medians: Medians | None = None) -> tuple[str, ...]:
        """What the tables cannot say."""
        return export_remarks(view, medians)


def _read_file(file: TextFile, reading: _Reading) -> None:
    if stem_of(file.name).endswith(_BESIDE):
        reading.notes.append(f"{file.name} holds neither performance nor accuracy: left out.")
        return
    lines = _lines(file)
    line, header = next(lines, (1, ()))
    table = _table_of(header)
    if not table:
        if file.chosen:
            raise bad(file.name, line, "there is no column 'name' with 'speedup' or 'accuracy'")
        reading.notes.append(f"{file.name} is not a table of the runner: left out.")
        return
    named = read_stem(stem_of(file.name))
    before = len(reading.entries)
    for line, cells in lines:
        if len(reading.entries) >= files.MAX_ROWS:
            raise bad(file.name, line, f"there are more than {files.MAX_ROWS} rows")
        figures = ForeignMetrics(CSV_FORMAT, DEFINITION, table, file.name, line, header, cells)
        reading.entries.append(_entry(figures, named, reading.attempts))
        if len(cells) != len(header):
            reading.short.append(f"line {line} of {file.name}")
    if len(reading.entries) == before:
        reading.notes.append(f"{file.name} has no row.")


def _lines(file: TextFile) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The rows with the number of the line that each ends on; empty lines are none."""
    reader = csv.reader(io.StringIO(file.text, newline=""), strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise bad(file.name, reader.line_num, f"this is not CSV ({error})") from None
        if cells is None:
            return
        if len(cells) > files.MAX_COLUMNS or any(len(cell) > files.MAX_CELL for cell in cells):
            raise bad(file.name, reader.line_num, "there are too many cells, or one is too long")
        if cells:
            yield reader.line_num, tuple(cells)


def _table_of(header: Sequence[str]) -> str:
    """Which table has such columns; the accuracy table has no speed-up."""
    if "name" not in header:
        return ""
    return PERFORMANCE if "speedup" in header else ACCURACY if ACCURACY in header else ""


def _entry(
    figures: ForeignMetrics, named: Naming, attempts: dict[tuple[CaseKey, str], int]
) -> Entry:
    cells = dict(zip(figures.columns, figures.cells, strict=False))
    own = {name: cells[name] for name in OWN_COLUMNS if name in cells}
    key = read_own_key(own) or _key(figures, named)
    place = (key, figures.table)
    attempts[place] += 1
    return Entry(key, figures, attempts[place], own)


def _key(figures: ForeignMetrics, named: Naming) -> CaseKey:
    where = (figures.source, figures.line)
    model = check_name(figures.cell("name") or "", "model name", *where)
    dev, tag = figures.cell("dev") or "", figures.cell("tag") or ""
    if dev:
        check_name(dev, "device", *where)
    if tag in _NO_TAG or tag in KNOWN:
        tag = ""
    else:
        check_name(tag, "tag", *where)
    return key_of(named, model, dev, tag)


def _table(rows: Sequence[Row]) -> bytes:
    """A CSV file. Rows of one header stand as they were, short ones too."""
    header = list(dict.fromkeys(name for row in rows for name in row.columns))
    alike = all(row.columns == rows[0].columns for row in rows)
    lines = [rows[0].columns if alike else header]
    for row in rows:
        lines.append(row.cells if alike else [row.by_column.get(name, "") for name in header])
    return "".join(map(_written, lines)).encode("utf-8")


def _written(cells: Sequence[str]) -> str:
    """A line of CSV. `csv.writer` leaves a carriage return unquoted where lines end in `\n`."""
    return (",".join(map(_quoted, cells)) or '""') + "\n"


def _quoted(cell: str) -> str:
    if cell.startswith("\ufeff") or any(mark in cell for mark in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


DYNAMO_CSV = DynamoCsv()
