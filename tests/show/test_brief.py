"""The short report: verdicts first, one line for a busy machine, the rest counted."""

from __future__ import annotations

from dataclasses import replace

from tests.show import synthetic_result as made
from torchstone.records import Check, Level, Result
from torchstone.show.evidence import FAST_LEAVES_OUT
from torchstone.show.notebook import result_html
from torchstone.show.terminal import report

NOISE = Check(
    "noise", Level.WARN, "44 of 44 turns of eager.", {"dirty_share": 1.0}, arms=("eager",)
)
PROBE = Check("probe", Level.NOTE, "The CPU was slowed.", {"slow_share": 0.91}, arms=("eager",))
STEADY = Check(
    "steady", Level.WARN, "eager had not settled.", {"unsteady": 3, "processes": 4}, ("eager",)
)
PEAK = Check("peak", Level.NOTE, "The peak of this machine is unknown.")
OTHER = Check("definition", Level.WARN, "Something else is odd.")


def with_checks(*checks: Check) -> Result:
    return replace(made.two_faster(), checks=checks)


def brief(result: Result) -> str:
    return " ".join(report(result, verbose=False).split())


def test_checks_that_say_the_same_are_one_line() -> None:
    busy = [NOISE, replace(NOISE, arms=("inductor",)), PROBE, STEADY]
    text = brief(with_checks(*busy, OTHER))
    assert text.count("busy") == 1
    assert "100 % of turns disturbed, 91 % of samples on a slowed core" in text
    assert "3 of 4 processes not settled" in text
    assert "44 of 44 turns" not in text
    assert "Something else is odd" in text
    whole = " ".join(report(with_checks(*busy, OTHER)).split())
    assert "44 of 44 turns" in whole
    assert "had not settled" in whole


def test_notes_are_counted_and_fails_told_whole() -> None:
    failed = replace(OTHER, level=Level.FAIL)
    text = brief(with_checks(PROBE, PEAK, failed))
    assert "2 notes, --verbose has them all" in text
    assert "peak of this machine" not in text
    assert "Something else is odd" in text
    assert "busy" not in text  # a note alone does not weigh


def test_what_a_session_leaves_out_is_never_hidden() -> None:
    session = Check("session", Level.NOTE, "Arms shared this process.")
    text = brief(with_checks(session, PEAK))
    assert "Arms shared this process" in text
    assert "1 note, --verbose has them all" in text
    html = result_html(with_checks(session, PEAK, NOISE, PROBE, STEADY))
    assert "Arms shared this process" in html
    assert html.count("busy") == 1
    assert "report(verbose=True)) has them all" in html


def test_what_is_not_the_machine_keeps_its_own_line() -> None:
    compiling = replace(STEADY, figures={"unsteady": 3, "processes": 4, "still_compiling": 3})
    throttled = replace(NOISE, figures={"dirty_share": 1.0, "throttled_turns": 4})
    text = brief(with_checks(compiling, throttled))
    assert "busy" not in text
    assert "had not settled" in text
    assert "44 of 44 turns" in text


def test_too_many_threads_speak_for_the_rest() -> None:
    crowd = Check("threads", Level.WARN, "eager ran 99 threads on 2 cores.", {}, ("eager",))
    text = brief(with_checks(NOISE, STEADY, crowd))
    assert "99 threads on 2 cores" in text
    assert "busy" not in text
    assert "44 of 44" not in text


def test_the_verdict_and_its_reason_come_before_the_table() -> None:
    text = report(made.two_faster(), verbose=False)
    assert text.index("as fast as eager (") < text.index("floor per call")
    text = report(made.cannot_tell(), verbose=False)
    assert text.index("wider than the margin") < text.index("floor per call")


def test_the_report_says_what_fast_leaves_out() -> None:
    result = made.two_faster()
    fast = replace(result, method=replace(result.method, effort="fast", stopped_by="decided"))
    text = brief(fast)
    assert FAST_LEAVES_OUT in text
    assert "stopped when the verdict was clear" in text
    assert FAST_LEAVES_OUT not in brief(result)
