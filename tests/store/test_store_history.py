"""Runs over time: every answer is what the runs themselves say."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_history import DAY_S, FIRST_S, MODELS, night_run, store_night
from store_runs import fill, make_run

from torchstone.records import (
    CaseKey,
    Conditions,
    DoctorReport,
    Estimate,
    Finding,
    Level,
    Outcome,
    Selection,
    UsageError,
)
from torchstone.stats import summarise
from torchstone.store import CorruptRunError, Store, heartbeat, open_store
from torchstone.store.location import locate

CRASH, WRONG = Outcome.CRASH, Outcome.WRONG_ANSWER


@pytest.fixture
def nights(db: Path) -> Path:
    """Five nights on two branches and machines; stored in another order than they were made in."""
    with open_store(str(db)) as store:
        store_night(store, night_run(2), {1: CRASH})
        store_night(store, night_run(0))
        store_night(store, night_run(1, torch="2.12.0"), {2: WRONG})
        store_night(store, night_run(3, branch="fix", machine="m2"))
        store_night(store, night_run(4), cases=10)
    return db


def reading(db: Path) -> Store:
    return open_store(str(db), create=False, read_only=True)


def ids(heads: object) -> list[str]:
    return [head.id for head in heads]  # type: ignore[attr-defined]


def test_heads_are_the_newest_first_by_when_they_were_made(nights: Path) -> None:
    with reading(nights) as store:
        heads = store.run_heads()
        assert [head.label for head in heads] == [f"night {i}" for i in (4, 3, 2, 1, 0)]
        newest, third = heads[0], heads[2]
        assert (newest.done, newest.planned, newest.state) == (10, 24, "interrupted")
        assert dict(third.outcomes) == {"ok": 23, "crash": 1}
        assert third.state == "complete"
        assert third.suites == ("hf", "timm")
        assert third.created_s == FIRST_S + 2 * DAY_S
        assert (third.commit, third.branch, third.dirty) == ("0002" * 10, "main", False)
        assert (third.machine_id, third.machine, third.torch) == ("m1", "Machine m1", "2.13.0")
        assert (third.tier, third.origin) == ("quick", "here")
        assert heads[1].dirty is True


def test_heads_come_page_by_page(nights: Path) -> None:
    with reading(nights) as store:
        every = ids(store.run_heads())
        assert ids(store.run_heads(limit=2)) == every[:2]
        assert ids(store.run_heads(limit=2, before=every[1])) == every[2:4]
        assert ids(store.run_heads(before=every[-1])) == []
        assert store.run_heads(limit=0) == []
        with pytest.raises(UsageError, match="cannot be made"):
            store.run_heads(limit=-1)
        with pytest.raises(UsageError, match="no run 'nobody'"):
            store.run_heads(before="nobody")


def test_runs_of_one_moment_are_all_on_the_pages(db: Path) -> None:
    with open_store(str(db)) as store:
        for i in range(5):
            store_night(store, night_run(1, name=f"same-{i}"), cases=0)
        store.begin_run(replace(night_run(1, name="undated"), created="yesterday"))
        seen: list[str] = []
        while page := store.run_heads(limit=2, before=seen[-1] if seen else ""):
            seen += ids(page)
        assert seen == [f"same-{i}" for i in (4, 3, 2, 1, 0)] + ["undated"]
        assert store.run_head("undated").created_s is None
        assert "undated" not in ids(store.run_heads(Selection(since_s=0.0)))


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(branch="fix"), [3]),
        (Selection(machine_id="m1"), [4, 2, 1, 0]),
        (Selection(torch="2.12.0"), [1]),
        (Selection(since_s=FIRST_S + DAY_S, until_s=FIRST_S + 2 * DAY_S), [2, 1]),
        (Selection(suite="timm", mode="training"), [4, 3, 2, 1, 0]),
        (Selection(suite="nothing"), []),
        (Selection(threads=0), [4, 3, 2, 1, 0]),
        (Selection(threads=7), []),
        (Selection(suite="timm", model="A"), [3, 2, 1, 0]),  # night 4 did not get that far
        (Selection(suite="hf", model="A", branch="main"), [4, 2, 1, 0]),
        (Selection(variant="aot_eager", scale="small", precision="fp32", device="cuda"), []),
    ],
)
def test_a_selection_of_runs(nights: Path, selection: Selection, wanted: list[int]) -> None:
    with reading(nights) as store:
        assert [h.label for h in store.run_heads(selection)] == [f"night {i}" for i in wanted]


def test_a_head_is_found_as_runs_are(nights: Path) -> None:
    with reading(nights) as store:
        assert store.run_head("n002-main-m1").label == "night 2"
        assert store.run_head("n002").label == "night 2"
        assert store.run_head("night 3").id == "n003-fix-m2"
        with pytest.raises(UsageError, match="Several runs begin"):
            store.run_head("n00")
        with pytest.raises(UsageError, match="no run 'x'"):
            store.run_head("x")


def test_choices_are_all_there_is(nights: Path) -> None:
    with reading(nights) as store:
        found = store.choices()
    assert found.suites == ("hf", "timm")
    assert (found.scales, found.precisions, found.devices) == (("small",), ("fp32",), ("cpu",))
    assert found.modes == ("inference", "training")
    assert found.variants == ("aot_eager", "inductor")
    assert found.threads == (0,)
    assert found.branches == ("main", "fix"), "the newest first: there may be thousands"
    assert found.torches == ("2.13.0", "2.12.0")
    assert found.machines == {"m1": "Machine m1", "m2": "Machine m2"}


def test_an_empty_database_has_empty_answers(db: Path) -> None:
    with open_store(str(db)) as store:
        assert store.run_heads() == []
        assert store.choices().suites == ()
        assert store.group_points(Selection()) == []
        assert store.machines() == []
        key = CaseKey("a", "b", "", "c", "d", "e")
        assert store.case_points(key, Selection()) == []


def test_groups_are_what_the_one_definition_says(nights: Path) -> None:
    with reading(nights) as store:
        for head in store.run_heads():
            wanted = summarise(store.run_view(head.id).complete)
            assert store.run_groups(head.id) == wanted
            points = store.group_points(Selection(since_s=head.created_s, until_s=head.created_s))
            assert [point.summary for point in points] == wanted
            assert {point.run for point in points if point.run != head} == set()
        only = store.run_groups("n002", Selection(suite="timm", variant="inductor"))
        assert [(one.suite, one.mode) for one in only] == [
            ("timm", "inference"),
            ("timm", "training"),
        ]


def test_groups_over_time(nights: Path) -> None:
    asked = Selection(suite="hf", mode="inference", variant="aot_eager")
    with reading(nights) as store:
        points = store.group_points(asked)
        assert [point.run.label for point in points] == [f"night {i}" for i in range(5)]
        assert [point.summary.passes.passed for point in points] == [3, 3, 2, 3, 3]
        assert [p.run.label for p in store.group_points(asked, limit=2)] == ["night 3", "night 4"]
        mine = store.group_points(replace(asked, branch="main", torch="2.13.0"))
        assert [p.run.label for p in mine] == ["night 0", "night 2", "night 4"]
        rare = store.group_points(asked, every_s=3 * DAY_S)  # the newest of each machine
        assert [p.run.label for p in rare] == ["night 2", "night 3", "night 4"]


def test_one_run_a_week_is_one_that_has_the_suite(db: Path) -> None:
    """Weeks begin on Mondays; runs without the suite, and runs left out, do not stand for one."""
    friday, sunday, monday = 1, 3, 4  # the first night is a Thursday's
    asked = Selection(suite="hf", mode="inference", variant="aot_eager")
    with open_store(str(db)) as store:
        for night in (friday, sunday, monday):
            store_night(store, night_run(night))
        week = 7 * DAY_S
        assert [p.run.label for p in store.group_points(asked, every_s=week)] == [
            f"night {sunday}",
            f"night {monday}",
        ]
        without = {night_run(sunday).id}
        assert [p.run.label for p in store.group_points(asked, every_s=week, without=without)] == [
            f"night {friday}",
            f"night {monday}",
        ]
        other = night_run(sunday, name="later")
        only = tuple(one for one in other.plan if one.key.suite == "timm")
        store_night(store, replace(other, plan=only, label="another suite"))
        first, *_ = store.group_points(asked, every_s=week)
        assert first.run.label == f"night {sunday}"
        key = night_run(0).plan[1].key
        points = store.case_points(key, Selection(), every_s=week)
        assert [p.run.label for p in points] == [f"night {sunday}", f"night {monday}"]


def test_a_run_that_has_just_begun_is_there(db: Path) -> None:
    run = night_run(1)
    with open_store(str(db)) as store:
        store.begin_run(run)
        (first, *_) = store.run_groups(run.id)
        assert (first.passes.passed, first.passes.planned) == (0, 3)
        assert first.passes.outcomes["not_run"] == 3
        head = store.run_head(run.id)
        assert (head.done, head.state) == (0, "interrupted")
        assert [one.outcome for one in store.planned_cases(run.id)] == [Outcome.NOT_RUN] * 24
        assert store.cases(run.id) == ()


def test_a_living_run_is_running(db: Path) -> None:
    run = night_run(1)
    with open_store(str(db)) as store:
        store_night(store, run, cases=3)
        assert store.run_head(run.id).state == "interrupted"
        with heartbeat.start_heartbeat(locate(str(db)), run.id):
            assert store.run_head(run.id).state == "running"
            assert [head.state for head in store.run_heads()] == ["running"]
            point = store.group_points(Selection())[0]
            assert point.run.state == "running"
        assert store.run_head(run.id).state == "interrupted"


def test_a_case_over_time(nights: Path) -> None:
    with reading(nights) as store:
        key = night_run(0).plan[1].key
        points = store.case_points(key, Selection())
        assert [point.run.label for point in points] == [f"night {i}" for i in range(5)]
        for point in points:
            assert point.figures == store.run_view(point.run.id).cases[1]
        assert [point.figures.outcome for point in points][2] is CRASH
        recent = store.case_points(key, Selection(), limit=2)
        assert [point.run.label for point in recent] == ["night 3", "night 4"]
        here = Selection(branch="main", machine_id="m1", since_s=FIRST_S + DAY_S)
        assert [p.run.label for p in store.case_points(key, here)] == [
            "night 1",
            "night 2",
            "night 4",
        ]
        assert store.case_points(key, Selection(branch="none")) == []
        assert store.case_points(replace(key, model="Z"), Selection()) == []
        rare = store.case_points(key, Selection(), every_s=3 * DAY_S)
        assert [point.run.label for point in rare] == ["night 2", "night 3", "night 4"]


def test_cases_and_planned_cases(nights: Path) -> None:
    with reading(nights) as store:
        for head in store.run_heads():
            view = store.run_view(head.id)
            assert store.cases(head.id) == view.cases
            assert store.planned_cases(head.id) == view.complete
        asked = Selection(suite="hf", mode="training")
        half = store.planned_cases("n004", asked)
        assert [one.key.model for one in half] == [m for m in MODELS for _ in range(2)]
        wanted = [
            one for one in store.run_view("n004").complete if one.key in {h.key for h in half}
        ]
        assert list(half) == wanted
        assert len(store.cases("n004", asked)) == 4
        assert store.cases("n002", Selection(model="B", variant="inductor", suite="timm")) == tuple(
            one
            for one in store.run_view("n002").cases
            if one.key.model == "B" and one.key.variant == "inductor" and one.key.suite == "timm"
        )


def test_failures_say_since_when(db: Path) -> None:
    with open_store(str(db)) as store:
        store_night(store, night_run(0), {5: CRASH, 7: CRASH})
        store_night(store, night_run(1), {5: CRASH, 6: WRONG})
        store_night(store, night_run(2), {4: CRASH, 5: CRASH, 7: CRASH})
        store_night(store, night_run(3, branch="fix"), {7: CRASH})  # another line
        store_night(store, night_run(3), {4: WRONG, 5: CRASH, 7: Outcome.NOT_SUPPORTED})
        store_night(store, night_run(4), {4: CRASH, 5: CRASH, 7: CRASH, 8: Outcome.NOT_SUPPORTED})
        store_night(store, night_run(5))  # later nights do not matter
        found = {
            plan_of(one.figures.key): one for one in store.failures(night_run(4).id, Selection())
        }
        assert list(found) == [4, 5, 7]
        four, five, seven = (found[i] for i in (4, 5, 7))
        assert four.last_good is not None
        assert four.first_bad is not None
        assert (four.last_good.label, four.first_bad.label) == ("night 1", "night 2")
        assert four.runs_failing == 3
        assert four.figures == store.run_view(night_run(4).id).cases[4]
        assert five.last_good is None
        assert five.first_bad is not None
        assert (five.first_bad.label, five.runs_failing) == ("night 0", 5)
        assert seven.last_good is not None
        assert seven.first_bad is not None
        # A night in which it could not run at all is neither.
        assert (seven.last_good.label, seven.first_bad.label) == ("night 1", "night 2")
        assert seven.runs_failing == 2
        only = store.failures(night_run(4).id, Selection(model="B"))
        assert [plan_of(one.figures.key) for one in only] == [4, 5, 7]
        assert store.failures(night_run(4).id, Selection(mode="training", variant="inductor")) == []
        assert store.failures(night_run(5).id, Selection()) == []
        assert len(store.failures(night_run(4).id, Selection(), limit=1)) == 1


def plan_of(key: CaseKey) -> int:
    return [planned.key for planned in night_run(0).plan].index(key)


def test_machines_and_their_noise(nights: Path) -> None:
    wrong = Finding("load", Level.WARN, "1.7 of 2 cores are busy.")
    findings = (Finding("boost", Level.NOTE, "It is on."), wrong)
    same = Estimate("floor", 1.002, (0.99, 1.01), 0.95, 3)
    with open_store(str(nights)) as store:
        first, second = store.machines()
        assert (first.id, first.description, first.runs) == ("m1", "Machine m1", 4)
        assert (first.first_seen_s, first.last_seen_s) == (FIRST_S, FIRST_S + 4 * DAY_S)
        assert (second.id, second.runs) == ("m2", 1)
        assert store.noise_history("m1") == []
        for day in (1, 2, 3):
            store.save_doctor(
                DoctorReport(f"d{day}", "m1", f"2026-01-0{day}", findings, same, day / 64)
            )
        noise = store.noise_history("m1", limit=2)
        assert [point.smallest_detectable for point in noise] == [2 / 64, 3 / 64]
        assert [point.created_s for point in noise] == [FIRST_S + DAY_S, FIRST_S + 2 * DAY_S]
        assert (noise[0].identical, noise[0].fit, noise[0].doubts) == (1.002, True, ("load",))
        assert store.machines()[0].reports == 3
        assert store.aa_floors("m1") == []
        store.remember_aa_floor("m1", Conditions(2, "default", "ms"), 0.01, {})
        store.remember_aa_floor("m1", Conditions(2, "default", "ms"), 0.03, {})
        (floor,) = store.aa_floors("m1")
        assert (floor.conditions, floor.observations) == (Conditions(2, "default", "ms"), 2)
        assert floor.value == store.aa_floor("m1", Conditions(2, "default", "ms"))


def test_a_case_that_is_judged_or_derived_anew_changes_what_is_summed_up(db: Path) -> None:
    run = make_run(cases=4)
    with open_store(str(db)) as store:
        fill(store, run, [0, 1, 2])
        before = store.run_groups(run.id)
        store.rebuild(
            lambda result, planned, arm: replace(
                store.cases(run.id)[0], key=planned.key, speedup=4.0
            ),
            every=True,
        )
        after = store.run_groups(run.id)
        assert after != before
        assert after == summarise(store.run_view(run.id).complete)
        assert after[0].speedup.value == pytest.approx(4.0)


@pytest.mark.sqlite_only
def test_a_damaged_failure_names_its_run(nights: Path) -> None:
    run = night_run(2)
    with closing(sqlite3.connect(nights)) as raw, raw:
        raw.execute("UPDATE case_fact SET speedup = '<b>' WHERE passes = 0")
    with reading(nights) as store, pytest.raises(CorruptRunError, match=f"run {run.id} is damaged"):
        store.failures(run.id)
