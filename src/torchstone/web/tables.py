"""Tables put in order, cut to a page, and written as CSV and as plain data."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torchstone.show.page import Cell, Column, Link, Scalar, Table
from torchstone.show.run_data import neutral
from torchstone.web.query import BadQuery, Query, ServerLinks, shown

PAGE_ROWS = 100
"""Rows of one page: all models of a suite under one variant, and made in less than a tenth of a
second. The PyTorch project's longest suite has some ninety."""

NEXT = ServerLinks()
"""Where the API has the rows after these."""


def arranged(table: Table, query: Query, here: Link, size: int = PAGE_ROWS) -> Table:
    """The table filtered, sorted and cut as the URL asks. `here` is the page without a number."""
    rows = table.rows
    if query.filter:
        wanted = query.filter.casefold()
        rows = [row for row in rows if wanted in _said(table.columns, row)]
    sort = table.sort
    if query.sort:
        sort = query.sort
        rows = in_order(table.columns, rows, sort)
    start = (query.page_number - 1) * size
    more = None
    if len(rows) > start + size:
        params = tuple(item for item in here.params if item[0] != "page")
        more = replace(here, params=(*params, ("page", str(query.page_number + 1))))
    return replace(
        table,
        rows=tuple(rows[start : start + size]),
        total=len(rows),
        start=start,
        whole=(lambda: rows) if more or start else None,
        sort=sort,
        more=more,
        sortable=True,
    )


def in_order(
    columns: Sequence[Column], rows: Sequence[tuple[Cell, ...]], sort: str
) -> list[tuple[Cell, ...]]:
    """The rows by a column's values; those without one come last, either way."""
    keys = [column.key for column in columns]
    key = sort.removeprefix("-")
    if key not in keys:
        raise BadQuery(
            f"There is no column {shown(key)} to sort by.", f"Columns: {', '.join(keys)}."
        )
    place, down = keys.index(key), sort.startswith("-")
    known = [row for row in rows if _known(row[place].value)]
    rest = [row for row in rows if not _known(row[place].value)]
    known.sort(key=lambda row: _rank(row[place].value), reverse=down)
    return [*known, *rest]


def _known(value: Scalar) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and math.isnan(value))


def _rank(value: Scalar) -> tuple[int, float, str]:
    """Numbers before texts, so that a mixed column has an order too."""
    if isinstance(value, (bool, int, float)):
        return 0, float(value), ""
    return 1, 0.0, str(value).casefold()


def _said(columns: Sequence[Column], row: Sequence[Cell]) -> str:
    """The names and words of a row; "07" asks for a model, not for an interval's end."""
    return "\n".join(
        f"{cell.text} {cell.detail}"
        for column, cell in zip(columns, row, strict=True)
        if column.shown and not column.number
    ).casefold()


def csv_text(table: Table) -> str:
    """By RFC 4180, a heading, all columns and all rows; no cell can be taken for a formula."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow([column.key for column in table.columns])
    for row in every_row(table):
        writer.writerow([_csv_cell(cell.value) for cell in row])
    return stream.getvalue()


def every_row(table: Table) -> Iterable[tuple[Cell, ...]]:
    """Those on other pages too."""
    return table.rows if table.whole is None else table.whole()


def _csv_cell(value: Scalar) -> Scalar:
    if isinstance(value, str):
        return neutral(value)
    return plain(value)


def plain(value: Scalar) -> Scalar:
    """A value that JSON can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def to_json(data: Any) -> str:
    """Strict JSON, compact."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def table_data(table: Table, whole: bool = False) -> dict[str, Any]:
    """The table as plain data: its columns, and a record a row. `whole`: of every row."""
    keys = [column.key for column in table.columns]
    rows = [
        dict(zip(keys, (plain(c.value) for c in row), strict=True))
        for row in (every_row(table) if whole else table.rows)
    ]
    total = len(rows) if whole else table.total
    more = None if whole else table.more
    return {
        "name": table.name,
        "title": plain(table.title),
        "columns": [
            {"key": c.key, "title": c.title, "unit": c.unit, "number": c.number}
            for c in table.columns
        ],
        "rows": rows,
        "total": None if total is None else max(total, len(rows)),
        "next": NEXT.table(more, table.name, "json") if more else "",
        "note": plain(table.note),
    }
