"""The stored figures of cases as series: one query for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select

from torchstone.records import METRICS_DEFINITION, CaseKey, CaseRow, Selection, SeriesRun
from torchstone.store import case_facts
from torchstone.store.engine import Base
from torchstone.store.schema import case_fact, machine_branch, run_fact, series


class CaseSeries(NamedTuple):
    """All rows by series, lane and time, and what the numbers stand for."""

    rows: list[CaseRow]
    keys: dict[int, CaseKey]
    lanes: dict[int, tuple[str, str]]
    """Machine and branch."""
    runs: dict[int, SeriesRun]


class SeriesPart(Base):
    """Questions over all cases and all runs at once."""

    def case_series(self, selection: Selection, metrics: Sequence[str]) -> CaseSeries:
        """The metrics of every stored case over time, by the newest definition of each series."""
        columns = [case_fact.c[name] for name in metrics]
        asked = case_facts.of_key(selection, series)
        of_runs = case_facts.selecting_of_run(selection)
        head = ("series", "machine_branch", "run", "passes", "definition")
        query = (
            select(*(case_fact.c[name] for name in head), *columns)
            .join(series, series.c.seq == case_fact.c.series)
            .join(run_fact, run_fact.c.run == case_fact.c.run)
            .where(*asked, *of_runs, case_fact.c.definition.between(1, METRICS_DEFINITION))
            .order_by(case_fact.c.series, case_fact.c.machine_branch, case_fact.c.at)
            .order_by(case_fact.c.run, case_fact.c.definition)
        )
        names = ("run", "id", "at", "revision", "torch", "machine", "branch")
        with self._reading() as connection:
            rows = connection.execute(query).all()
            keys = connection.execute(
                select(series.c.seq, *(series.c[name] for name in case_facts.KEY)).where(*asked)
            )
            lanes = connection.execute(select(machine_branch)).all()
            runs = connection.execute(select(*(run_fact.c[name] for name in names))).all()
            known = {row[0]: CaseKey(*row[1:]) for row in keys}
        newest: dict[int, int] = {}
        for row in rows:
            newest[row[0]] = max(newest.get(row[0], 0), row[4])
        found = [
            CaseRow(row[0], row[1], row[2], row[3], tuple(row[5:]))
            for row in rows
            if row[4] == newest[row[0]]
        ]
        return CaseSeries(
            found,
            known,
            {row.seq: (row.machine_id, row.branch) for row in lanes},
            {row[0]: SeriesRun(*row[1:]) for row in runs},
        )
