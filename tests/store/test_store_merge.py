"""Shards measured into several databases become one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import make_result
from store_runs import fill, make_case, make_figures, make_run, wanted

from torchstone.records import Run, UsageError
from torchstone.store import Store, open_store


def shards(folder: Path, run: Run, parts: int) -> list[Path]:
    """Databases that hold every `parts`-th case each."""
    paths = [folder / f"shard{i}.db" for i in range(parts)]
    for i, path in enumerate(paths):
        with open_store(str(path)) as store:
            fill(store, run, range(i, len(run.plan), parts))
    return paths


def join(store: Store, path: Path, run_id: str) -> int:
    with open_store(str(path), read_only=True) as other:
        return store.merge_run(other, run_id)


def test_shards_join_into_the_whole_run(tmp_path: Path, db: Path) -> None:
    run = make_run(cases=10, label="night")
    with open_store(str(db)) as store:
        added = [join(store, path, run.id) for path in shards(tmp_path, run, 3)]
        assert added == [4, 3, 3]
        view = store.run_view("night")
        assert view.run == replace(run, origin="shard0.db")
        assert view.cases == wanted(run, range(10))
        for position in (0, 3, 7):
            result, _ = make_case(run, position)
            assert result is not None
            assert store.load(result.id) == replace(result, origin=f"shard{position % 3}.db")
        assert store.count() == 9


def test_joining_again_adds_nothing(tmp_path: Path, db: Path) -> None:
    run = make_run(cases=6)
    paths = shards(tmp_path, run, 2)
    with open_store(str(db)) as store:
        for path in paths:
            join(store, path, run.id)
        before = store.run_view(run.id), store.count()
        assert [join(store, path, run.id) for path in paths] == [0, 0]
        assert store.merge_run(store, run.id) == 0
        assert (store.run_view(run.id), store.count()) == before


def test_what_is_here_stays_and_only_the_missing_comes(tmp_path: Path, db: Path) -> None:
    run = make_run(cases=5)
    mine = replace(make_figures(run, 1), speedup=9.0)
    with open_store(str(db)) as store:
        store.begin_run(run)
        store.add_cases(run.id, make_result("mine"), [(1, mine)])
        assert join(store, shards(tmp_path, run, 1)[0], run.id) == 4
        view = store.run_view(run.id)
        assert view.run.origin == "here"
        assert view.cases[1] == mine
        assert view.cases[2:] == wanted(run, range(2, 5))
        assert {s.id for s in store.list()} == {"mine", "run-1.0", "run-1.2", "run-1.3"}


def test_a_result_with_several_cases_is_copied_once(tmp_path: Path, db: Path) -> None:
    run = make_run(cases=4)
    plan = tuple(
        replace(run.plan[0], key=replace(run.plan[0].key, variant=name))
        for name in ("inductor", "aot_eager", "export")
    )
    run = replace(run, plan=plan)
    result = make_result("shared", arms=("eager", "inductor", "aot_eager", "export"))
    with open_store(str(tmp_path / "other.db")) as other:
        other.begin_run(run)
        other.add_cases(run.id, result, [(i, make_figures(run, i)) for i in range(3)])
    with open_store(str(db)) as store:
        store.begin_run(run)
        store.add_cases(run.id, None, [(1, make_figures(run, 1))])
        # The result is there from an earlier join that brought only one of its cases.
        store.save(replace(result, origin="other.db"))
        assert join(store, tmp_path / "other.db", run.id) == 2
        assert store.count() == 1
        assert store.done_positions(run.id) == {0, 1, 2}


def test_another_plan_and_another_result_are_refused(tmp_path: Path, db: Path) -> None:
    run = make_run(cases=4)
    (path,) = shards(tmp_path, run, 1)
    with open_store(str(db)) as store:
        store.begin_run(replace(run, plan=run.plan[:3]))
        with pytest.raises(UsageError, match="another plan"):
            join(store, path, run.id)
        assert store.done_positions(run.id) == set()
    with open_store(str(tmp_path / "second.db")) as store:
        store.save(make_result("run-1.1", seed=99))
        with pytest.raises(UsageError, match=r"Another result with the id run-1\.1"):
            join(store, path, run.id)
        assert store.done_positions(run.id) == {0}
        with pytest.raises(UsageError, match="There is no run 'nobody'"):
            join(store, path, "nobody")
