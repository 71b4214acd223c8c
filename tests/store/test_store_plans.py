"""How SQLite goes about each question: by an index, never through all cases there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from store_history import FIRST_S, night_run, store_night

from torchstone.records import Outcome, Selection
from torchstone.store import Store, open_store

LARGE = ("case_fact", "run_case", "result", "measurement", "group_fact", "good", "bad")
"""Tables that grow with every night, and what the questions call them."""
SUITE = Selection(suite="hf", mode="training", precision="fp32")
WEEK = Selection(suite="hf", since_s=FIRST_S, branch="main", machine_id="m1")
RUN = "n001-main-m1"

QUESTIONS: dict[str, Callable[[Store], object]] = {
    "heads": lambda s: s.run_heads(),
    "heads before": lambda s: s.run_heads(before=RUN),
    "heads of a suite": lambda s: s.run_heads(SUITE),
    "heads of a model": lambda s: s.run_heads(Selection(model="A")),
    "head": lambda s: s.run_head(RUN),
    "choices": lambda s: s.choices(),
    "groups of a run": lambda s: s.run_groups(RUN, SUITE),
    "a week of a suite": lambda s: s.group_points(WEEK),
    "a group, one a day": lambda s: s.group_points(SUITE, every_s=86_400.0),
    "a case": lambda s: s.case_points(night_run(0).plan[0].key, Selection()),
    "a case on a branch": lambda s: s.case_points(night_run(0).plan[0].key, WEEK),
    "a case, one a day": lambda s: s.case_points(night_run(0).plan[0].key, WEEK, every_s=86_400.0),
    "cases": lambda s: s.cases(RUN),
    "cases of a suite": lambda s: s.cases(RUN, SUITE),
    "planned cases": lambda s: s.planned_cases("n002", SUITE),
    "failures": lambda s: s.failures(RUN),
    "failures of a suite": lambda s: s.failures(RUN, SUITE),
    "machines": lambda s: s.machines(),
    "list of runs": lambda s: s.list_runs(),
    "list of results": lambda s: s.list(),
    "the last": lambda s: s.find("last"),
    "view": lambda s: s.run_view(RUN),
    "results of a run": lambda s: s.result_ids(RUN),
}


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("plans") / "plans.db"
    with open_store(str(db)) as store:
        store_night(store, night_run(0))
        store_night(store, night_run(1), {1: Outcome.CRASH})
        store_night(store, night_run(2), cases=5)
    return db


def plans(store: Store, ask: Callable[[Store], object]) -> list[str]:
    """What SQLite says to each statement of a question."""
    seen: list[tuple[str, Any]] = []

    def see(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if statement.lstrip().startswith("SELECT"):
            seen.append((statement, parameters))

    event.listen(store._engine, "before_cursor_execute", see)
    ask(store)
    event.remove(store._engine, "before_cursor_execute", see)
    assert seen
    lines = []
    with store._engine.connect() as connection:
        for statement, parameters in seen:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            lines += [row[3] for row in rows if not newest_row(statement, row[3])]
    return lines


def newest_row(statement: str, line: str) -> bool:
    """Whether a "scan" is one of the last row alone."""
    table = line.removeprefix("SCAN ")
    return "LIMIT" in statement and f"ORDER BY {table}.seq DESC" in statement


def scans(lines: list[str]) -> list[str]:
    """Lines that go through a whole large table; the end of an index is not that."""
    found = []
    for line in lines:
        match = re.match(r"SCAN (\w+)(.*)", line)
        if match and match[1] in LARGE and "result_alone" not in match[2]:
            found.append(line)
    return found


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_goes_through_all_cases(nights: Path, name: str) -> None:
    with open_store(str(nights), read_only=True) as store:
        lines = plans(store, QUESTIONS[name])
        assert scans(lines) == [], "\n".join(lines)


def test_a_scan_would_be_seen(nights: Path) -> None:
    def ask(store: Store) -> None:
        with store._reading() as connection:
            connection.exec_driver_sql("SELECT * FROM case_fact WHERE speedup > 2").all()

    with open_store(str(nights), read_only=True) as store:
        assert len(scans(plans(store, ask))) == 1
