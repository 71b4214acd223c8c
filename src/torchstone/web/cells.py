"""Figures and names as cells: one place says how a pass rate, a speed-up or a run is written."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Generic, TypeVar, overload

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    Level,
    Mean,
    Outcome,
    PassRate,
    Ratio,
    RunHead,
    Verdict,
)
from torchstone.records.format import format_bytes, format_percent, format_ratio, format_seconds
from torchstone.show.rows import processor_name
from torchstone.show.run_document import neutral
from torchstone.show.run_table import (
    compile_words,
    mean_decimals,
    pass_words,
    speedup_words,
    suite_of,
)
from torchstone.show.table import sanitise
from torchstone.web.page import Cell, Column, Link, Scalar, Table
from torchstone.web.query import BadQuery, Query, ServerLinks, shown

COMMIT_DIGITS = 8
LONGEST_LABEL = 60
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
VERDICT_MARKS = {
    Verdict.FASTER: "better",
    Verdict.SLOWER: "worse",
    Verdict.SAME: "same",
    Verdict.NOT_SLOWER: "not-worse",
    Verdict.NOT_FASTER: "not-better",
    Verdict.CANNOT_TELL: "doubt",
}
_SAID = {"not-worse": "not worse", "not-better": "not better", "doubt": "cannot tell"}
"""What a mark of a change means, where its own word does not say it."""
LEVEL_MARKS = {Level.OK: "pass", Level.NOTE: "quiet", Level.WARN: "doubt", Level.FAIL: "fail"}
CARRIED = (
    *("base", "new", "across", "range", "from", "to", "granularity"),
    *("machine", "branch", "torch"),
)
"""What goes along from page to page, where a reader chose it."""


def cut(text: str, longest: int = LONGEST_LABEL) -> str:
    """A name that fits; the cell's title holds all of it."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def text_cell(text: str, to: Link | None = None, longest: int = LONGEST_LABEL) -> Cell:
    """A name or a sentence from outside."""
    safe = sanitise(text)
    short = cut(safe, longest)
    return Cell(text, short, to, title="" if short == safe else safe[:2000])


def command_line(words: Sequence[str]) -> str:
    """A command as a shell takes it."""
    return shlex.join(sanitise(word) for word in words)


def number_cell(value: float | int | None, to: Link | None = None) -> Cell:
    """A count."""
    return Cell(value, "" if value is None else f"{value:,}", to)


def seconds_cell(value: float | None, to: Link | None = None) -> Cell:
    """Seconds."""
    known = _finite(value)
    return Cell(known, "" if known is None else format_seconds(known, 3), to)


def nanoseconds_cell(value: float | None, to: Link | None = None) -> Cell:
    """Nanoseconds, told in seconds."""
    return seconds_cell(None if value is None else value / 1e9, to)


def bytes_cell(value: float | None, to: Link | None = None) -> Cell:
    """Bytes."""
    known = _finite(value)
    return Cell(known, "" if known is None else format_bytes(known), to)


def ratio_cell(value: float | None, to: Link | None = None, mark: str = "") -> Cell:
    """A ratio without an interval."""
    known = _finite(value)
    return Cell(known, "" if known is None else format_ratio(known, 2), to, mark)


def pass_cell(passes: PassRate, to: Link | None = None) -> Cell:
    """`5/6 83 %`."""
    counts, share = pass_words(passes)
    said = [f"{n} {name.replace('_', ' ')}" for name, n in passes.outcomes.items() if n]
    mark = "pass" if 0 < passes.counted == passes.passed else ""
    left = passes.outcomes.get(Outcome.NOT_RUN.value, 0)
    detail = f"{left} not run" if left else share  # a percentage would look like failures
    return Cell(passes.rate, counts, to, mark, detail, ", ".join(said))


def mean_cell(mean: Mean, to: Link | None = None) -> Cell:
    """A geometric mean with its interval."""
    if mean.value is None:
        return Cell(None, "", to)
    value, ends = speedup_words(mean.value, mean.interval, mean_decimals([mean]))
    over = f"over {mean.n} of {mean.of} passing cases"
    return Cell(_finite(mean.value), value, to, detail=ends, title=over)


def compile_cell(cold: Mean, warm: Mean, to: Link | None = None) -> Cell:
    """`12.1 s / 2.30 s`: cold and warm."""
    value = None if cold.value is None else cold.value / 1e9
    over = f"over {cold.n} of {cold.of} passing cases"
    return Cell(_finite(value), compile_words(cold, warm), to, title=over)


def speedup_cell(case: CaseMetrics, to: Link | None = None) -> Cell:
    """A case's speed-up with its interval; a wrong answer has none."""
    if case.outcome is not Outcome.OK:
        return Cell(None, "", to)
    value, ends = speedup_words(case.speedup, case.interval)
    return Cell(_finite(case.speedup), value, to, detail=ends)


def without_detail(cell: Cell) -> Cell:
    """The same for a narrow column: what stood after the figure is told on hover."""
    return cell._replace(detail="", title="; ".join(t for t in (cell.detail, cell.title) if t))


def outcome_cell(case: CaseMetrics | None) -> Cell:
    """How a case ended."""
    if case is None:
        return Cell("", "absent", mark="quiet")
    return outcome_word(case.outcome, case.reason)


def outcome_word(outcome: Outcome, reason: str = "") -> Cell:
    """An outcome with its mark."""
    mark = {Outcome.OK: "pass", Outcome.NOT_SUPPORTED: "quiet", Outcome.NOT_RUN: "quiet"}
    safe = sanitise(reason)[:2000]
    return Cell(outcome.value, outcome.words, mark=mark.get(outcome, "fail"), title=safe)


