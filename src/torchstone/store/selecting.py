"""A `Selection` as conditions on tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, or_, select

from torchstone.records import CaseKey, Selection
from torchstone.store.derived import case_fact, case_group, group_fact, run_fact, series

_KEY_FIELDS = ("suite", "scale", "mode", "precision", "variant", "device", "allocator")


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
    """The same of keys that are at hand."""
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


def of_run(selection: Selection) -> list[ColumnElement[bool]]:
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
        case_fact.c.lane == run_fact.c.lane,
        case_fact.c.passes.is_(None) if passes is None else case_fact.c.passes == passes,
        case_fact.c.at == run_fact.c.at,
        case_fact.c.run == run_fact.c.run,
    )
    return inside.exists()
