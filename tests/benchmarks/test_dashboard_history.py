"""A made-up history: deterministic, labelled as such, and one that the store can answer from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dashboard_history import History, Shape, build, one_night
from dashboard_queries import measure

from tests.benchmarks.support import run
from torchstone.records import Selection, to_data
from torchstone.stats import summarise
from torchstone.store import open_store

SMALL = Shape(nights=6, models=4, variants=3, raw_nights=1)


def test_the_same_seed_gives_the_same_history() -> None:
    first, again = (one_night(History(SMALL), 5) for _ in range(2))
    assert to_data(first.run) == to_data(again.run)
    assert first.cases == again.cases
    assert [one.encoded for one in first.results] == [one.encoded for one in again.results]
    other = one_night(History(Shape(nights=6, models=4, variants=3, seed=1)), 5)
    assert other.cases != first.cases


def test_it_is_labelled_and_whole(tmp_path: Path) -> None:
    db = tmp_path / "history.db"
    build(db, SMALL)
    with open_store(str(db), read_only=True) as store:
        heads = store.run_heads()
        assert len(heads) == SMALL.nights
        for head in heads:
            assert "synthetic" in head.label
            assert "synthetic" in head.origin
            assert "synthetic" in head.machine
            assert (head.done, head.state) == (SMALL.cases, "complete")
            assert len(head.outcomes) > 1  # some fail
        days = [(head.created_s or 0.0) // 86_400 for head in heads]
        assert days == [days[0] - i for i in range(SMALL.nights)]
        newest, older = heads[0], heads[1]
        assert store.run_groups(newest.id) == summarise(store.planned_cases(newest.id))
        with_samples = [case for case in store.cases(newest.id) if case.result_id]
        assert with_samples
        result = store.load(with_samples[0].result_id)
        assert sum(len(turn.wall_ns) for arm in result.arms for turn in arm.turns) > 1000
        assert result.origin.startswith("synthetic")
        assert not [case for case in store.cases(older.id) if case.result_id]
        key = with_samples[0].key
        assert len(store.case_points(key, Selection())) == SMALL.nights
        weight = store.size()
        assert weight.whole.results == 4 * 3 * 2  # models, suites, modes: three variants in one
    answers = {one.name: one for one in measure(db)}
    assert answers["cases of a run"].rows == SMALL.cases
    assert all(one.median_ms > 0 for one in answers.values())


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    db = tmp_path / "history.db"
    words = ("--nights", "2", "--models", "1", "--variants", "1", "--raw-nights", "0")
    done = run("dashboard_history.py", str(db), *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("12 cases in ")
    again = run("dashboard_history.py", str(db), *words)
    assert again.returncode == 2
    table = run("dashboard_history.py", str(db), "--queries")
    assert "failures of a run" in table.stdout
    assert json.dumps(table.stderr) == '""'
