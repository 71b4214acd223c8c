"""Derived tables made again, whole runs at once, and what a case costs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import make_result
from store_history import night_run, store_night
from store_runs import derive, fill, make_case, make_figures, make_run, wanted

from torchstone.records import FOREIGN_DEFINITION, Outcome, RunView, Selection, UsageError
from torchstone.stats import summarise
from torchstone.store import BulkRun, Store, open_store
from torchstone.store.case_rows import BulkResult
from torchstone.store.codec import split

DERIVED = ("run_fact", "group_fact")


def answers(store: Store) -> list[object]:
    """What every question over history is answered."""
    heads = store.run_heads()
    found: list[object] = [heads, store.choices(), store.group_points(Selection())]
    for head in heads:
        found += [store.cases(head.id), store.planned_cases(head.id), store.failures(head.id)]
        found.append(store.run_groups(head.id))
    return [*found, store.machines(), store.list_runs()]


@pytest.mark.sqlite_only
def test_lost_facts_are_made_anew(db: Path) -> None:
    with open_store(str(db)) as store:
        store_night(store, night_run(0), {1: Outcome.CRASH})
        store_night(store, night_run(1, branch="fix"), cases=5)
        store.import_run(make_run("foreign"), [], "elsewhere")
        before = answers(store)
        with closing(sqlite3.connect(db)) as raw, raw:
            for table in DERIVED:
                raw.execute(f"DELETE FROM {table}")
            raw.execute("UPDATE case_fact SET machine_branch = 99, at = 5")
            raw.execute("INSERT INTO case_detail VALUES (999, x'00', '{}')")
        assert store.run_heads() == []
        told: list[tuple[str, int, int]] = []
        rebuilt = store.rebuild(tell=lambda *words: told.append(words))
        assert (rebuilt.runs, rebuilt.figures) == (3, 0)
        assert told == [("runs", 1, 3), ("runs", 2, 3), ("runs", 3, 3)]
        assert answers(store) == before
    with closing(sqlite3.connect(db)) as raw:
        assert raw.execute("SELECT count(*) FROM case_detail WHERE seq = 999").fetchone() == (0,)


@pytest.mark.sqlite_only
def test_only_stale_figures_are_derived_unless_all_are_asked_for(db: Path) -> None:
    run = make_run(cases=6)
    with open_store(str(db)) as store:
        fill(store, run, [0, 1, 3])
        with closing(sqlite3.connect(db)) as raw, raw:
            raw.execute("UPDATE case_fact SET definition = 0 WHERE position = 1")
        assert store.rebuild().figures == 0  # nobody can derive them
        assert store.rebuild(derive).figures == 1
        cases = store.cases(run.id)
        assert cases[1].reason == "run-1.1 inductor"
        assert cases[1].command == make_figures(run, 1).command  # known from when it was measured
        assert cases[0] == make_case(run, 0)[1]
        assert store.rebuild(derive).figures == 0
        rebuilt = store.rebuild(derive, every=True)
        assert (rebuilt.figures, rebuilt.summaries) == (3, 3)
        assert store.cases(run.id)[0].reason == "run-1.0 inductor"
        assert store.run_groups(run.id) == summarise(store.run_view(run.id).complete)


def test_figures_of_two_definitions_are_not_summed_up(db: Path) -> None:
    run = make_run(cases=6)
    with open_store(str(db)) as store:
        fill(store, run, [0, 1])
        foreign = replace(make_figures(run, 2), definition=FOREIGN_DEFINITION)
        store.add_cases(run.id, None, [(2, foreign)])
        assert store.run_groups(run.id) == []
        assert store.run_head(run.id).done == 3
        assert len(store.cases(run.id)) == 3


def test_whole_runs_at_once_are_as_if_measured_case_by_case(db: Path, tmp_path: Path) -> None:
    run, other = make_run("one"), make_run("two")
    with open_store(str(db)) as store, open_store(str(tmp_path / "slow.db")) as slow:
        made = []
        for each in (run, other):
            pairs = [make_case(each, i) for i in range(5)]
            results = tuple(
                BulkResult(result, split(result), (i,))
                for i, (result, _) in enumerate(pairs)
                if result is not None
            )
            cases = tuple((i, figures) for i, (_, figures) in enumerate(pairs))
            made.append(BulkRun(each, cases, results))
            fill(slow, each, range(5))
        assert store.add_runs_in_bulk(made) == 2
        assert answers(store) == answers(slow)
        assert store.run_view("one") == RunView(run, wanted(run, range(5)))
        assert store.load("two.3") == make_case(other, 3)[0]
        assert store.rebuild(derive, every=True).figures == 10
        with pytest.raises(UsageError, match="already stored"):
            store.add_runs_in_bulk(made[:1])
        wrong = replace(made[0], run=make_run("three"), cases=((4, make_figures(run, 0)),))
        with pytest.raises(ValueError, match="plan"):
            store.add_runs_in_bulk([wrong])
        assert len(store.run_heads()) == 2


def test_what_a_case_costs(db: Path) -> None:
    run = make_run(cases=42)
    with open_store(str(db)) as store:
        empty = store.size()
        assert (empty.cases, empty.facts_per_case, empty.whole.per_case) == (0, None, None)
        store.begin_run(run)
        for i in range(40):
            result = make_result(f"r{i}", replicates=4, turns=40, samples=12, seed=i)
            figures = replace(make_figures(run, 0, f"r{i}"), key=run.plan[i].key)
            store.add_cases(run.id, result, [(i, figures)])
        report = store.size()
        assert (report.runs, report.cases, report.whole.results) == (1, 40, 40)
        assert report.file_bytes > report.whole.bytes > 40 * 5_000
        tables = {table.name: table for table in report.tables}
        assert tables["case_fact"].rows == tables["run_case"].rows == 40
        assert sum(table.bytes or 0 for table in report.tables) <= report.file_bytes
        assert tables["measurement"].bytes
        assert report.pruned.per_case is None
        store.prune(2e9, ("torchstone",), "0.1")
        after = store.size()
        assert (after.whole.results, after.pruned.results) == (0, 40)
        assert after.pruned.per_case is not None
        assert report.whole.per_case is not None
        assert after.pruned.per_case < report.whole.per_case / 3
        print(f"\na case: {report.whole.per_case:.0f} bytes, thinned {after.pruned.per_case:.0f}")


@pytest.mark.sqlite_only
def test_the_figures_of_many_nights_are_small(db: Path) -> None:
    """Run with `-s` to see the figures."""
    cases = 400
    with open_store(str(db)) as store:
        for night in range(10):
            run = replace(make_run(f"n{night}", cases), created=f"2026-01-{night + 1:02d}")
            every = [make_figures(run, i) for i in range(cases)]
            store.add_runs_in_bulk([BulkRun(run, tuple(enumerate(every)))])
        each = store.size().facts_per_case
    print(f"\nwithout its result a case takes {each:.0f} bytes")
    assert each is not None
    assert each < 600
