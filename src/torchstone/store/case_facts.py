"""Rows of `case_fact`: how figures are written there, and read back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    case,
    func,
    literal,
    or_,
    select,
)

from torchstone.records import (
    METRICS_DEFINITION,
    CaseKey,
    CaseMetrics,
    Level,
    Outcome,
    RecordError,
    Selection,
    fields_from_data,
    to_data,
)
from torchstone.store.codec import to_json
from torchstone.store.engine import CorruptRunError
from torchstone.store.limits import in_parts, storable
from torchstone.store.runs import key_digest
from torchstone.store.schema import (
    GROUP_KEY,
    IN_COLUMNS,
    case_detail,
    case_fact,
    case_group,
    group_fact,
    machine_branch,
    run_fact,
    series,
)

# The figures of a case as columns, and back, exactly.
#
# Numbers and short words have a column each (`records.metrics`). What has none (reasons, commands,
# other tools' rows), and the rare value that a column cannot hold as it is (NaN, an integer of more
# than 64 bits, text that is not ASCII), goes into one JSON object, which most cases share with
# those of other nights.


KEY = tuple(field.name for field in fields(CaseKey))
COLUMNS = tuple(metric.key for metric in IN_COLUMNS)
SELECTED = (
    *(series.c[name] for name in KEY),
    case_fact.c.definition,
    *(case_fact.c[name] for name in COLUMNS),
)
"""What `metrics_of` wants of a row; its detail comes after them."""
_AFTER_KEY = len(KEY) + 1

DETAIL = func.coalesce(
    case_detail.c.document, case((case_fact.c.detail.is_not(None), literal("")), else_=None)
)
"""The detail; empty, which is no JSON, where it ought to be there and is not."""

_DEFAULTS = {field.name: field.default for field in fields(CaseMetrics)}
_ENDS = ("low", "high")
"""Columns of the two ends of `interval`."""
_WORDS: dict[str, dict[str | None, Any]] = {
    metric.key: {one.value: one for one in metric.kind}
    for metric in IN_COLUMNS
    if issubclass(metric.kind, Enum)
}
_WORDS["verdict"][None] = None
_PLAIN = tuple(name for name in COLUMNS if name not in (*_ENDS, *_WORDS))
_REAL = tuple(metric.key for metric in IN_COLUMNS if metric.kind is float)
_NEEDED = tuple(name for name in _PLAIN if _DEFAULTS[name] is not None)
"""Columns that are NULL only where the detail has the value."""
_IN_DETAIL = tuple(
    name for name in _DEFAULTS if name not in (*COLUMNS, "key", "interval", "definition")
)
"""Fields without a column: reasons, commands, names of rules."""
_REST = {name: _DEFAULTS[name] for name in (*_IN_DETAIL, "interval")}
_MAY_BE_IN_DETAIL = frozenset((*_PLAIN, *_REST))
_LISTS = ("command", "checks", "break_reasons")
BRIEF = (
    *("outcome", "worst_check", "level", "verdict", "speedup", "low", "high", "log_error"),
    *("log_freedom", "deciding_budget_s"),
)
"""Columns by which a report chooses cases and sums them up."""
_IN_BRIEF = re.compile(f'"(?:margin|interval|{"|".join(BRIEF)})":')
"""The same in a detail: only its keys look so, because quotes inside of texts are escaped."""
_NO_WARNING = (Level.OK.value, Level.NOTE.value)
_LARGEST = 2**63
_DETAILS = 8192  # details kept decoded: more than a few runs have
_KEYS = 16_384  # keys kept: those of a few large plans


def row_of(figures: CaseMetrics) -> tuple[dict[str, Any], str | None]:
    """The columns of a case, and its detail as JSON; None where there is nothing in it.

    `RecordError` for figures that could not be read back.
    """
    known = vars(figures)
    row: dict[str, Any] = {name: known[name] for name in _PLAIN}
    row.update({name: known[name] and known[name].value for name in _WORDS})
    row["low"], row["high"] = figures.interval or (None, None)
    for name in _REAL:
        row[name] = float(row[name]) if type(row[name]) is int else row[name]
    detail = _detail(tuple([known[name] for name in _IN_DETAIL]))
    unfit = {name for name, value in row.items() if not _fits(value)}
    if unfit:
        if not unfit.isdisjoint(_ENDS):
            unfit.update(_ENDS)
        row.update(dict.fromkeys(unfit))
        told = sorted({"interval" if name in _ENDS else name for name in unfit})
        detail = to_json({n: to_data(known[n]) for n in told} | json.loads(detail or "{}"))
    key = vars(figures.key)
    columns = [row[name] for name in COLUMNS]
    metrics_of((*[key[name] for name in KEY], figures.definition, *columns, detail))
    return row, detail


def _fits(value: Any) -> bool:
    """Whether a column gives it back: NaN would become NULL, and the sign of -0.0 be lost."""
    if type(value) is float:
        return value > 0.0 or value < 0.0 or str(value) == "0.0"
    if type(value) is int:
        return -_LARGEST <= value < _LARGEST
    return type(value) is not str or (value.isascii() and "\0" not in value)


@lru_cache(maxsize=_DETAILS)
def _detail(values: tuple[Any, ...]) -> str | None:
    """The fields without a column as JSON; the same night after night."""
    told = {n: to_data(v) for n, v in zip(_IN_DETAIL, values, strict=True) if v != _DEFAULTS[n]}
    return to_json(told) if told else None


def metrics_of(row: Sequence[Any]) -> CaseMetrics:
    """The case of a row of `SELECTED` and its detail. `RecordError` if it is none of ours."""
    _check_types(tuple(map(type, row)))
    return _made(_key(*row[: len(KEY)]), row[len(KEY)], COLUMNS, row[_AFTER_KEY:-1], row[-1])


def brief_of(key: CaseKey, row: Sequence[Any]) -> CaseMetrics:
    """The case of a row of its definition, `BRIEF` and its detail, the other figures left out; the
    detail too, where the case passes without a warning and has none of these figures there."""
    _check_types(tuple(map(type, row)), brief=True)
    definition, *values, detail = row
    plain = values[0] == "ok" and values[1] in _NO_WARNING and values[2] is not None
    if plain and detail is not None and not _IN_BRIEF.search(detail):
        detail = None
    return _made(key, definition, BRIEF, values, detail)


def _made(
    key: CaseKey, definition: int, names: Sequence[str], values: Sequence[Any], detail: str | None
) -> CaseMetrics:
    known = dict(zip(names, values, strict=True))
    low, high = known.pop("low"), known.pop("high")
    try:
        for name, words in _WORDS.items():
            known[name] = words[known[name]]
    except KeyError as error:
        raise RecordError(f"{str(error)[:60]} is not a word of ours") from None
    known.update(_REST)
    known["key"], known["definition"] = key, definition
    if low is not None and high is not None:
        known["interval"] = (low, high)
    if detail is not None:
        known.update(_fields(detail))
        missing = [name for name in _NEEDED if known.get(name, "") is None]
        if missing:
            raise RecordError(f"{missing[0]} is missing")
    # A frozen dataclass sets each of its fields by a call, which takes longer than the rest.
    figures = object.__new__(CaseMetrics)
    object.__setattr__(figures, "__dict__", known)
    return figures


@lru_cache(maxsize=_KEYS)
def _key(*parts: Any) -> CaseKey:
    """The same key for the same case of every run: what is the same object is quickly equal."""
    return CaseKey(*parts)


@lru_cache(maxsize=_DETAILS)
def _fields(detail: str) -> dict[str, Any]:
    """The fields of a detail, decoded. Shared: nobody may change it."""
    try:
        data = json.loads(detail)
        if not isinstance(data, dict) or not _MAY_BE_IN_DETAIL.issuperset(data):
            raise RecordError("it speaks of what is in a column")
        plain = {name: _texts(data.pop(name)) for name in _LISTS if name in data}
        return plain | fields_from_data(CaseMetrics, data)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"its detail: {error}") from None


def _texts(data: Any) -> tuple[str, ...]:
    """What nearly every detail is made of, without the detour through the records' decoder."""
    if not isinstance(data, list) or not all(type(text) is str for text in data):
        raise RecordError("expected a list of texts")
    return tuple(data)


