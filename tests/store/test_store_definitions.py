"""A program with a newer definition of figures on a database of an older one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_history import night_run, store_night
from store_runs import derive as derive_today
from store_runs import fill, make_case, make_run

from torchstone.records import (
    CaseMetrics,
    PlannedCase,
    Result,
    Selection,
    TorchstoneError,
    UsageError,
    run,
)
from torchstone.stats import suite, summarise
from torchstone.store import Store, case_facts, case_rows, facts, open_store

NEXT = run.METRICS_DEFINITION + 1
LATER = 2e9
COMMAND = ("torchstone", "db", "prune")


def derive(result: Result, planned: PlannedCase, arm: str) -> CaseMetrics:
    return replace(derive_today(result, planned, arm), definition=NEXT)


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> object:
    """From when it is called on, the program's definition is the next one."""

    def bump() -> None:
        for room in (run, suite, case_facts, case_rows, facts):
            monkeypatch.setattr(room, "METRICS_DEFINITION", NEXT)

    return bump


def definitions(store: Store, run_id: str) -> list[int]:
    return [case.definition for case in store.cases(run_id)]


def test_runs_without_samples_keep_their_figures_and_the_others_get_new_ones(
    db: Path, upgrade: object
) -> None:
    assert callable(upgrade)
    with open_store(str(db)) as store:
        for night in range(2):
            store_night(store, night_run(night))
        fill(store, make_run("measured"), range(6))
        before = {head.id: store.run_groups(head.id) for head in store.run_heads()}
        upgrade()
        for _ in range(2):  # once more: what was derived again is summed up again, too
            store.rebuild(derive)
            for night in range(2):
                kept = night_run(night).id
                assert store.run_groups(kept) == before[kept]
                assert set(definitions(store, kept)) == {NEXT - 1}
            groups = store.run_groups("measured")
            assert {one.figures_definition for one in groups} == {NEXT}
            assert groups == summarise(store.run_view("measured").complete)
        points = store.group_points(Selection())
        assert {one.summary.figures_definition for one in points} == {NEXT - 1, NEXT}
        assert len(points) == sum(map(len, before.values()))


def test_samples_are_not_removed_before_the_figures_are_derived(db: Path, upgrade: object) -> None:
    assert callable(upgrade)
    with open_store(str(db)) as store:
        fill(store, make_run(), range(6))
        upgrade()
        with pytest.raises(UsageError, match="older definition"):
            store.prune(LATER, COMMAND, "0.1")
        assert store.load("run-1.0").pruned is None
        store.prune(LATER, COMMAND, "0.1", trial=True)
        assert definitions(store, "run-1")[0] == NEXT - 1  # a trial changes nothing
        report = store.prune(LATER, COMMAND, "0.1", derive=derive)
        assert (report.results, report.damaged) == (5, ())
        assert store.load("run-1.0").pruned is not None
        assert definitions(store, "run-1")[:5] == [NEXT] * 5
        groups = store.run_groups("run-1")
        assert {one.figures_definition for one in groups} == {NEXT}
        store.rebuild(derive)
        assert store.run_groups("run-1") == groups


@pytest.mark.sqlite_only
def test_a_run_thinned_in_part_is_summed_up_by_the_definition_that_all_cases_have(
    db: Path, upgrade: object
) -> None:
    assert callable(upgrade)
    with open_store(str(db)) as store:
        fill(store, make_run(), range(6))
        before = store.run_groups("run-1")
        with closing(sqlite3.connect(db)) as raw, raw:
            raw.execute("INSERT INTO pruned VALUES (1, '', '[]', '', 0, 0, 1, '')")
            raw.execute("UPDATE result SET document = x'00' WHERE seq = 1")
        upgrade()
        store.rebuild(derive)
        assert sorted(set(definitions(store, "run-1"))) == [NEXT - 1, NEXT]
        assert store.run_groups("run-1") == before
        assert store.prune(LATER, COMMAND, "0.1", derive=derive).results == 4
        assert store.run_groups("run-1") == before


@pytest.mark.sqlite_only
def test_a_damaged_result_is_left_and_named(db: Path, upgrade: object) -> None:
    assert callable(upgrade)
    with open_store(str(db)) as store:
        fill(store, make_run(), range(6))
        with closing(sqlite3.connect(db)) as raw, raw:
            raw.execute(
                "INSERT INTO measurement SELECT 99, 1, 9, arm, outcome, samples"
                " FROM measurement WHERE result = 1 AND position = 0"
            )
        upgrade()
        report = store.prune(LATER, COMMAND, "0.1", derive=derive)
        assert (report.results, report.damaged) == (4, ("run-1.0",))


def test_a_resumed_run_has_no_sums_until_all_of_it_is_of_one_definition(
    db: Path, upgrade: object
) -> None:
    assert callable(upgrade)
    with open_store(str(db)) as store:
        fill(store, make_run(), [0, 1])
        assert store.run_groups("run-1") != []
        upgrade()
        later = make_run()
        result, one = make_case(later, 2)
        store.add_cases(later.id, result, [(2, replace(one, definition=NEXT))])
        assert store.run_groups("run-1") == []
        store.rebuild(derive)
        assert {one.figures_definition for one in store.run_groups("run-1")} == {NEXT}


@pytest.mark.sqlite_only
def test_a_change_that_the_tables_refuse_is_no_trouble_with_the_path(db: Path) -> None:
    with open_store(str(db)) as store:
        fill(store, make_run(), [0])
        refused = pytest.raises(TorchstoneError, match="refused the change: UNIQUE constraint")
        with refused as caught, store._writing() as connection:
            connection.exec_driver_sql("INSERT INTO run_fact SELECT * FROM run_fact")
        assert "permissions" not in caught.value.remedy
        assert len(store.run_heads()) == 1
