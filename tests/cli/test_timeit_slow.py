"""Statements of a second and more: executed no more often than needed, for as long as they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_timeit import asked
from tests.targets.support import torchstone
from torchstone.conductor import Settings
from torchstone.conductor.turn_scheduler import SLOW_SAMPLES, Plan, cycle_seconds, make_plan
from torchstone.conductor.worker import LONGER_STATEMENT
from torchstone.measure import warmup
from torchstone.measure.solo import _slow_statement
from torchstone.measure.warmup import (
    LONG_WINDOW_CALLS,
    SLOW_STATEMENT_NS,
    SLOW_WINDOW_CALLS,
    warm_up,
)

SECOND = 1_000_000_000
QUICKLY = ("--timeout", "1s", "--budget", "0.1s")


class Clock:
    """A step that takes so long by a clock of its own."""

    def __init__(self, *times: int) -> None:
        self.now, self.calls, self.times = 0, 0, times

    def __call__(self) -> int:
        took = self.times[min(self.calls, len(self.times) - 1)]
        self.calls += 1
        self.now += took
        return took


def test_a_slow_statement_is_sized_by_one_more_execution() -> None:
    slow = Clock(2 * SECOND)
    found = _slow_statement(slow, 2 * SECOND, None)
    assert found is not None
    assert found.wall_ns == (2 * SECOND,)
    assert slow.calls == 1
    assert _slow_statement(Clock(20_000), 9 * SECOND, None) is None  # slow once: it compiled
    quick = Clock(20_000)
    assert _slow_statement(quick, SLOW_STATEMENT_NS - 1, None) is None
    assert quick.calls == 0
    assert _slow_statement(slow, 2 * SECOND, 5) is None  # a sample of five is another thing


@pytest.mark.parametrize(("statement", "calls"), [(True, 2), (False, 2 * LONG_WINDOW_CALLS)])
def test_windows_of_slow_statements_are_short(
    statement: bool, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(2 * SECOND)
    monkeypatch.setattr(warmup, "wall_clock", lambda: clock.now)
    found = warm_up(clock, 2 * SECOND, lambda: None, statement=statement)
    assert found.steady
    assert clock.calls == calls


@pytest.mark.parametrize(
    ("took_ns", "window"),
    [(SECOND // 5, LONG_WINDOW_CALLS), (SECOND // 20, SLOW_WINDOW_CALLS), (SECOND // 100, 10)],
)
@pytest.mark.parametrize("statement", [True, False])
def test_what_takes_longer_is_warm_after_fewer_calls(
    took_ns: int, window: int, statement: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(took_ns)
    monkeypatch.setattr(warmup, "wall_clock", lambda: clock.now)
    assert warm_up(clock, took_ns, lambda: None, statement=statement).steady
    assert clock.calls == 2 * window


def test_turns_of_statements_are_short_where_the_budget_is() -> None:
    asked = Settings(budget_s=3.0)
    samples = [SECOND // 5]
    plan = make_plan(asked, 2.0, cycle_seconds(asked, samples), statements_s=0.2)
    assert plan == Plan(4, 2, SLOW_SAMPLES)
    took = plan.replicates * plan.turns * (SLOW_SAMPLES + 1) * 0.2
    assert took < 2 * asked.budget_s
    quick = cycle_seconds(asked, [SECOND // 50])
    assert make_plan(asked, 2.0, quick, statements_s=0.02).samples is None  # they fit as they are


def test_the_plan_of_a_slow_statement_has_one_short_turn() -> None:
    assert make_plan(Settings(budget_s=5.0), 9.0, 60.0, 2.0) == Plan(4, 1, SLOW_SAMPLES)
    assert make_plan(Settings(budget_s=80.0), 30.0, 60.0, 2.0) == Plan(4, 1, 9)
    assert make_plan(Settings(budget_s=5.0, samples=1), 9.0, 60.0, 2.0) == Plan(4, 1)


def test_time_out_and_processes_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--timeout", "20m", "--replicates", "1", "pass")
    _, settings, command = asked(monkeypatch, *words)
    assert (settings.step_timeout_s, settings.replicates) == (1200.0, 1)
    assert settings.build_timeout_s == 1200.0  # the first execution may take as long
    again = asked(monkeypatch, *command[2:])
    assert again[1] == settings
    assert "--build-timeout" not in command


@pytest.mark.slow
def test_the_remedy_of_a_time_out_is_one_that_there_is() -> None:
    assert "--build-timeout" not in LONGER_STATEMENT
    done = torchstone("timeit", *QUICKLY, "import time; time.sleep(30)")
    assert done.returncode == 1
    assert LONGER_STATEMENT in done.stdout
    assert "--build-timeout" not in done.stdout


@pytest.mark.slow
def test_a_slow_statement_is_executed_as_often_as_the_docs_say(tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = f"import time; open({str(said)!r}, 'a').write('.'); time.sleep(2.1)"
    once = ("-n", "1", "-r", "1", "--replicates", "1", "--budget", "1s")
    done = torchstone("timeit", *once, code)
    assert done.returncode == 0, done.stderr
    assert len(said.read_text()) == 7
