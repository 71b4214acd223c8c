"""Planted changes of a nightly suite: which are told, whose doing, what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.show.reports import regressions_report
from tests.track import planted
from tests.track.planted import AWAY, BOTH, COMPILED, EAGER, GONE, LOUD, MACHINE_FROM, SPIKE
from torchstone.cli.app import cli
from torchstone.lab.check import confirm
from torchstone.lab.regressions import SeriesRequest, find_change, regressions
from torchstone.lab.revisions import HowToRun
from torchstone.records import (
    Calibration,
    ChangeReport,
    CheckedTarget,
    LevelChange,
    Peak,
    SeriesKey,
    SeriesRun,
    Status,
    UsageError,
    group_changes,
)
from torchstone.show.regressions import issue_text, regressions_document
from torchstone.stats import changepoints
from torchstone.stats.series import Line, Lines
from torchstone.store import open_store
from torchstone.track.regressions import SAME_PLACE, find_regressions

NIGHT_S = 86_400.0


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(planted.planted(tmp_path_factory.mktemp("planted") / "planted.db"))


@pytest.fixture(scope="module")
def report(database: str) -> ChangeReport:
    return regressions(SeriesRequest(), database, 0.03, now_s=planted.moment(60))


@pytest.fixture
def own(database: str, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "own.db"
    path.write_bytes(Path(database).read_bytes())
    return str(path)


def told(report: ChangeReport, model: str, night: int) -> list[LevelChange]:
    """Changes of a model that begin at that night, but for a run or two."""
    at = planted.moment(night)
    near = SAME_PLACE * NIGHT_S
    return [
        one
        for one in report.changes
        if one.key.name == model and abs(one.first_bad.at - at) <= near
    ]


def test_compiled_that_got_slower_is_one_entry(report: ChangeReport) -> None:
    (one,) = told(report, COMPILED, planted.SLOWER_FROM)
    assert (one.key.metric, one.moved, one.worse, one.state) == (
        "speedup",
        "compiled",
        True,
        "open",
    )
    assert one.interval[0] <= 1 / 1.12 <= one.interval[1]
    assert one.first_bad.commit.startswith(f"{planted.SLOWER_FROM:02x}")
    assert one.machine == ""


def test_eager_that_got_slower_is_no_better_speedup(report: ChangeReport) -> None:
    (one,) = told(report, EAGER, planted.EAGER_FROM)
    assert (one.key.metric, one.moved, one.worse) == ("base_ns", "eager", True)


def test_both_sides_that_moved_alike(report: ChangeReport) -> None:
    (one,) = told(report, BOTH, planted.BOTH_FROM)
    assert (one.key.metric, one.moved, one.worse) == ("new_ns", "both", True)
    assert one.interval[0] <= 1.2 <= one.interval[1]


def test_what_went_away_is_closed(report: ChangeReport) -> None:
    (one,) = told(report, AWAY, planted.AWAY_FROM)
    assert one.state == "closed"
    assert "went away" in one.reason
    (back,) = told(report, AWAY, planted.AWAY_TO)
    assert not back.worse


def test_a_spike_is_no_change(report: ChangeReport) -> None:
    assert not told(report, SPIKE, 25)


def test_a_slower_machine_is_said_to_be_one(report: ChangeReport) -> None:
    shared = [one for one in report.changes if abs(one.first_bad.at - planted.moment(50)) < NIGHT_S]
    assert len({one.key.name for one in shared}) >= 8
    assert all("moved the same way" in one.machine for one in shared)
    early = [one for one in report.changes if one.first_bad.at < planted.moment(MACHINE_FROM - 1)]
    off = [one for one in early if one.latest.at >= planted.moment(MACHINE_FROM)]
    assert off, "noise makes one of them seem to begin some runs before"
    assert all("moved the same way" in one.machine for one in off)
    before = [one for one in early if one not in off]
    assert before
    assert not any(one.machine for one in before)


def test_missing_nights_and_models_are_alarms(report: ChangeReport, database: str) -> None:
    assert [one.name for one in report.missing if one.what == "model"] == [
        planted.case_key(GONE).name
    ]
    gaps = [one for one in report.missing if one.what == "run"]
    assert len(gaps) == 1
    assert "no run between" in gaps[0].detail
    late = regressions(SeriesRequest(), database, 0.03, now_s=planted.moment(67))
    assert any("no run for 8.0 days" in one.detail for one in late.missing)


def test_the_rate_of_false_alarms_is_calibrated_and_said(report: ChangeReport) -> None:
    rate = report.false_alarms
    assert rate.rate is not None
    assert rate.tested == 360
    assert rate.rate == rate.flagged / rate.tested
    assert rate.expected == pytest.approx(rate.rate * report.series)
    assert not told(report, LOUD, 10)


def test_the_least_effect_leaves_smaller_ones_out(database: str) -> None:
    large = regressions(SeriesRequest(), database, 0.16)
    names = {one.key.name for one in large.changes}
    assert {BOTH, AWAY} <= names
    assert EAGER not in names


def test_without_a_change_nothing_is_told(tmp_path: Path) -> None:
    """The loud models alone: noise, and nothing else."""
    path = planted.planted(tmp_path / "quiet.db", machine_from=1000)
    found = regressions(SeriesRequest(text="model1"), str(path), 0.03)
    assert found.series == 6
    assert not found.changes


def test_a_changed_torch_and_calibration_are_told(own: str) -> None:
    peak = Peak(1e9, dtype="float32", threads=1)
    slow = replace(peak, value=0.8e9)
    with open_store(own) as store:
        for night, one in ((5, peak), (55, slow)):
            made = Calibration(
                f"cal{night}", "m1", "f", planted.night_run(night, ["x"]).created, compute=(one,)
            )
            store.save_calibration(made)
    (one,) = told(regressions(SeriesRequest(), own, 0.03), COMPILED, planted.SLOWER_FROM)
    assert "calibrated float32 peak moved by -20%" in one.machine


# Acknowledge, mute, reopen, confirm.


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["regressions", *words], standalone_mode=False)


def ident(db: str, model: str = COMPILED, night: int = planted.SLOWER_FROM) -> str:
    return told(regressions(SeriesRequest(text=model), db, 0.03), model, night)[0].id


def state(db: str) -> LevelChange:
    found = regressions(SeriesRequest(text=COMPILED), db, 0.03, now_s=planted.moment(60))
    return told(found, COMPILED, planted.SLOWER_FROM)[0]


def test_acknowledge_mute_and_reopen(own: str) -> None:
    name = ident(own)
    common = (COMPILED, "--db", own)
    assert run(*common, "--acknowledge", name).exit_code == 0
    assert state(own).state == "acknowledged"
    muted = run(*common, "--mute", name, "--until", "2026-04-01", "--reason", "issue 7")
    assert muted.exit_code == 0
    assert (state(own).state, state(own).reason, state(own).until) == (
        "muted",
        "issue 7",
        "2026-04-01",
    )
    late = regressions(SeriesRequest(text=COMPILED), own, 0.03, now_s=planted.moment(200))
    ended = told(late, COMPILED, planted.SLOWER_FROM)[0]
    assert (ended.state, "was muted until 2026-04-01" in ended.reason) == ("open", True)
    assert run(*common, "--reopen", name).exit_code == 0
    assert state(own).state == "open"


def test_a_note_stays_with_its_change_when_nights_are_added(own: str, tmp_path: Path) -> None:
    run(COMPILED, "--db", own, "--mute", ident(own), "--until", "2027-01-01", "--reason", "known")
    models = list(planted.MODELS)
    from torchstone.store import BulkRun

    with open_store(own) as store:
        for night in range(60, 66):
            cases = tuple((i, planted.figures(one, night)) for i, one in enumerate(models))
            store.add_runs_in_bulk([BulkRun(planted.night_run(night, models), cases)])
    assert state(own).state == "muted"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--mute", "ID", "--until", "30d"), "needs a reason"),
        (("--mute", "ID", "--reason", "x"), "needs an end"),
        (("--mute", "ID", "--reason", "x", "--until", "soon"), "not a date"),
        (("--acknowledge", "zzzz"), "no change"),
        (("--acknowledge", "ID", "--reopen", "ID"), "One thing at a time"),
        (("--since", "yesterday"), "not a date"),
        (("--metric", "colour"), "no metric"),
    ],
)
def test_mistakes_are_told_in_a_sentence(own: str, words: tuple[str, ...], message: str) -> None:
    given = [ident(own) if word == "ID" else word for word in words]
    result = run(COMPILED, "--db", own, *given)
    assert isinstance(result.exception, UsageError)
    assert message in result.exception.message


Measured = tuple[float, tuple[float, float]]


def confirmed(
    change: LevelChange, db: str, found: Measured
) -> tuple[LevelChange, tuple[str, str, str, HowToRun]]:
    """The change after `--confirm`, and what that asked to be measured."""
    asked = []

    def measure(base: str, head: str, target: str, how: HowToRun) -> CheckedTarget:
        asked.append((base, head, target, how))
        return CheckedTarget(target, Status.CANNOT_TELL, time_ratio=found[0], interval=found[1])

    return confirm(change, db, measure), asked[0]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((1.12, (1.08, 1.16)), "confirmed"),
        ((1.0, (0.98, 1.02)), "closed"),
        ((0.9, (0.8, 0.95)), "closed"),
    ],
)
def test_confirm_measures_both_commits_again(own: str, found: Measured, expected: str) -> None:
    change = state(own)
    done, (base, head, target, how) = confirmed(change, own, found)
    assert (base, head) == (change.last_good.commit, change.first_bad.commit)
    assert target == f"timm:{COMPILED}@small"
    assert (how.variant, how.mode, how.precision) == ("inductor", "inference", "fp32")
    assert done.state == state(own).state == expected
    assert "inductor measured again on another machine, interleaved" in state(own).reason


def test_confirm_measures_the_side_that_moved(own: str) -> None:
    """Eager became faster, so the speed-up fell: eager is measured, and must be faster again."""
    change = replace(state(own), moved="eager")
    done, (*_, how) = confirmed(change, own, (0.9, (0.88, 0.92)))
    assert how.variant == "eager"
    assert done.state == "confirmed"
    assert confirmed(change, own, (1.1, (1.08, 1.12)))[0].state == "closed"
    (alone,) = told(regressions(SeriesRequest(text=EAGER), own, 0.03), EAGER, planted.EAGER_FROM)
    done, (*_, how) = confirmed(alone, own, (1.15, (1.1, 1.2)))
    assert (alone.key.metric, how.variant, done.state) == ("base_ns", "eager", "confirmed")


def test_what_cannot_be_confirmed_is_told_before_anything_is_measured(own: str) -> None:
    change = state(own)
    of_memory = replace(change, key=replace(change.key, metric="new_tensor_bytes"))
    same = replace(change, last_good=change.first_bad)
    none = replace(change, last_good=change.last_good._replace(commit=""))
    other = replace(change, case=None, key=replace(change.key, tool="asv"))
    for one, message in (
        (of_memory, "compares the times"),
        (same, "the code did not change"),
        (none, "name no commit"),
        (other, "a series of asv"),
    ):
        with pytest.raises(UsageError, match=message):
            confirm(one, own)


def test_ids_may_be_shortened(report: ChangeReport) -> None:
    one = report.changes[0]
    assert find_change(report, one.id[:6]) == one
    with pytest.raises(UsageError, match="no change"):
        find_change(report, "")


# The forms of a report.


def test_forms(own: str) -> None:
    plain = run("--db", own).output
    assert "False alarms:" in plain
    assert "Missing data" in plain
    assert "Open: " in plain
    worst = next(one for one in json.loads(run("--db", own, "--json", "-").output)["changes"])
    assert worst["state"] == "closed"  # what to do next is said of one that is open
    assert f"--confirm {worst['id']}" not in plain
    data = json.loads(run("--db", own, "--format", "json").output)
    assert data["false_alarms"]["tested"] == 360
    assert {one["state"] for one in data["changes"]} == {"open", "closed"}
    markdown = run("--db", own, "--format", "markdown").output
    assert "| " in markdown
    seen = markdown.partition("<details>")[0]
    for words in ("False alarms", "**Open: ", "**Open, but something else", "may not be the code"):
        assert words in seen
    issue = run("--db", own, "--format", "github-issue").output
    assert issue.startswith("Performance: ")
    assert "- [ ] `model00" in issue
    assert "Not counted, because the machine changed too" in issue


def test_fail_on_open(own: str) -> None:
    assert run("--db", own, "--fail-on-open").return_value == 1
    assert run("--db", own).return_value == 0


def test_history_draws_a_few_and_lists_many(own: str) -> None:
    drawn = CliRunner().invoke(cli, ["history", COMPILED, "--db", own])
    assert drawn.exit_code == 0
    assert "worse since 2026-02-10" in drawn.output
    assert "•" in drawn.output
    listed = CliRunner().invoke(cli, ["history", "--db", own])
    assert "12 series" in listed.output
    data = json.loads(
        CliRunner().invoke(cli, ["history", COMPILED, "--db", own, "--json", "-"]).output
    )
    assert len(data["series"][0]["points"]) == 56
    assert data["series"][0]["changes"][0]["moved"] == "compiled"
    missing = CliRunner().invoke(cli, ["history", "nosuch", "--db", own])
    assert isinstance(missing.exception, UsageError)


def one_change(name: str, at: float, **changes: Any) -> LevelChange:
    """A change of a series for the worse at a moment."""
    before, then = (SeriesRun(f"run {moment}", moment, f"c{moment:.0f}") for moment in (at - 1, at))
    made = LevelChange(
        *(name, SeriesKey("asv", "numpy", name, machine="i7"), before, then, then, then),
        *(1.5, (1.4, 1.6), 1.0, 1.5, 9.0, True),
    )
    return replace(made, **changes)


def test_series_that_changed_at_one_commit_are_one_alarm() -> None:
    same = [one_change(f"bench.a{i}", 100.0) for i in range(7)]
    late = one_change("bench.late", 101.0)
    late = replace(late, earliest=same[0].first_bad)  # it may as well have begun with them
    faster = one_change("bench.faster", 100.0, worse=False, ratio=0.5)
    other = one_change("bench.other", 100.0, key=SeriesKey("asv", "numpy", "o", machine="atom"))
    far = [one_change(f"bench.far{i}", 200.0) for i in range(4)]
    groups, alone = group_changes([*same, late, faster, other, *far])
    assert [group.changes for group in groups] == [(*same, late)]
    assert alone == (faster, other, *far)

    report = ChangeReport((*same, late, faster, other, *far), series=20, values=400)
    text = regressions_report(report, width=120)
    assert "8 at 1 commit" in text
    assert "c99..c100" in text
    assert "bench.a3" not in text
    assert "bench.far3" in text
    assert "bench.a3" in regressions_report(report, everything=True)
    assert issue_text(report).count("- [ ]") == 6
    (group,) = regressions_document(report)["groups"]
    assert group["changes"] == [one.id for one in (*same, late)]


def test_only_series_that_are_shuffled_are_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds are raised for most histories: what the usual ones find in the rest is unused."""
    monkeypatch.setattr(changepoints, "MOST_TESTED", 10)
    asked: list[tuple[int, float]] = []
    whole = changepoints.Scan.changes_of

    def counted(self: changepoints.Scan, row: int, factor: float = 1.0) -> tuple[int, ...]:
        if len(self.many) == 50:
            asked.append((row, factor))
        return whole(self, row, factor)

    monkeypatch.setattr(changepoints.Scan, "changes_of", counted)
    random = np.random.default_rng(0)
    runs = {number: SeriesRun(str(number), float(number)) for number in range(60)}
    lines = [
        Line(SeriesKey("asv", "p", str(i)), f"i{i}", list(runs), random.lognormal(0, 0.05, 60))
        for i in range(50)
    ]
    find_regressions(Lines(lines, {"imported": runs}))
    assert len(asked) == 50 + 10