@lru_cache(maxsize=1024)
def _check_types(types: tuple[type, ...], brief: bool = False) -> None:
    """A file from elsewhere may hold anything anywhere; rows of one shape are looked at once."""
    kinds = {m.key: m.kind if m.kind in (float, int) else str for m in IN_COLUMNS}
    wanted: dict[str, type] = {} if brief else dict.fromkeys(KEY, str) | {"threads": int}
    wanted |= {"definition": int, **{name: kinds[name] for name in (BRIEF if brief else COLUMNS)}}
    wanted["detail"] = str
    always = {*KEY, "definition", "outcome", "worst_check"}
    always.update(() if types[-1] is str else _NEEDED)
    for (name, kind), found in zip(wanted.items(), types, strict=True):
        if found is not kind and (found is not type(None) or name in always):
            raise RecordError(f"{name} is {found.__name__}, not {kind.__name__}")


# What rows have in common, stored once and named by a number: series, groups, lanes, details.


def rows_of(connection: Connection, table: Table, keys: Sequence[CaseKey]) -> dict[CaseKey, int]:
    """The row of each key in `series` or `case_group`, added where it is not there."""
    names = KEY if table is series else GROUP_KEY
    digests = {key_digest(key): key for key in keys}

    def columns(digest: str) -> dict[str, Any]:
        values = ((name, getattr(digests[digest], name)) for name in names)
        return {name: storable(v) if isinstance(v, str) else v for name, v in values}

    found = _ensure(connection, table.c.key, list(digests), columns)
    return {key: found[digest] for digest, key in digests.items()}


