"""Figures as columns: whatever a case's figures are, they come back to the letter."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_runs import fill, make_figures, make_run

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    ForeignMetrics,
    Level,
    Outcome,
    PlannedCase,
    RecordError,
    Run,
    Verdict,
    to_data,
)
from torchstone.store import CorruptRunError, open_store
from torchstone.store.case_facts import COLUMNS, KEY, metrics_of, row_of

NUMBERS = itertools.count()
REALS = st.one_of(st.none(), st.floats(), st.sampled_from([-0.0, 0.0, 1.0, 5e-324, 1.7e308]))
WHOLE = st.one_of(st.none(), st.integers(), st.integers(-(2**63) - 1, 2**63))
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["", "a\0b", "\udcff", "fp64", "“”"]))
LISTS = st.lists(TEXTS, max_size=3).map(tuple)
FOREIGN = st.builds(
    ForeignMetrics, TEXTS, TEXTS, TEXTS, TEXTS, st.integers(0, 9), LISTS, LISTS, TEXTS
)
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "outcome": st.sampled_from(Outcome),
    "verdict": st.one_of(st.none(), st.sampled_from(Verdict)),
    "worst_check": st.sampled_from(Level),
    "interval": st.one_of(st.none(), st.tuples(st.floats(), st.floats())),
    "foreign": st.lists(FOREIGN, max_size=2).map(tuple),
    "definition": st.sampled_from([1, -1]),
    "level": st.floats(),
    "margin": st.floats(),
    "elapsed_s": st.floats(),
    "outputs_checked": st.integers(),
    "replicates": st.integers(),
}


def strategy_of(name: str, kind: str) -> st.SearchStrategy[Any]:
    if name in SPECIAL:
        return SPECIAL[name]
    kinds = {"float": REALS, "int": WHOLE, "str": TEXTS, "tuple": LISTS}
    return next(found for word, found in kinds.items() if kind.startswith(word))


FIGURES = st.fixed_dictionaries(
    {f.name: strategy_of(f.name, str(f.type)) for f in fields(CaseMetrics) if f.name != "key"}
)


@pytest.fixture(scope="module")
def result_cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("columns") / "columns.db"


@settings(max_examples=60)
@given(values=FIGURES)
def test_any_figures_come_back_exactly(result_cases: Path, values: dict[str, Any]) -> None:
    key = CaseKey("timm", "Модель é", "", "inference", "fp32", "inductor", "cpu", 4)
    figures = CaseMetrics(key=key, **values)
    run = Run(f"run-{next(NUMBERS)}", "2026-11-15", ("x",), (PlannedCase(key, "timm:m"),))
    with open_store(str(result_cases)) as store:
        store.import_run(run, [figures], "made up")
        (quick,) = store.cases(run.id)
        (viewed,) = store.run_view(run.id).cases
    # As text, because NaN is not equal to itself and -0.0 is equal to 0.0.
    assert repr(to_data(quick)) == repr(to_data(viewed)) == repr(to_data(figures))
    assert type(quick) is CaseMetrics
    assert vars(quick).keys() == {field.name for field in fields(CaseMetrics)}


def test_figures_read_back_are_like_any_other(db: Path) -> None:
    run = make_run()
    with open_store(str(db)) as store:
        fill(store, run, [0])
        (found,) = store.cases(run.id)
    made = make_figures(run, 0, "run-1.0")
    assert found == made
    assert hash(found) == hash(made)
    assert replace(found, speedup=2.0) == replace(made, speedup=2.0)
    with pytest.raises(AttributeError):
        found.speedup = 3.0  # type: ignore[misc]


@pytest.mark.sqlite_only
def test_what_cases_have_in_common_is_stored_once(db: Path) -> None:
    with open_store(str(db)) as store:
        for night in range(4):
            fill(store, make_run(f"night-{night}"), [0, 1, 2])
    with closing(sqlite3.connect(db)) as raw:
        count = {
            table: raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("case_fact", "case_detail", "series", "case_group", "machine_branch")
        }
    assert count == {
        "case_fact": 12,
        "case_detail": 1,
        "series": 3,
        "case_group": 2,
        "machine_branch": 1,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"speedup": "fast"},
        {"graphs": 1.5},
        {"command": ("a", 1)},
        {"agreement": 3},
        {"level": None},
    ],
)
def test_what_could_not_be_read_back_is_not_written(db: Path, change: dict[str, Any]) -> None:
    run = make_run()
    bad = replace(make_figures(run, 0), **change)
    with open_store(str(db)) as store:
        store.begin_run(run)
        with pytest.raises((RecordError, TypeError, AttributeError)):
            store.add_cases(run.id, None, [(0, bad)])
        assert store.done_positions(run.id) == set()


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "its detail"),
        ("[]", "its detail"),
        ('{"outcome": "ok"}', "in a column"),
        ('{"key": {}}', "in a column"),
        ('{"command": [1]}', "list of texts"),
        ('{"command": "rm"}', "list of texts"),
        ('{"reason": 7}', "reason"),
        ("[" * 100_000, "its detail"),
    ],
)
def test_a_damaged_detail_is_named(db: Path, document: str, reason: str) -> None:
    run = make_run()
    with open_store(str(db)) as store:
        fill(store, run, [0])
    with closing(sqlite3.connect(db)) as raw, raw:
        raw.execute("UPDATE case_detail SET document = ?", (document,))
    with open_store(str(db)) as store:
        for ask in (store.cases, store.run_view):
            with pytest.raises(CorruptRunError, match=reason):
                ask(run.id)
        assert store.run_head(run.id).done == 1  # what needs no case is not affected
        fill(store, run, [1, 5])  # nor are the cases to come
        assert store.done_positions(run.id) == {0, 1, 5}


def test_every_column_is_decoded_and_checked() -> None:
    run = make_run()
    figures = make_figures(run, 0, "r")
    row, detail = row_of(figures)
    assert set(row) == set(COLUMNS)
    assert json.loads(detail or "")["command"] == list(figures.command)
    good = (
        *(getattr(figures.key, n) for n in KEY),
        figures.definition,
        *(row[n] for n in COLUMNS),
        detail,
    )
    assert metrics_of(good) == figures
    for at in range(len(good)):
        with pytest.raises(RecordError):
            metrics_of((*good[:at], b"?", *good[at + 1 :]))