def verdict_cell(verdict: Verdict | None, words: str = "") -> Cell:
    """A verdict in its word and its mark."""
    if verdict is None:
        return Cell(None, words)
    return Cell(verdict.value, words or verdict.value, mark=VERDICT_MARKS[verdict])


def change_cell(
    ratio: Ratio | None,
    verdict: Verdict | None,
    to: Link | None = None,
    threshold: float | None = None,
) -> Cell:
    """`+2.1 %` with its interval, marked by the verdict: better or worse, never by size alone.

    What is told on hover has the threshold too: the smallest change that is believed.
    """
    if ratio is None or _finite(ratio.value) is None:
        return Cell(None, "", to)
    ends = ""
    if ratio.interval is not None and all(map(math.isfinite, ratio.interval)):
        ends = " to ".join(_signed(end) for end in ratio.interval)
    mark = VERDICT_MARKS[verdict] if verdict else ""
    least = "" if threshold is None else f"believed beyond {format_percent(threshold)}"
    told = "; ".join(part for part in (_SAID.get(mark, mark), least) if part)
    return Cell(ratio.value, _signed(ratio.value), to, mark, ends, told)


def threshold_cell(threshold: float | None, to: Link | None = None) -> Cell:
    """The smallest change that is believed."""
    return Cell(_finite(threshold), "" if threshold is None else format_percent(threshold), to)


def _signed(ratio: float) -> str:
    percent = (ratio - 1) * 100
    decimals = 0 if abs(percent) >= 100 else 1
    text = f"{percent:+.{decimals}f} %"
    return text.replace("+0.0", "0.0").replace("-0.0 ", "0.0 ")


def when(created: str) -> str:
    """A date to the minute, in UTC; the text as it is where it is no date."""
    try:
        moment = datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return cut(sanitise(created), 20)
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M")


def when_s(seconds: float | None) -> str:
    """UTC seconds to the minute."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return ""


def commit_of(head: RunHead) -> str:
    """The commit's beginning; a star where files differed from it."""
    return sanitise(head.commit)[:COMMIT_DIGITS] + ("*" if head.commit and head.dirty else "")


def run_title(head: RunHead) -> str:
    """`2026-11-15 20:30 · main c0ffee12 · nightly`: enough to know a run in a list."""
    commit = " ".join(part for part in (cut(sanitise(head.branch), 24), commit_of(head)) if part)
    parts = (when(head.created), commit, cut(sanitise(head.label), 32))
    return " · ".join(part for part in parts if part)


def machine_title(machine_id: str, described: str) -> str:
    """`Intel Xeon Platinum 8370C 0f3c55`: enough to know a machine in a list."""
    return cut(sanitise(f"{processor_name(described)} {machine_id[:6]}".strip()), 40)


def run_cell(head: RunHead | None, text: str = "") -> Cell:
    """A run with a link to it."""
    if head is None:
        return Cell(None, text or "")
    shown = text or when(head.created)
    return Cell(head.id, shown, Link("run", head.id), title=f"{run_title(head)} · {head.id}")


def commit_cell(head: RunHead) -> Cell:
    """Branch and commit."""
    shown = " ".join(part for part in (cut(sanitise(head.branch), 20), commit_of(head)) if part)
    note = " (files differ from the commit)" if head.dirty else ""
    return Cell(head.commit, shown, title=sanitise(head.commit) + note if head.commit else "")


def state_cell(head: RunHead) -> Cell:
    """Complete, running or interrupted."""
    mark = {"complete": "pass", "running": "running"}.get(head.state, "doubt")
    return Cell(head.state, head.state, mark=mark, detail=f"{head.done}/{head.planned}")


def case_place(key: CaseKey, carried: tuple[tuple[str, str], ...] = ()) -> Link:
    """A model's page."""
    own = {
        "suite": key.suite,
        "model": key.model,
        "scale": key.scale or "all",
        "mode": key.mode,
        "precision": key.precision,
        "variant": key.variant,
        "device": key.device,
        "threads": str(key.threads),
        "allocator": key.allocator,
    }
    return Link("case", "", (*own.items(), *carried))


def suite_title(suite: str, scale: str) -> str:
    """`huggingface@small`."""
    return sanitise(suite_of(CaseKey(suite, "", scale, "", "", "")))


def table_name(text: str, taken: Collection[str] = ()) -> str:
    """A name for the address of a table: letters, digits and dashes, and like no other."""
    made = _NOT_SLUG.sub("-", text.lower()).strip("-")[:60] or "table"
    number = 2
    found = made
    while found in taken:
        found, number = f"{made}-{number}", number + 1
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def flat(value: object) -> Scalar:
    """Something from a mapping of facts, as a cell can hold it."""
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


# Tables put in order, cut to a page, and written as CSV and as plain data.


PAGE_ROWS = 100
"""Rows of one page: all models of a suite under one variant, and made in less than a tenth of a
second. The PyTorch project's longest suite has some ninety."""

NEXT = ServerLinks()
"""Where the API has the rows after these."""

Item = TypeVar("Item")


class LazyRows(Sequence[tuple[Cell, ...]], Generic[Item]):
    """Rows that are made when they are looked at: a page shows few of thousands of cases."""

    def __init__(self, items: Sequence[Item], make: Callable[[Item], tuple[Cell, ...]]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> tuple[Cell, ...]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[tuple[Cell, ...]]: ...
    def __getitem__(self, place: int | slice) -> tuple[Cell, ...] | Sequence[tuple[Cell, ...]]:
        """One row, or those of a slice."""
        if isinstance(place, slice):
            return tuple(self._make(item) for item in self._items[place])
        return self._make(self._items[place])


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
    """All that a reader sees of a row."""
    return "\n".join(
        f"{cell.text} {cell.detail}"
        for column, cell in zip(columns, row, strict=True)
        if column.shown
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