def machine_branch_of(connection: Connection, machine_id: str, branch: str) -> int:
    """The row of a machine and branch, added if it is not there."""
    wanted = {"machine_id": machine_id, "branch": branch}
    query = select(machine_branch.c.seq).filter_by(**wanted)
    found = connection.scalar(query)
    if found is None:
        connection.execute(machine_branch.insert().values(**wanted))
        found = connection.scalar(query)
    return int(found or 0)


def details_of(connection: Connection, details: Sequence[str]) -> dict[str, int]:
    """The row of each detail, added where it is not there."""
    by = {hashlib.sha256(text.encode("ascii")).digest()[:16]: text for text in details}
    found = _ensure(
        connection, case_detail.c.digest, list(by), lambda digest: {"document": by[digest]}
    )
    return {text: found[digest] for digest, text in by.items()}


def _ensure(
    connection: Connection,
    by: Column[Any],
    names: Sequence[Any],
    columns: Callable[[Any], Mapping[str, Any]],
) -> dict[Any, int]:
    """The number of each row, by what it is found by; `columns` gives the rest of a new one."""
    found = _known(connection, by, names)
    new = [name for name in names if name not in found]
    if new:
        rows = [{by.name: name, **columns(name)} for name in new]
        connection.execute(by.table.insert(), rows)
        found |= _known(connection, by, new)
    return found


def _known(connection: Connection, by: Column[Any], names: Sequence[Any]) -> dict[Any, int]:
    query = select(by, by.table.c.seq)
    rows = (connection.execute(query.where(by.in_(part))) for part in in_parts(names))
    return {row[0]: row[1] for part in rows for row in part}


_ROW_BYTES = 170
"""What the figures of a passing case take in their row (`torchstone db size` on a history)."""
_PASSES = {Outcome.OK: 1, Outcome.NOT_SUPPORTED: None, Outcome.NOT_RUN: None}


class Place(NamedTuple):
    """A run as its cases know it."""

    run: int
    machine_branch: int
    at: float


def place_of(connection: Connection, run: int) -> Place:
    """The place of a run that has its facts."""
    query = select(run_fact.c.run, run_fact.c.machine_branch, run_fact.c.at).where(
        run_fact.c.run == run
    )
    return Place(*connection.execute(query).one())


