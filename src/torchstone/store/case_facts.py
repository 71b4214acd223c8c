"""Rows of `case_fact`: how figures are written there, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, select

from torchstone.records import (
    FIGURES_DEFINITION,
    CaseFigures,
    Outcome,
    RecordError,
    Selection,
)
from torchstone.store import selecting
from torchstone.store.case_columns import DETAIL, SELECTED, figures_of, row_of
from torchstone.store.derived import case_detail, case_fact, run_fact, series
from torchstone.store.dimensions import details_of, series_of
from torchstone.store.errors import CorruptRunError

_ROW_BYTES = 170
"""What the figures of a passing case take in their row (`torchstone db size` on a history)."""
_PASSES = {Outcome.OK: 1, Outcome.NOT_SUPPORTED: None, Outcome.NOT_RUN: None}


class Place(NamedTuple):
    """A run as its cases know it."""

    run: int
    lane: int
    at: float


def place_of(connection: Connection, run: int) -> Place:
    """The place of a run that has its facts."""
    query = select(run_fact.c.run, run_fact.c.lane, run_fact.c.at).where(run_fact.c.run == run)
    return Place(*connection.execute(query).one())


def put(connection: Connection, place: Place, cases: Sequence[tuple[int, CaseFigures]]) -> int:
    """Write figures by position, in the place of older ones of the same definition; the bytes."""
    if not cases:
        return 0
    made = [(position, one, *row_of(one)) for position, one in cases]
    series_ids = series_of(connection, [one.key for _, one in cases])
    details = details_of(connection, [text for *_, text in made if text is not None])
    rows = [
        {
            **row,
            "run": place.run,
            "position": position,
            "definition": one.definition,
            "series": series_ids[one.key],
            "lane": place.lane,
            "at": place.at,
            "passes": _PASSES.get(one.outcome, 0),
            "detail": None if text is None else details[text],
        }
        for position, one, row, text in made
    ]
    _remove(connection, place.run, [(position, one.definition) for position, one in cases])
    connection.execute(case_fact.insert(), rows)
    return len(rows) * _ROW_BYTES + sum(map(len, details))


def _remove(connection: Connection, run: int, which: Sequence[tuple[int, int]]) -> None:
    found = connection.execute(
        select(case_fact.c.seq, case_fact.c.position, case_fact.c.definition).where(
            case_fact.c.run == run, case_fact.c.position.between(min(which)[0], max(which)[0])
        )
    ).all()
    wanted = set(which)
    for seq, position, definition in found:
        if (position, definition) in wanted:
            connection.execute(case_fact.delete().where(case_fact.c.seq == seq))


def query_of(*more: Any) -> Select[Any]:
    """Whatever is asked for, and after it what `decoded` wants of a case."""
    return _columns(*more).where(case_fact.c.definition <= FIGURES_DEFINITION)


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


def decoded(run_id: str, row: Sequence[Any]) -> CaseFigures:
    """The case at the end of a row; `CorruptRunError` if it is none of ours."""
    try:
        return figures_of(row[-WIDTH:])
    except RecordError as error:
        raise CorruptRunError(run_id, f"figures of a case: {error}") from None


def of_run(
    connection: Connection, run: int, run_id: str, selection: Selection
) -> dict[int, CaseFigures]:
    """The stored cases by position, in the plan's order, by the newest definition known here."""
    rows = connection.execute(_in_order(run, selection)).all()  # one by one takes longer
    return {row[0]: decoded(run_id, row) for row in rows}


def readable(connection: Connection, run: int) -> dict[int, CaseFigures]:
    """The same without those that are damaged: one such case must not keep others from going in.

    Figures that can be summed up are of one definition: where only some of the passing cases have
    figures of the newest, those of the newest that all of them have are taken.
    """
    found: dict[int, dict[int, CaseFigures]] = {}
    for row in connection.execute(_in_order(run, Selection())):
        try:
            one = figures_of(row[-WIDTH:])
        except RecordError:
            found.pop(row[0], None)
        else:
            found.setdefault(row[0], {})[one.definition] = one
    newest = {position: known[max(known)] for position, known in found.items()}
    passing = [{*found[position]} for position, one in newest.items() if one.outcome is Outcome.OK]
    shared = set.intersection(*passing) if passing else set()
    if not shared:
        return newest
    chosen = max(shared)
    return {position: known.get(chosen, newest[position]) for position, known in found.items()}


def _in_order(run: int, selection: Selection) -> Select[Any]:
    return (
        query_of(case_fact.c.position)
        .where(case_fact.c.run == run, *selecting.of_key(selection, series))
        .order_by(case_fact.c.position, case_fact.c.definition)
    )
