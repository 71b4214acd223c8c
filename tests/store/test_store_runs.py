"""Runs: the plan goes in first, cases follow one by one, and none is ever stored twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from store_cases import make_result
from store_runs import derive, fill, make_case, make_figures, make_run, statements, wanted

from torchstone.records import ArmSpec, CaseMetrics, Outcome, Result, RunView, UsageError, to_data
from torchstone.store import AlreadyStored, RunSummary, open_store


def test_a_run_and_its_cases_come_back_equal(db: Path) -> None:
    run = make_run(cases=6)
    with open_store(str(db)) as store:
        fill(store, run, [4, 0, 5, 3])
    with open_store(str(db), read_only=True) as store:
        assert store.load_run(run.id) == run
        assert store.done_positions(run.id) == {0, 3, 4, 5}
        view = store.run_view(run.id)
        assert view == RunView(run, wanted(run, [0, 3, 4, 5]))  # in the plan's order
        assert [case.outcome for case in view.complete] == [
            Outcome.OK,
            Outcome.NOT_RUN,
            Outcome.NOT_RUN,
            Outcome.CRASH,
            Outcome.OK,
            Outcome.NOT_SUPPORTED,
        ]
        for position in (0, 3, 4):
            result, figures = make_case(run, position)
            assert store.load(figures.result_id) == result
        assert store.count() == 3


def test_a_view_reads_no_samples(db: Path) -> None:
    run = make_run()
    with open_store(str(db)) as store:
        fill(store, run, range(6))
        seen = statements(store)
        store.run_view(run.id)
        assert seen
        assert not [sql for sql in seen if "samples" in sql or "FROM result" in sql]
        assert len(seen) < 8  # not one for each case


def test_several_cases_share_a_result(db: Path) -> None:
    run = make_run(cases=4)
    keys = [replace(run.plan[0].key, variant=name) for name in ("inductor", "aot_eager", "export")]
    plan = tuple(replace(run.plan[0], key=key) for key in keys)
    run = replace(run, plan=plan)
    result = make_result("shared", arms=("eager", "inductor", "aot_eager", "export"))
    given = [(i, replace(make_figures(run, i), result_id="shared")) for i in (2, 0, 1)]
    with open_store(str(db)) as store:
        store.begin_run(run)
        store.add_cases(run.id, result, given)
        assert store.load("shared") == result
        assert store.run_view(run.id).cases == tuple(figures for _, figures in sorted(given))
        arms: dict[str, str] = {}

        def look(found: Result, planned: Any, arm: str) -> CaseMetrics:
            arms[planned.key.variant] = arm
            return derive(found, planned, arm)

        assert store.rebuild(look, every=True).figures == 3
        assert arms == {"inductor": "inductor", "aot_eager": "aot_eager", "export": "export"}


def test_the_arm_of_a_case_is_found_by_its_variant(db: Path) -> None:
    run = make_run(cases=2)
    whole = make_result("odd", arms=("eager", "renamed"))
    arms = (whole.arms[0], replace(whole.arms[1], arm=ArmSpec("again", variant="eager")))
    two = make_result("two", arms=("eager", "a", "b"))
    with open_store(str(db)) as store:
        store.begin_run(run)
        with pytest.raises(ValueError, match="no single arm of the result two"):
            store.add_cases(run.id, two, [(0, replace(make_figures(run, 0), result_id="two"))])
        odd = replace(make_figures(run, 0), result_id="odd")
        store.add_cases(run.id, replace(whole, arms=arms), [(0, odd)])
        assert store.rebuild(derive, every=True).figures == 1
        assert store.run_view(run.id).cases[0].reason == "odd again"
        assert store.count() == 1


def test_a_case_is_stored_once(db: Path) -> None:
    run = make_run(cases=6)
    with open_store(str(db)) as store:
        fill(store, run, [0, 2])
        other = make_result("other", seed=9)
        given = [(i, make_figures(run, i)) for i in (1, 2)]
        with pytest.raises(AlreadyStored, match="case 2") as caught:
            store.add_cases(run.id, other, given)
        assert caught.value.positions == (2,)
        assert caught.value.run_id == run.id
        # Nothing of it was written: neither the result nor the case that was free.
        assert store.count() == 2
        assert store.done_positions(run.id) == {0, 2}
        store.add_cases(run.id, other, given[:1])
        assert store.done_positions(run.id) == {0, 1, 2}


def test_what_does_not_fit_the_plan_is_refused(db: Path) -> None:
    run = make_run(cases=4)
    right = make_figures(run, 1)
    with open_store(str(db)) as store:
        store.begin_run(run)
        for given in ([(4, right)], [(-1, right)], [(1, right), (1, right)], [(0, right)]):
            with pytest.raises(ValueError, match="plan"):
                store.add_cases(run.id, None, given)
        with pytest.raises(UsageError, match="There is no run 'nobody'"):
            store.add_cases("nobody", None, [(1, right)])
        store.save(make_result("known"))
        with pytest.raises(UsageError, match="known is already stored"):
            store.add_cases(run.id, make_result("known"), [(1, right)])
        assert store.done_positions(run.id) == set()


def test_an_interrupt_at_any_statement_stores_all_of_a_case_or_nothing(db: Path) -> None:
    run = make_run(cases=40)
    with open_store(str(db)) as store:
        fill(store, run, [0])
        seen = statements(store)
        fill(store, run, [1])
        assert len(seen) >= 10
        for at in range(len(seen)):
            left = at

            def interrupt(*_: Any) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt

            event.listen(store._engine, "after_cursor_execute", interrupt)
            with pytest.raises(KeyboardInterrupt):
                fill(store, run, [2])
            event.remove(store._engine, "after_cursor_execute", interrupt)
            assert store.done_positions(run.id) == {0, 1}
            assert store.count() == 2
        fill(store, run, [2])
        assert store.run_view(run.id).cases == wanted(run, range(3))


def test_the_same_plan_joins_and_another_is_refused(db: Path) -> None:
    run = make_run(cases=4)
    later = replace(run, created="2026-11-16T20:00:00+00:00", label="another", command=("x",))
    reason = replace(run.plan[2], not_supported="not on this machine")
    with open_store(str(db)) as store:
        store.begin_run(run)
        store.begin_run(later)
        store.begin_run(replace(run, plan=(*run.plan[:2], reason, run.plan[3])))
        assert store.load_run("last") == run  # the first one's record stays
        assert len(store.list_runs()) == 1
        elsewhere = (*run.plan[:3], replace(run.plan[3], target="x"))
        for plan in (run.plan[:3], run.plan[::-1], elsewhere):
            with pytest.raises(UsageError, match="stored with another plan"):
                store.begin_run(replace(run, plan=plan))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "last"}, "cannot be the id of a run"),
        ({"id": "a b"}, "cannot be the id of a run"),
        ({"label": "last"}, "cannot be labelled"),
        ({"label": "a\x1b[2J"}, "not printable"),
        ({"label": "x" * 501}, "too long"),
        ({"plan": ()}, "0 cases"),
        ({"plan": make_run().plan[:2] * 2}, "in the plan 2 times"),
    ],
)
def test_a_run_that_could_not_be_used_is_refused(
    db: Path, change: dict[str, Any], message: str
) -> None:
    with open_store(str(db)) as store:
        with pytest.raises(UsageError, match=message) as caught:
            store.begin_run(replace(make_run(), **change))
        assert caught.value.remedy
        assert store.list_runs() == []


def test_a_run_is_found_by_id_beginning_label_and_last(db: Path) -> None:
    with open_store(str(db)) as store:
        with pytest.raises(UsageError, match="No run is stored yet"):
            store.load_run("last")
        for run_id, label in (("abc1", "night"), ("abd2", "night"), ("xyz", "abc"), ("night9", "")):
            store.begin_run(make_run(run_id, label=label))
        assert store.load_run("last").id == "night9"
        assert store.load_run("abd").id == "abd2"
        assert store.load_run("night").id == "abd2"  # a whole label wins over a beginning
        assert store.load_run("abc").id == "xyz"
        assert store.load_run("abc1").id == "abc1"
        with pytest.raises(UsageError, match="Several runs begin with 'ab': abd2, abc1"):
            store.load_run("ab")
        for slip in ("nigth", "xyy"):
            with pytest.raises(UsageError, match=r"Nearest: (night|xyz)") as caught:
                store.load_run(slip)
            assert "torchstone list runs" in caught.value.remedy
        for hopeless in ("", "a\0b", "\udcff", "'; DROP TABLE run; --"):
            with pytest.raises(UsageError):
                store.load_run(hopeless)


def test_of_several_runs_with_a_label_the_newest_is_shown_and_says_so(db: Path) -> None:
    with open_store(str(db)) as store:
        for run_id in ("one", "two", "three"):
            store.begin_run(make_run(run_id, label="night"))
        view = store.run_view("night")
        assert view.run.id == "three"
        assert view.run.notes[-1] == "newest of 3 runs labelled 'night'; older: two, one"
        assert store.run_view("three").run == store.load_run("three")  # asked by id: no note
        assert store.load_run("night").notes == make_run().notes


def test_the_list_of_runs(db: Path) -> None:
    first, second = make_run("one", cases=9), make_run("two", cases=4, label="night")
    with open_store(str(db)) as store:
        assert store.list_runs() == []
        fill(store, first, range(9))
        fill(store, second, [0])
        seen = statements(store)
        listed = store.list_runs()
        assert not [sql for sql in seen if "document" in sql]
        assert listed == [
            RunSummary(
                "two", second.created, "night", "here", 4, 1, {"ok": 1}, ("huggingface", "timm")
            ),
            RunSummary(
                "one",
                first.created,
                "",
                "here",
                9,
                9,
                {"ok": 7, "crash": 1, "not_supported": 1},
                ("huggingface", "timm"),
            ),
        ]
        assert store.list_runs(1) == listed[:1]
        assert json.dumps(to_data(listed[0]))
        with pytest.raises(UsageError):
            store.list_runs(-1)


def test_find_knows_results_and_runs(db: Path) -> None:
    run = make_run("run-1", label="night", created="2026-11-15T20:00:00+00:00")
    with open_store(str(db)) as store:
        with pytest.raises(UsageError, match="No result is stored yet"):
            store.find("last")
        store.save(make_result("before", created="2020-01-01T00:00:00+00:00"))
        assert store.find("last") == store.load("before")
        store.begin_run(run)
        assert store.find("last") == RunView(run)
        fill(store, run, [0])
        assert store.find("last") == store.run_view("run-1")  # not the case's own result
        assert store.find("run-1.0") == make_case(run, 0)[0]
        assert store.find("run-1") == store.find("night") == store.run_view("run-1")
        assert store.find("befo") == store.load("before")
        with pytest.raises(UsageError, match=r"Several results or runs begin with 'run'"):
            store.find("run")
        with pytest.raises(UsageError, match=r"no result or run 'befoer'\. Nearest: before"):
            store.find("befoer")
        store.save(make_result("after", created="2999-01-01T00:00:00+00:00"))
        assert store.find("last") == store.load("after")
        fill(store, run, [1])  # a row of later, but of a time before
        assert store.find("last") == store.load("after")