def put(connection: Connection, place: Place, cases: Sequence[tuple[int, CaseMetrics]]) -> int:
    """Write figures by position, in the place of older ones of the same definition; the bytes."""
    if not cases:
        return 0
    made = [(position, one, *row_of(one)) for position, one in cases]
    series_ids = rows_of(connection, series, [one.key for _, one in cases])
    details = details_of(connection, [text for *_, text in made if text is not None])
    rows = [
        {
            **row,
            "run": place.run,
            "position": position,
            "definition": one.definition,
            "series": series_ids[one.key],
            "machine_branch": place.machine_branch,
            "at": place.at,
            "passes": _PASSES.get(one.outcome, 0),
            "detail": None if text is None else details[text],
        }
        for position, one, row, text in made
    ]
    for definition in {one.definition for _, one in cases}:
        old = case_fact.delete().filter_by(run=place.run, definition=definition)
        for part in in_parts([at for at, one in cases if one.definition == definition]):
            connection.execute(old.where(case_fact.c.position.in_(part)))
    connection.execute(case_fact.insert(), rows)
    return len(rows) * _ROW_BYTES + sum(map(len, details))


def query_of(*more: Any) -> Select[Any]:
    """Whatever is asked for, and after it what `decoded` wants of a case."""
    return _columns(*more).where(case_fact.c.definition <= METRICS_DEFINITION)


@cache  # there are forty of them, and the same few things are asked for before them
def _columns(*more: Any) -> Select[Any]:
    return (
        select(*more, *SELECTED, DETAIL)
        .select_from(case_fact)
        .join(series, series.c.seq == case_fact.c.series)
        .outerjoin(case_detail, case_detail.c.seq == case_fact.c.detail)
    )


WIDTH = len(SELECTED) + 1
"""How many columns at the end of a row are the case's."""


def decoded(run_id: str, row: Sequence[Any]) -> CaseMetrics:
    """The case at the end of a row; `CorruptRunError` if it is none of ours."""
    try:
        return metrics_of(row[-WIDTH:])
    except RecordError as error:
        raise CorruptRunError(run_id, f"figures of a case: {error}") from None


def brief_rows(connection: Connection, run: int) -> Sequence[Any]:
    """Position and what `brief_of` wants of each stored case, the oldest definition first."""
    query = (
        select(
            *(case_fact.c[name] for name in ("position", "definition", *BRIEF)),
            DETAIL,
        )
        .outerjoin(case_detail, case_detail.c.seq == case_fact.c.detail)
        .where(case_fact.c.run == run, case_fact.c.definition <= METRICS_DEFINITION)
        .order_by(case_fact.c.position, case_fact.c.definition)
    )
    return connection.execute(query).all()


def of_run(
    connection: Connection, run: int, run_id: str, selection: Selection
) -> dict[int, CaseMetrics]:
    """The stored cases by position, in the plan's order, by the newest definition known here."""
    query = (
        query_of(case_fact.c.position)
        .where(case_fact.c.run == run, *of_key(selection, series))
        .order_by(case_fact.c.position, case_fact.c.definition)
    )
    rows = connection.execute(query).all()  # one by one takes longer
    return {row[0]: decoded(run_id, row) for row in rows}


def versions(
    connection: Connection, run: int
) -> Iterator[tuple[int, int, CaseMetrics | RecordError]]:
    """Position, definition and figures of each stored case by every definition, the oldest first;
    the error in the place of those that are damaged."""
    query = _columns(case_fact.c.position, case_fact.c.definition)
    query = query.where(case_fact.c.run == run)
    for row in connection.execute(query.order_by(case_fact.c.position, case_fact.c.definition)):
        try:
            yield row[0], row[1], metrics_of(row[2:])
        except RecordError as error:
            yield row[0], row[1], error


def readable(connection: Connection, run: int) -> dict[int, CaseMetrics]:
    """The same without those that are damaged: one such case must not keep others from going in.

    Figures that can be summed up are of one definition: where only some of the passing cases have
    figures of the newest, those of the newest that all of them have are taken.
    """
    found: dict[int, dict[int, CaseMetrics]] = {}
    for position, definition, one in versions(connection, run):
        if definition > METRICS_DEFINITION:
            continue
        if isinstance(one, RecordError):
            found.pop(position, None)
        else:
            found.setdefault(position, {})[definition] = one
    newest = {position: known[max(known)] for position, known in found.items()}
    passing = [{*found[position]} for position, one in newest.items() if one.outcome is Outcome.OK]
    shared = set.intersection(*passing) if passing else set()
    if not shared:
        return newest
    chosen = max(shared)
    return {position: known.get(chosen, newest[position]) for position, known in found.items()}


# A `Selection` as conditions on tables.


_KEY_FIELDS = tuple(name for name in GROUP_KEY if name != "threads")


def of_key(selection: Selection, table: Table) -> list[ColumnElement[bool]]:
    """What it asks of a case's key; `table` is `series` or `case_group`."""
    wanted: dict[str, Any] = {name: getattr(selection, name) for name in _KEY_FIELDS}
    if table is series:
        wanted["model"] = selection.model
    found = [table.c[name] == value for name, value in wanted.items() if value]
    if selection.threads is not None:
        found.append(table.c.threads == selection.threads)
    return found


def matcher(selection: Selection) -> Callable[[CaseKey], bool]:
    """The same of keys that are available."""
    asked = {name: getattr(selection, name) for name in (*_KEY_FIELDS, "model")}
    wanted: dict[str, Any] = {name: value for name, value in asked.items() if value}
    if selection.threads is not None:
        wanted["threads"] = selection.threads
    if not wanted:
        return lambda key: True
    these, values = attrgetter(*wanted), (*wanted.values(),)
    if len(values) == 1:  # then it gives the value itself
        return lambda key: bool(these(key) == values[0])
    return lambda key: bool(these(key) == values)


def selecting_of_run(selection: Selection) -> list[ColumnElement[bool]]:
    """What it asks of a run itself."""
    names = ("machine_id", "branch", "torch")
    found = [run_fact.c[n] == value for n in names if (value := getattr(selection, n))]
    if selection.since_s is not None or selection.until_s is not None:
        found.append(run_fact.c.created_s.is_not(None))  # a run without a date is in no range
    return found + in_time(selection, run_fact)


def in_time(selection: Selection, table: Table) -> list[ColumnElement[bool]]:
    """The range of time, on the column `at` of a table."""
    found: list[ColumnElement[bool]] = []
    if selection.since_s is not None:
        found.append(table.c.at >= selection.since_s)
    if selection.until_s is not None:
        found.append(table.c.at <= selection.until_s)
    return found


def having_cases(connection: Connection, query: Select[Any], selection: Selection) -> Select[Any]:
    """Of runs, those that planned such a case; where a model is named, that ended such a case."""
    if selection.model:
        found = connection.scalars(select(series.c.seq).where(*of_key(selection, series))).all()
        return query.where(ended_in(found))
    asked = of_key(selection, case_group)
    if not asked:
        return query
    groups = select(case_group.c.seq).where(*asked)
    inside = select(group_fact.c.run).where(
        group_fact.c.run == run_fact.c.run, group_fact.c.case_group.in_(groups)
    )
    return query.where(inside.exists())


def ended_in(wanted: Sequence[int]) -> ColumnElement[bool]:
    """Of a run, whether one of these series ended in it."""
    return or_(*(_ended(wanted, passes) for passes in (1, 0, None)))


def _ended(wanted: Sequence[int], passes: int | None) -> ColumnElement[bool]:
    """Whether one of these series ended so in the run: a seek in the index of their history."""
    inside = select(case_fact.c.seq).where(
        case_fact.c.series.in_(wanted),
        case_fact.c.machine_branch == run_fact.c.machine_branch,
        case_fact.c.passes.is_(None) if passes is None else case_fact.c.passes == passes,
        case_fact.c.at == run_fact.c.at,
        case_fact.c.run == run_fact.c.run,
    )
    return inside.exists()
